// tutti-bench's command line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives.h"
#include "sizes.h"
#include "tutti/tutti.h"

namespace bench {

inline constexpr int exit_wrong = 1;  // wrong results, or an operation failed
inline constexpr int exit_usage = 2;  // also for errors found only after the ranks have joined

struct Options {
    const Collective* collective = nullptr;
    std::size_t begin_bytes = 8;
    std::size_t end_bytes = std::size_t{128} << 20;
    std::size_t factor = 4;
    int iters = 0;  // 0: as many as fit min_time_s
    int warmup = 5;
    double min_time_s = 0.2;
    std::vector<tutti_dtype> dtypes{TUTTI_FLOAT32};
    std::vector<tutti_op> ops{TUTTI_SUM};
    std::vector<std::string> algorithms{""};  // "": the library chooses
    std::vector<int> nrings{0};               // 0: the library's default
    int streams = 1;
    int root = 0;
    bool async = false;
    bool persistent = false;
    bool in_place = true;
    bool out_of_place = true;
    bool check = true;
    bool device = false;  // buffers in a GPU's memory
    bool nccl = false;    // direct calls of NCCL, in turns with tutti's
    bool stats = false;
    bool explain = false;
    std::string transport;
    std::string json;
    int ranks = 0;  // > 0: start this number of ranks with tutti-run
};

/// The options, or the exit code after a usage error (printed), --help or --version.
struct Parsed {
    Options options;
    std::optional<int> exit_code;
};
Parsed parse_options(int argc, char** argv);

using command_line::parse_bytes;

/// The sizes begin, begin × factor, … up to end, as counts for Call. Each size is rounded down to
/// whole elements and, if a buffer has a block for each rank, to equal blocks. Equal counts appear
/// once.
std::vector<std::size_t> sweep_counts(const Options& options, std::size_t element_bytes, int ranks);

}  // namespace bench
