// Processes of this machine claim ranks with these records.
#pragma once

#include <fstream>
#include <string>

#include "job/records/rank_owner.h"
#include "os/process.h"

namespace comm_test {

inline std::string boot_id() {
    std::string id;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::getline(file, id);
    return id;
}

/// A process of this pid, as its claim would name it.
inline tutti::RankOwner claimant_of(pid_t pid) {
    tutti::RankOwner other = tutti::RankOwner::this_process(boot_id());
    other.pid = pid;
    other.start_ticks = tutti::process_field(pid, tutti::ProcessField::start_ticks);
    return other;
}

}  // namespace comm_test
