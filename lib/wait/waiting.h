// The threads that wait for one communicator's requests, and how they hear that one is done.
#pragma once

#include <atomic>
#include <cstdint>

#include "wait/sleep.h"
#include "wait/wakeups.h"

namespace tutti {

/// Any thread may call anything.
class Waiting {
public:
    explicit Waiting(Wakeups& wakeups) : wakeups_(wakeups) {}

    /// Non-blocking requests that are not done.
    bool pending() const { return pending_.load() > 0; }
    void add_pending() { pending_.fetch_add(1); }
    void drop_pending() { pending_.fetch_sub(1); }

    /// Operations on devices: no doorbell rings when they move on.
    void watch() { wakeups_.watch(1); }
    void unwatch() { wakeups_.watch(-1); }

    /// Threads of the program that drive: the service thread leaves the work to them.
    bool waiters() const { return waiters_.load() > 0; }
    void enter() {
        waiters_.fetch_add(1);
        wakeups_.count_waiters(1);
        if (!wakeups_.manual()) wakeups_.claimed();
    }
    /// The last thread leaves what is still under way to the service thread.
    void leave() {
        wakeups_.count_waiters(-1);
        if (waiters_.fetch_sub(1) == 1 && pending() && !wakeups_.manual()) wakeups_.wake_service();
        wakeups_.returns();
    }

    /// Sleeps unless the work moves before. Counted meanwhile, before it is announced: whatever
    /// becomes done rings, and a thread that recalls the same announcement wakes this one.
    template <SleepWork Work>
    void sleep(Work& work, int64_t limit_ms) {
        sleepers_.fetch_add(1);
        wakeups_.sleep(work, static_cast<int>(limit_ms));
        sleepers_.fetch_sub(1);
    }
    /// The longest that a thread sleeps between looks.
    int longest_sleep_ms() const { return wakeups_.longest_sleep_ms(); }
    /// For a thread that has changed what others sleep on, after the change: it has ended a
    /// request, begun one, or recalled an announcement and does not drive from here on.
    void wake_sleepers() {
        if (sleepers_.load(std::memory_order_seq_cst) > 0) wakeups_.ring();
    }

private:
    Wakeups& wakeups_;
    std::atomic<int> pending_{0}, waiters_{0}, sleepers_{0};
};

}  // namespace tutti
