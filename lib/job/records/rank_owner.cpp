#include "job/records/rank_owner.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "os/process.h"

namespace tutti {

std::string machine_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id.empty() ? "unknown machine" : id;
}

RankOwner RankOwner::this_process(std::string machine) {
    RankOwner self;
    self.machine = std::move(machine);
    struct stat info {};
    if (::stat("/proc/self/ns/pid", &info) == 0) self.pid_namespace = info.st_ino;
    self.pid = ::getpid();
    self.start_ticks = process_field(0, ProcessField::start_ticks);
    return self;
}

std::string RankOwner::encode() const {
    return fmt::format("{} {} {} {}", pid, start_ticks, pid_namespace, machine);
}

RankOwner RankOwner::decode(const std::string& text) {
    RankOwner other;
    std::istringstream in(text);
    in >> other.pid >> other.start_ticks >> other.pid_namespace >> std::ws;
    std::getline(in, other.machine);
    return other;
}

bool RankOwner::sees(const RankOwner& other) const {
    return other.pid > 0 && other.machine == machine && pid_namespace != 0 &&
           other.pid_namespace == pid_namespace;
}

bool RankOwner::outlived(const RankOwner& other) const {
    if (!sees(other)) return false;
    if (process_ended(other.pid)) return true;
    const uint64_t now_there = process_field(other.pid, ProcessField::start_ticks);
    return now_there != 0 && other.start_ticks != 0 && now_there != other.start_ticks;
}

}  // namespace tutti
