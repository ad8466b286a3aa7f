#include "os/process.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

namespace tutti {
namespace {

// Field 3 is the state, a letter. Field 2, before it, is the program's name in parentheses, which
// may contain any bytes.
constexpr int state_field = 3;

// qemu-user, an emulator, makes up /proc/PID/stat for the process itself, with another start than
// other processes read there. It does not know the longer path. That has the heap of qemu, however.
constexpr auto short_path = "/stat", kernels_path = "/task/../stat";

// The rest of a process's "stat" in /proc from state_field on; empty if there is no such process.
std::istringstream fields_of(pid_t pid, const char* path) {
    std::ifstream file((pid == 0 ? "/proc/self" : fmt::format("/proc/{}", pid)) + path);
    std::string line;
    std::getline(file, line, '\0');
    const auto name_end = line.rfind(')');
    return std::istringstream(name_end == std::string::npos ? "" : line.substr(name_end + 1));
}

}  // namespace

uint64_t process_field(pid_t pid, ProcessField field) {
    const bool of_program = field == ProcessField::heap_begin;
    std::istringstream fields = fields_of(pid, of_program ? short_path : kernels_path);
    std::string skipped;
    for (int i = state_field; i < static_cast<int>(field); ++i) fields >> skipped;
    uint64_t value = 0;
    fields >> value;
    return value;
}

bool process_ended(pid_t pid) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
    char state = 0;
    fields_of(pid, kernels_path) >> state;
    // The state is Z too if the first thread has ended and others run on, so count them.
    return (state == 'Z' || state == 'X') && process_field(pid, ProcessField::threads) <= 1;
}

}  // namespace tutti
