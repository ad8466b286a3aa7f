// tutti-tune's command line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/collective.h"
#include "reduce/reduce.h"

namespace tutti::tune {

inline constexpr int exit_failed = 1;

struct Options {
    std::vector<Collective> collectives;
    std::size_t begin_bytes = 8;
    std::size_t end_bytes = std::size_t{64} << 20;
    std::size_t factor = 8;
    double seconds = 60;
    Dtype dtype = Dtype::float32;
    std::string transport;
    std::string output;  // "": only the report
    std::string rows;    // "": no raw measurements
};

/// The options, or the exit code after a usage error (printed), --help or --version.
struct Parsed {
    Options options;
    std::optional<int> exit_code;
};
Parsed parse_options(int argc, char** argv);

}  // namespace tutti::tune
