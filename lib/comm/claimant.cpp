#include "comm/claimant.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>

namespace tutti {
namespace {

// 0: not to be found out. The name, the second field, may hold spaces and parentheses.
uint64_t start_ticks_of(pid_t pid) {
    constexpr int fields_before = 19;  // of those after the name
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string line;
    std::getline(file, line, '\0');
    const auto end_of_name = line.rfind(')');
    if (end_of_name == std::string::npos) return 0;
    std::istringstream fields(line.substr(end_of_name + 1));
    std::string skipped;
    for (int i = 0; i < fields_before; ++i) fields >> skipped;
    uint64_t ticks = 0;
    fields >> ticks;
    return ticks;
}

}  // namespace

Claimant Claimant::this_process(std::string machine) {
    Claimant self;
    self.machine = std::move(machine);
    struct stat info {};
    if (::stat("/proc/self/ns/pid", &info) == 0) self.pid_namespace = info.st_ino;
    self.pid = ::getpid();
    self.start_ticks = start_ticks_of(self.pid);
    return self;
}

std::string Claimant::encode() const {
    return fmt::format("{} {} {} {}", pid, start_ticks, pid_namespace, machine);
}

Claimant Claimant::decode(const std::string& text) {
    Claimant other;
    std::istringstream in(text);
    in >> other.pid >> other.start_ticks >> other.pid_namespace >> std::ws;
    std::getline(in, other.machine);
    return other;
}

bool Claimant::sees(const Claimant& other) const {
    return other.pid > 0 && other.machine == machine && pid_namespace != 0 &&
           other.pid_namespace == pid_namespace;
}

bool Claimant::outlived(const Claimant& other) const {
    if (!sees(other)) return false;
    if (::kill(other.pid, 0) != 0 && errno == ESRCH) return true;
    const uint64_t now_there = start_ticks_of(other.pid);
    return now_there != 0 && other.start_ticks != 0 && now_there != other.start_ticks;
}

}  // namespace tutti
