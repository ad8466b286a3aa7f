// The start of a job, as the threads of one rank share it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "control/bootstrap.h"
#include "control/control_tree.h"

namespace tutti {

/// The bootstrap's state machine under a lock: the thread that joins and whoever serves the reactor
/// feed it, and its messages go along the control tree, without the lock. Its mutex guards the
/// machine; nothing but the machine is called with it.
class Assembly {
public:
    explicit Assembly(ControlTree& control) : control_(control) {}

    /// Before anything else, but for a failure and complete().
    void begin(Bootstrap::Self self);
    void receive(Rank from, ByteView message);
    void child_connected(Rank child);
    /// Messages for the parent have waited for this.
    void parent_connected();
    /// Before that: as Bootstrap's.
    void found_latency(std::size_t transport, double latency_us);
    void linked(bool ok);
    /// This rank cannot go on: tells the others why.
    void fail(const Error& error);
    /// The same, but for a job that is complete.
    void fail_start(const Error& error);

    Bootstrap::State state() const;
    bool complete() const;
    Error error() const;
    std::vector<LinkAttributes> worst() const;
    bool all_linked() const;
    /// Set when the start has failed: for waits without the mutex.
    const std::atomic<bool>& failed() const { return failed_; }
    /// Returns at any change, or a little later.
    void wait_for_change(int64_t most_ms) const;

    // From state link on these do not change.
    bool one_host() const { return bootstrap_->one_host(); }
    /// Whether this machine has more ranks than cores that they may use. With too many machines to
    /// have counted, each is expected to be as full as it has cores.
    bool oversubscribed() const {
        return bootstrap_->machine_ranks() > bootstrap_->machine_cores();
    }
    double crowding() const { return bootstrap_->crowding(); }

private:
    void step(const std::function<void()>& step);

    ControlTree& control_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::optional<Bootstrap> bootstrap_;
    bool parent_there_ = false;  // connected; children may be earlier
    std::atomic<bool> failed_{false};
};

}  // namespace tutti
