// Handover: whether a new non-blocking operation wakes the service thread, or whether that thread
// polls for operations once a tick, because the program waits for (and so drives) its own.
#pragma once

#include <atomic>

namespace tutti {

/// A guess that saves wake-ups. If a waiting thread drives the operation anyway, waking the service
/// thread too costs both threads more time than a small operation takes. The program *claims* an
/// operation if it waits for it before the service thread has found it. After enough_claims claims
/// in a row, issued() wakes the service thread no more, and it polls every tick_ms instead. Once it
/// finds an operation for which no thread waits, issued() wakes it again. Only that operation
/// is late, by up to a tick. Any thread may call any function.
///
/// No operation is overlooked: the issuing thread publishes the operation before issued() reads
/// claims_, and the service thread looks for operations after needed() has written claims_. These
/// accesses are sequentially consistent.
class Handover {
public:
    static constexpr int tick_ms = 1;
    static constexpr int enough_claims = 16;
    static constexpr int most_idle_ticks = 20;

    /// The issuing thread has queued an operation. True: it must wake the service thread now.
    bool issued() {
        unclaimed_.store(true, std::memory_order_relaxed);
        return !lazy();
    }

    /// A thread of the program begins to wait. True, once: it must wake the service thread, which
    /// polls from now on.
    bool claimed() {
        if (!unclaimed_.load(std::memory_order_relaxed)) return false;
        unclaimed_.store(false, std::memory_order_relaxed);
        idle_ticks_.store(0, std::memory_order_relaxed);
        return !lazy() && claims_.fetch_add(1) + 1 == enough_claims;
    }

    /// The service thread has found an operation for which no thread waits: it ends its polling.
    void needed() { claims_.store(0); }

    /// The time that the service thread may sleep if it has nothing to do: otherwise_ms, or a tick
    /// while it polls. After most_idle_ticks ticks without a claim it ends its polling. Then the
    /// result is 0: it must look once more, because issued() may just have decided not to wake it.
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
