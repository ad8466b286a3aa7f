// Resources shared by this rank's communicators for the host's other ranks: the segments that those
// ranks made, and doorbells that wake them.
//
// The leader of a flat group makes a doorbell for every member for which it has none, and passes it
// to all members that have none for that member. So a process holds at most one doorbell per
// neighbour, and watches one per leader: a further group needs no descriptor.
#pragma once

#include <atomic>
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

    /// Whether that rank's process is known to run no more: it uses no memory of this one.
    using End = std::shared_ptr<const std::atomic<bool>>;
    End end_of(Rank rank);
    bool has_ended(Rank rank) { return end_of(rank)->load(std::memory_order_acquire); }
    void note_end(Rank rank);
    /// That rank sends nothing more: drops its resources. Channels and groups that use them keep
    /// them for as long as they live.
    void forget(Rank rank);

private:
    const Rank rank_;
    const int own_doorbell_fd_;
    mutable std::mutex mutex_;
    std::map<Rank, std::shared_ptr<SegmentTable>> segments_;
    std::map<Rank, Bell> bells_;
    std::map<Rank, Bell> watched_;  // by leader
    std::map<Rank, std::shared_ptr<std::atomic<bool>>> ends_;
    Reactor* reactor_ = nullptr;
};

}  // namespace tutti::shm
