// Resources shared by this rank's communicators for the host's other ranks: the segments that those
// ranks made, and doorbells that wake them.
//
// The leader of a flat group makes a doorbell for every member for which it has none, and passes it
// to all members that have none for that member. So a process holds at most one doorbell per
// neighbour, and watches one per leader: a further group needs no descriptor.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "transport/mapped/mapped_channel.h"

namespace tutti {
class Reactor;
}

namespace tutti::shm {

/// Any thread. All ranks are ranks of the job.
class Neighbours {
public:
    Neighbours(Rank rank, int own_doorbell_fd) : rank_(rank), own_doorbell_fd_(own_doorbell_fd) {}

    /// The segments of a rank's process that this process has received.
    std::shared_ptr<SegmentTable> segments(Rank rank);

    using Bell = std::shared_ptr<const Doorbell>;
    /// nullptr if there is none.
    Bell bell(Rank rank) const;
    void add_bell(Rank rank, UniqueFd fd);
    /// The existing doorbell, or a new one, which the caller must pass to that rank. system: no
    /// descriptors.
    Result<Bell> make_bell(Rank rank);

    /// Whether that leader has passed a doorbell that wakes this process.
    bool is_rung_by(Rank leader) const;
    /// Wakes this process's sleeping threads when the leader rings the new doorbell, until close().
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
