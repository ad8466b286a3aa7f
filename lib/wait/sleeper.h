// A place where a thread announces that it sleeps until a half of a channel moves, and the thread
// that moves it rings.
#pragma once

#include <atomic>
#include <utility>

#include "wait/event_fd.h"

namespace tutti {

/// Notes that this thread itself has moved something that it had announced to sleep for. The thread
/// may have looked there before, and no doorbell rings for a thread that is awake: it must not
/// sleep on that. Only the protocol of sleep.h asks for it.
class OwnMoves {
public:
    /// Whether there was any since this was last asked.
    static bool take() { return std::exchange(moved(), false); }

private:
    friend class Sleeper;
    // Its address tells threads from each other.
    static bool& moved() {
        static thread_local bool moved = false;
        return moved;
    }
};

/// The thread that sleeps until this half of the channel moves, if any.
class Sleeper {
public:
    void set_sleeping(bool on) {
        thread_.store(on ? &OwnMoves::moved() : nullptr, std::memory_order_seq_cst);
    }
    /// True if another thread sleeps and must be woken. The caller has published first, both
    /// sequentially consistent: either we see the sleeper here, or it sees what was published.
    bool wants_waking() {
        const bool* const thread = thread_.load(std::memory_order_seq_cst);
        if (thread == nullptr || thread != &OwnMoves::moved()) return thread != nullptr;
        OwnMoves::moved() = true;
        return false;
    }

private:
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
