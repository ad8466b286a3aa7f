// tutti-sim's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/collective.h"
#include "proof/network.h"
#include "reduce/reduce.h"

namespace tutti::sim {

inline constexpr int exit_failed = 1;  // a file could not be written, a simulation did not end

struct Options {
    Collective collective = Collective::allreduce;
    Rank ranks = 0;
    Rank root = 0;
    uint64_t begin_bytes = 1024;
    uint64_t end_bytes = uint64_t{16} << 20;
    uint64_t factor = 4;
    Dtype dtype = Dtype::float32;
    std::vector<std::string> algorithms;
    uint32_t lanes = 0;  // 0: the selection's number
    Network network;
    std::string json, draw, plot;
};

/// The options, or the exit code after a usage error (printed), --help or --version.
struct Parsed {
    Options options;
    std::optional<int> exit_code;
};
Parsed parse_options(int argc, char** argv);

/// The sizes begin, begin × factor, … up to end. A barrier has only the size 0.
std::vector<uint64_t> sizes_of(const Options& options);

}  // namespace tutti::sim
