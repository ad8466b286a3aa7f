// tutti-run's command line.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::run {

// The exit codes that are tutti-run's own; the others are the ranks'.
inline constexpr int exit_timeout = 124;
inline constexpr int exit_launcher = 125;
inline constexpr int exit_not_executable = 126;
inline constexpr int exit_not_found = 127;
inline constexpr int exit_signal_base = 128;

/// A job that goes on while its ranks die and new processes join it.
struct Elastic {
    int least = 0;  // ranks; with fewer the job ends
    int most = 0;
    int newcomers = 1000;  // at most: new processes
};

struct Options {
    int ranks = 0;
    std::optional<Elastic> elastic;
    std::vector<std::string> command;  // the program, then its arguments
    bool keep_going = false;
    bool prefix = true;
    bool quiet = false;
    bool bind = false;
    int hosts_act = 0;  // 0: all ranks on this host
    int gangs = 1;      // one after another
    int restarts = 0;   // at most, after failed gangs
    double timeout_s = 0;
    double grace_s = 3;
    std::string transport;
    std::string store_url;
    std::string log_dir;
    std::vector<std::pair<std::string, std::string>> environment;
};

/// The options, or the exit code after a usage error (printed), --help or --version.
struct Parsed {
    Options options;
    std::optional<int> exit_code;
};
Parsed parse_options(int argc, char** argv);

}  // namespace tutti::run
