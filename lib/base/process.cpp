#include "base/process.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tutti {

uint64_t process_field(pid_t pid, ProcessField field) {
    constexpr int first = 3;  // after the second, the name, which may hold anything
    std::ifstream file(pid == 0 ? "/proc/self/stat" : fmt::format("/proc/{}/stat", pid));
    std::string line, skipped;
    std::getline(file, line, '\0');
    const auto name_end = line.rfind(')');
    if (name_end == std::string::npos) return 0;
    std::istringstream fields(line.substr(name_end + 1));
    for (int i = first; i < static_cast<int>(field); ++i) fields >> skipped;
    uint64_t value = 0;
    fields >> value;
    return value;
}

}  // namespace tutti
