// The announcement of a thread that sleeps until one half of a channel moves. The thread that moves
// this half reads the announcement and rings.
#pragma once

#include <atomic>
#include <utility>

#include "wait/event_fd.h"

namespace tutti {

/// A thread-local flag: this thread has itself moved a half for which it had announced its sleep.
/// It may have checked that half earlier, and no doorbell rings for a thread that is awake, so it
/// must not go to sleep. Only the protocol of sleep.h reads the flag.
class OwnMoves {
public:
    /// Reads and clears the flag.
    static bool take() { return std::exchange(moved(), false); }

private:
    friend class Sleeper;
    // The flag's address identifies the thread (Sleeper::thread_).
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
    /// True if another thread sleeps and must be woken. The caller has published its move first.
    /// That store, this load and set_sleeping() are sequentially consistent: either the caller sees
    /// the sleeper here, or the sleeper sees the move (Dekker's pattern).
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
