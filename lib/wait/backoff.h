// Back-off: a waiting thread spins, then yields, then sleeps.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.h"

namespace tutti {

/// One turn of a loop that waits until another thread has executed a few instructions. `turn`
/// counts from 0. Every 64th turn yields the core; from turn most_spins on, every turn does.
inline void spin_turn(int turn) {
    constexpr int spins_between_yields = 64, most_spins = 1000;
    const bool yields =
        turn >= most_spins || turn % spins_between_yields == spins_between_yields - 1;
    yields ? static_cast<void>(sched_yield()) : cpu_relax();
}

/// Counts a thread's turns without progress. With more ranks than cores the thread spins for a few
/// turns only, because the peer that it waits for needs the core.
class Backoff {
public:
    enum class Turn : uint8_t {
        spin,   // try again
        look,   // try again, after a check of the clocks and the control plane
        sleep,  // announce the sleep, try once more, then sleep
    };

    explicit Backoff(bool oversubscribed = false) { set_oversubscribed(oversubscribed); }

    void set_oversubscribed(bool oversubscribed) {
        spins_ = oversubscribed ? 16 : 4000;
        yields_ = oversubscribed ? 400 : 200;
    }

    Turn next(bool moved) {
        if (moved) {
            idle_ = 0;
            return Turn::spin;
        }
        ++idle_;
        if (idle_ <= spins_) {
            cpu_relax();
            return idle_ % 64 == 0 ? Turn::look : Turn::spin;
        }
        if (idle_ > spins_ + yields_) return Turn::sleep;
        sched_yield();
        return idle_ % 16 == 0 ? Turn::look : Turn::spin;
    }

    /// After a sleep: the thread that rang will probably move more, so yield a few times before the
    /// next sleep.
    void woke() { idle_ = spins_ + yields_ - yields_ / 4; }
    void reset() { idle_ = 0; }

private:
    uint32_t spins_ = 0, yields_ = 0, idle_ = 0;
};

}  // namespace tutti
