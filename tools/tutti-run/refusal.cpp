#include "refusal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/result.h"
#include "options.h"

namespace tutti::run {
namespace {

std::string search_path(const std::vector<std::string>& environment) {
    constexpr std::string_view name = "PATH=";
    for (const std::string& entry : environment)
        if (entry.starts_with(name)) return entry.substr(name.size());
    return "/bin:/usr/bin";  // the default of execvp
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
    constexpr std::size_t longest_line_bytes = 256;  // the kernel reads no more of the line
    std::string line(longest_line_bytes, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(line.data(), static_cast<std::streamsize>(line.size()));
    if (!line.starts_with("#!")) return {};
    const auto start = line.find_first_not_of(" \t", 2);
    if (start == std::string::npos) return {};
    return line.substr(start, line.find_first_of(std::string_view(" \t\n\0", 4), start) - start);
}

// The advice for an errno of exec.
std::string_view advice_for(int cause) {
    switch (cause) {
        case EACCES:
        case EPERM:
            return "give a file that this user may execute (chmod +x), in folders that this user "
                   "may enter";
        case ENOEXEC:
            return "give a program of this machine's processor, or start a script with its "
                   "interpreter";
        case E2BIG:
            return "pass fewer arguments and variables";
        default:
            return "give a program that this user can start from a shell";
    }
}

Refusal refuse(int exit_code, const ErrorResult& error) {
    return {exit_code, error_text(error.value())};
}

}  // namespace

Refusal explain(const std::string& program, const std::vector<std::string>& environment,
                int cause) {
    if (cause != ENOENT && cause != ENOTDIR)
        return refuse(exit_not_executable, fail(Code::invalid, "{}: cannot be executed: {}",
                                                program, std::strerror(cause))
                                               .advice("{}", advice_for(cause)));
    // exec also returns ENOENT if the file exists but its interpreter does not.
    const std::string path = find_program(program, environment);
    if (path.empty())
        return refuse(exit_not_found, fail(Code::invalid, "{}: not found", program)
                                          .advice("give a path, or the name of a program in PATH"));
    const std::string interpreter = interpreter_of(path);
    if (interpreter.ends_with('\r'))
        return refuse(exit_not_executable,
                      fail(Code::invalid,
                           "{}: cannot be executed: its first line ends with CR LF, and there is "
                           "no interpreter of that name",
                           path)
                          .advice("end its lines with LF alone (dos2unix)"));
    return refuse(exit_not_executable,
                  fail(Code::invalid, "{}: cannot be executed: its interpreter {} is missing", path,
                       interpreter)
                      .advice("install the interpreter, or correct the script's first line"));
}

}  // namespace tutti::run
