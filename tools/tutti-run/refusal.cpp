#include "refusal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "options.h"

namespace tutti::run {
namespace {

std::string search_path(const std::vector<std::string>& environment) {
    constexpr std::string_view name = "PATH=";
    for (const std::string& entry : environment)
        if (entry.starts_with(name)) return entry.substr(name.size());
    return "/bin:/usr/bin";  // execvp's
}

// The file that the name stands for, as execvp finds it; empty if there is none.
std::string find_program(const std::string& program, const std::vector<std::string>& environment) {
    const auto executable = [](const std::string& path) {
        return ::access(path.c_str(), X_OK) == 0;
    };
    if (program.find('/') != std::string::npos) return executable(program) ? program : "";
    std::istringstream folders(search_path(environment));
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::string path = (folder.empty() ? "." : folder) + "/" + program;
        if (executable(path)) return path;
    }
    return {};
}

// The interpreter that a script's first line names; empty if the file is no script.
std::string interpreter_of(const std::string& path) {
    constexpr std::size_t longest_line_bytes = 256;  // that the kernel reads
    std::string line(longest_line_bytes, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(line.data(), static_cast<std::streamsize>(line.size()));
    if (!line.starts_with("#!")) return {};
    const auto start = line.find_first_not_of(" \t", 2);
    if (start == std::string::npos) return {};
    return line.substr(start, line.find_first_of(std::string_view(" \t\n\0", 4), start) - start);
}

}  // namespace

Refusal explain(const std::string& program, const std::vector<std::string>& environment,
                int cause) {
    if (cause != ENOENT && cause != ENOTDIR)
        return {exit_not_executable,
                fmt::format("{}: cannot be executed: {}", program, std::strerror(cause))};
    // exec says ENOENT as well where the file is there and what is to run it is not.
    const std::string path = find_program(program, environment);
    if (path.empty())
        return {
            exit_not_found,
            fmt::format("{}: not found; give a path, or the name of a program in PATH", program)};
    const std::string interpreter = interpreter_of(path);
    if (interpreter.ends_with('\r'))
        return {exit_not_executable,
                fmt::format("{}: cannot be executed: its first line ends with CR LF, and there is "
                            "no interpreter of that name",
                            path)};
    return {
        exit_not_executable,
        fmt::format("{}: cannot be executed: its interpreter {} is missing", path, interpreter)};
}

}  // namespace tutti::run
