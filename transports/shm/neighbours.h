// The host's other ranks, as this rank's communicators share them: the memory that those ranks
// made, and doorbells that wake them.
//
// The leader of a flat group makes a doorbell for every member that it cannot ring yet and passes
// it to all who have none for that member. So a process holds at most one for each neighbour, and
// watches one for each leader it ever followed: a further group needs no descriptor.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "transport/mapped/mapped_channel.h"

namespace tutti {
class Reactor;
}

namespace tutti::shm {

/// Any thread. Ranks are those of the job.
class Neighbours {
public:
    Neighbours(Rank rank, int own_doorbell_fd) : rank_(rank), own_doorbell_fd_(own_doorbell_fd) {}

    /// The memory that a rank's process made, as far as it was passed here.
    std::shared_ptr<SegmentTable> segments(Rank rank);

    using Bell = std::shared_ptr<const Doorbell>;
    /// Null if there is none.
    Bell bell(Rank rank) const;
    void add_bell(Rank rank, UniqueFd fd);
    /// The one there is, or a new one that is to be passed to that rank. system: no descriptors.
    Result<Bell> make_bell(Rank rank);

    /// Whether that leader has passed a doorbell that wakes this process.
    bool is_rung_by(Rank leader) const;
    /// Wakes this process's sleepers when the leader's new doorbell is rung, until close().
    Result<> watch(Rank leader, UniqueFd fd, Reactor& reactor);
    void close();

private:
    const Rank rank_;
    const int own_doorbell_fd_;
    mutable std::mutex mutex_;
    std::map<Rank, std::shared_ptr<SegmentTable>> segments_;
    std::map<Rank, Bell> bells_;
    std::map<Rank, Bell> watched_;  // by leader
    Reactor* reactor_ = nullptr;
};

}  // namespace tutti::shm
