// Threads that sleep until a half of a channel moves, and how the engine wakes them.
#pragma once

#include <atomic>
#include <utility>

#include "wait/event_fd.h"

namespace tutti {

/// Which thread sleeps until this half of the channel moves; nullptr: none.
class Sleeper {
public:
    void announce(bool on) { thread_.store(on ? &moved() : nullptr, std::memory_order_seq_cst); }
    /// True if another thread sleeps and must be woken. The caller has published first, both
    /// sequentially consistent: either we see the sleeper here, or it sees what was published.
    bool wants_waking() {
        const bool* const thread = thread_.load(std::memory_order_seq_cst);
        if (thread == nullptr || thread != &moved()) return thread != nullptr;
        moved() = true;
        return false;
    }
    /// Whether this thread itself moved, since it last asked, something that it had announced to
    /// wait for. It may have looked there before: it must not sleep on that.
    static bool take_moved() { return std::exchange(moved(), false); }

private:
    static bool& moved() {
        static thread_local bool moved = false;
        return moved;
    }
    std::atomic<const bool*> thread_{nullptr};
};

/// Rings the process's doorbell, which every sleeping thread polls.
class SleeperWaker {
public:
    explicit SleeperWaker(int doorbell_fd) : doorbell_fd_(doorbell_fd) {}
    void wake(Sleeper& sleeper) const {
        if (sleeper.wants_waking()) ring();
    }
    void ring() const { ring_event_fd(doorbell_fd_); }

private:
    const int doorbell_fd_;
};

}  // namespace tutti
