#include "os/process.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

namespace tutti {
namespace {

constexpr int first = 3;  // the state; before it is the name, which may hold anything

// From that field on.
std::istringstream fields_of(pid_t pid) {
    std::ifstream file(pid == 0 ? "/proc/self/stat" : fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(file, line, '\0');
    const auto name_end = line.rfind(')');
    return std::istringstream(name_end == std::string::npos ? "" : line.substr(name_end + 1));
}

}  // namespace

uint64_t process_field(pid_t pid, ProcessField field) {
    std::istringstream fields = fields_of(pid);
    std::string skipped;
    for (int i = first; i < static_cast<int>(field); ++i) fields >> skipped;
    uint64_t value = 0;
    fields >> value;
    return value;
}

bool process_ended(pid_t pid) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
    char state = 0;
    fields_of(pid) >> state;
    // A process whose first thread alone has ended looks the same, but for the threads it has.
    return (state == 'Z' || state == 'X') && process_field(pid, ProcessField::threads) <= 1;
}

}  // namespace tutti
