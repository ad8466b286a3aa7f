// The start of a job, shared by the threads of one rank.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "control/bootstrap.h"
#include "control/control_links.h"

namespace tutti {

/// The bootstrap's state machine under a lock: the joining thread and the thread that serves the
/// reactor feed it. Its messages go along the control tree, without the lock. With the mutex held,
/// only the machine is called.
class Assembly {
public:
    explicit Assembly(ControlLinks& control) : control_(control) {}

    /// Called before all other functions, except fail(), fail_start() and complete().
    void begin(Bootstrap::Self self);
    void receive(Rank from, ByteView message);
    void child_connected(Rank child);
    /// Sends the messages that have waited for the parent. exchanges_records: as its record says.
    void parent_connected(bool exchanges_records);
    /// Called before parent_connected(); as Bootstrap::found_latency().
    void found_latency(std::size_t transport, double latency_us);
    void linked(bool ok);
    /// Called if this rank cannot continue: tells the other ranks why.
    void fail(const Error& error);
    /// The same, unless the job is complete.
    void fail_start(const Error& error);

    Bootstrap::State state() const;
    bool complete() const;
    Error error() const;
    std::vector<LinkAttributes> worst() const;
    /// As Bootstrap::take_records().
    std::vector<std::string> take_records();
    bool all_linked() const;
    /// Set when the start has failed; waits read it without the mutex.
    const std::atomic<bool>& failed() const { return failed_; }
    /// Returns at any change, or a little later.
    void wait_for_change(int64_t most_ms) const;

    // From state link on these do not change.
    bool one_host() const { return bootstrap_->one_host(); }
    /// True if this machine has more ranks than cores that they may use. If there were too many
    /// machines to count, both numbers are 0, and the result is false.
    bool oversubscribed() const {
        return bootstrap_->machine_ranks() > bootstrap_->machine_cores();
    }
    double crowding() const { return bootstrap_->crowding(); }
    /// As Bootstrap::knows_heartbeats().
    bool knows_heartbeats() const { return bootstrap_->knows_heartbeats(); }

private:
    void step(const std::function<void()>& step);

    ControlLinks& control_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::optional<Bootstrap> bootstrap_;
    // Children may connect before the parent.
    Bootstrap::Parent parent_ = Bootstrap::Parent::not_connected;
    std::atomic<bool> failed_{false};
};

}  // namespace tutti
