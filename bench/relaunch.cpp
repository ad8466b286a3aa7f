#include "relaunch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "complain.h"
#include "options.h"

namespace bench {
namespace {

// An installation has tutti-bench and tutti-run in one folder. A build folder has tutti-run in
// tools.
std::string find_tutti_run(const std::filesystem::path& self) {
    for (const char* place : {"tutti-run", "../tools/tutti-run"}) {
        const std::filesystem::path candidate = self.parent_path() / place;
        if (::access(candidate.c_str(), X_OK) == 0) return candidate.lexically_normal();
    }
    return "tutti-run";
}

}  // namespace

int relaunch(int ranks, int argc, char** argv) {
    std::error_code ignored;
    const std::string self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    const std::string launcher = find_tutti_run(self);
    std::vector<std::string> words{launcher, "-n", std::to_string(ranks), "--no-prefix",
                                   self.empty() ? argv[0] : self};
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--ranks")
            ++i;
        else if (!word.starts_with("--ranks="))
            words.push_back(word);
    }
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execvp(pointers[0], pointers.data());
    command_line::complain("tutti-bench",
                           command_line::with_advice(
                               fmt::format("cannot start {}: {}", launcher, std::strerror(errno)),
                               "start the ranks another way, without --ranks"));
    return exit_wrong;
}

}  // namespace bench
