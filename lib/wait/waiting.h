// Counts the threads that wait for one communicator's requests, and wakes them when one is done.
#pragma once

#include <atomic>
#include <cstdint>

#include "wait/sleep.h"
#include "wait/wakeups.h"

namespace tutti {

/// Any thread may call any function.
class Waiting {
public:
    explicit Waiting(Wakeups& wakeups) : wakeups_(wakeups) {}

    /// True while a non-blocking request is not done.
    bool pending() const { return pending_.load() > 0; }
    void add_pending() { pending_.fetch_add(1); }
    void drop_pending() { pending_.fetch_sub(1); }

    /// Called while a device operation is pending: no doorbell rings when it moves
    /// (Wakeups::watch).
    void watch() { wakeups_.watch(1); }
    void unwatch() { wakeups_.watch(-1); }

    /// True while threads of the program wait and drive: the service thread leaves the work to
    /// them.
    bool waiters() const { return waiters_.load() > 0; }
    void enter() {
        waiters_.fetch_add(1);
        wakeups_.count_waiters(1);
        if (!wakeups_.manual()) wakeups_.claimed();
    }
    /// The last waiting thread leaves pending requests to the service thread.
    void leave() {
        wakeups_.count_waiters(-1);
        if (waiters_.fetch_sub(1) == 1 && pending() && !wakeups_.manual()) wakeups_.wake_service();
        wakeups_.returns();
    }

    /// Sleeps unless the work moves first. sleepers_ counts this thread before it announces its
    /// sleep, so a thread that completes a request, or recalls the same announcement, sees the
    /// count and wakes it.
    template <SleepWork Work>
    void sleep(Work& work, int64_t limit_ms) {
        sleepers_.fetch_add(1);
        // Pairs with add_pending(), which a thread calls after it has queued an operation (with a
        // relaxed count, Stream::queued) and before wake_sleepers(). If this load misses the
        // addition, that thread sees the sleeper. If it sees the addition, this thread sees the
        // queued operation when it announces its sleep and checks.
        static_cast<void>(pending());
        wakeups_.sleep(work, static_cast<int>(limit_ms));
        sleepers_.fetch_sub(1);
    }
    /// The longest time that a thread sleeps between checks.
    int longest_sleep_ms() const { return wakeups_.longest_sleep_ms(); }
    /// Call this after changing something on which other threads sleep: this thread has ended or
    /// begun a request, or it has recalled an announcement and drives no more.
    void wake_sleepers() {
        if (sleepers_.load(std::memory_order_seq_cst) > 0) wakeups_.ring();
    }

private:
    Wakeups& wakeups_;
    std::atomic<int> pending_{0}, waiters_{0}, sleepers_{0};
};

}  // namespace tutti
