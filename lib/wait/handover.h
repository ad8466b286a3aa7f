// When the service thread is told of non-blocking operations: at once, or, where the program comes
// to wait for each of them anyway, only if it does not come.
#pragma once

#include <atomic>

namespace tutti {

/// Waking a thread that then finds the caller at work costs both more than a small operation does.
/// So after a run of operations whose caller waited before the thread had moved anything, it is not
/// told any more: it looks by itself, every tick, until it finds one that nobody waits for. That
/// one is a tick late, no other is. Any thread may call anything.
///
/// Nothing is overlooked: who issues makes the operation visible before issued() reads claims_, and
/// the thread looks for operations after needed() has written it, all sequentially consistent.
class Handover {
public:
    static constexpr int tick_ms = 1;
    static constexpr int enough_claims = 16;
    static constexpr int most_idle_ticks = 20;

    /// An operation was issued and is not done: whether the thread must be told now.
    bool issued() {
        unclaimed_.store(true, std::memory_order_relaxed);
        return !lazy();
    }

    /// A caller waits. True: the thread must be told, for from now on it looks by itself.
    bool claimed() {
        if (!unclaimed_.load(std::memory_order_relaxed)) return false;
        unclaimed_.store(false, std::memory_order_relaxed);
        idle_ticks_.store(0, std::memory_order_relaxed);
        return !lazy() && claims_.fetch_add(1) + 1 == enough_claims;
    }

    /// The thread found an operation that nobody waits for.
    void needed() { claims_.store(0); }

    /// The time that a thread with nothing to do may sleep; 0: it has to look once more. It does not
    /// look for long after a program that has stopped issuing.
    int sleep_ms(int otherwise_ms) {
        if (!lazy()) return otherwise_ms;
        if (idle_ticks_.fetch_add(1, std::memory_order_relaxed) < most_idle_ticks) return tick_ms;
        needed();
        return 0;
    }

private:
    bool lazy() const { return claims_.load() >= enough_claims; }

    std::atomic<bool> unclaimed_{false};
    std::atomic<int> claims_{0}, idle_ticks_{0};
};

}  // namespace tutti
