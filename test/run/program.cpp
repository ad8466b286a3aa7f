#include "run/program.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tutti::test {

Texts with_program(const Texts& arguments) {
    Texts all{TUTTI_RUN};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
}

Outcome run(const Texts& arguments, const Texts& variables) {
    Child child(with_program(arguments), variables);
    const int exit_code = child.finish();
    return {exit_code, child.out(), child.err()};
}

Outcome run_script(const std::string& ranks, const std::string& script, Texts options,
                   const Texts& variables) {
    options.insert(options.begin(), {"-n", ranks});
    options.insert(options.end(), {"/bin/sh", "-c", script});
    return run(options, variables);
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::multiset<std::string> lines_of(const std::string& text) {
    std::multiset<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.insert(line);
    return lines;
}

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_program(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

Folder::Folder() {
    char pattern[] = "/tmp/tutti-run-test-XXXXXX";
    path = mkdtemp(pattern);
}

Folder::~Folder() {
    std::filesystem::remove_all(path);
}

std::vector<pid_t> pids_in(const std::string& out) {
    std::vector<pid_t> pids;
    for (std::size_t at = 0; (at = out.find("pid ", at)) != std::string::npos; at += 4)
        pids.push_back(std::atoi(out.c_str() + at + 4));
    return pids;
}

bool all_gone(const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids)
        if (alive(pid)) return false;
    return true;
}

}  // namespace tutti::test
