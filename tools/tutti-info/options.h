// tutti-info's command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::info {

inline constexpr int exit_failed = 1;

struct Options {
    std::vector<std::string> sections;  // empty: all
    bool json = false;
    std::string root;  // "": this machine
};

/// The options, or the exit code after a usage error (printed), --help or --version.
struct Parsed {
    Options options;
    std::optional<int> exit_code;
};
Parsed parse_options(int argc, char** argv);

}  // namespace tutti::info
