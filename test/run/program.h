// tutti-run as its tests run it, and what they look at afterwards.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "run/child.h"

namespace tutti::test {

using Texts = std::vector<std::string>;

struct Outcome {
    int exit_code;
    std::string out;
    std::string err;
};

/// tutti-run's path, then the arguments.
Texts with_program(const Texts& arguments);
Outcome run(const Texts& arguments, const Texts& variables = {});
/// A shell script as N ranks.
Outcome run_script(const std::string& ranks, const std::string& script, Texts options = {},
                   const Texts& variables = {});

bool contains(const std::string& text, const std::string& part);
std::multiset<std::string> lines_of(const std::string& text);
std::string contents(const std::filesystem::path& path);
/// A file that may be executed.
void write_program(const std::filesystem::path& path, const std::string& text);

/// Gone with its owner.
struct Folder {
    Folder();
    ~Folder();
    Folder(const Folder&) = delete;
    std::filesystem::path path;
};

/// The numbers after each "pid " in the output.
std::vector<pid_t> pids_in(const std::string& out);
bool all_gone(const std::vector<pid_t>& pids);

}  // namespace tutti::test
