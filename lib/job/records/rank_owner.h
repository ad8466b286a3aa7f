// The process that has taken a rank's number, as its claim in the store names it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace tutti {

/// Names this boot of this machine: ranks with equal ids share cores and, unless the settings say
/// otherwise, a host.
std::string machine_id();

struct RankOwner {
    std::string machine;         // its boot id
    uint64_t pid_namespace = 0;  // of pid; 0: not known
    pid_t pid = 0;
    uint64_t start_ticks = 0;  // after boot; a later process with this pid has another value

    static RankOwner this_process(std::string machine);
    std::string encode() const;
    /// A malformed text yields an owner on no machine, which never counts as gone.
    static RankOwner decode(const std::string& text);

    /// True if both processes are in one pid namespace of one machine, so that the other's pid is
    /// valid here.
    bool sees(const RankOwner& other) const;
    /// True if this process can see that the other has ended. If the pid is its own, the other is
    /// an earlier program that started at another time, or else another rank of this process.
    bool outlived(const RankOwner& other) const;
};

}  // namespace tutti
