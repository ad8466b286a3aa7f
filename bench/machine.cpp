#include "machine.h"

#include <sched.h>
#include <sys/utsname.h>

#include <fstream>
#include <string>

namespace bench {
namespace {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        // "model name" on x86; other architectures have no such line
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown";
}

nlohmann::ordered_json caches() {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (int i = 0;; ++i) {
        const std::string folder =
            "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
        const std::string size = first_line(folder + "size");
        if (size.empty()) return list;
        list.push_back({{"level", first_line(folder + "level")},
                        {"type", first_line(folder + "type")},
                        {"size", size}});
    }
}

}  // namespace

nlohmann::ordered_json describe_machine() {
    utsname names{};
    ::uname(&names);
    cpu_set_t set;
    CPU_ZERO(&set);
    ::sched_getaffinity(0, sizeof set, &set);
    return {{"kernel", std::string(names.sysname) + " " + names.release},
            {"machine", names.machine},
            {"cpu", cpu_model()},
            {"cores", CPU_COUNT(&set)},
            {"caches", caches()}};
}

}  // namespace bench
