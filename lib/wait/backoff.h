// Back-off: a waiting thread spins, then yields, then sleeps.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.h"

namespace tutti {

/// A turn of a loop that waits for another thread's few instructions. The turns count from 0: now
/// and then the core is given to others, and always once that thread has taken long.
inline void spin_turn(int turn) {
    constexpr int spins_between_yields = 64, most_spins = 1000;
    const bool yields =
        turn >= most_spins || turn % spins_between_yields == spins_between_yields - 1;
    yields ? static_cast<void>(sched_yield()) : cpu_relax();
}

/// Counts a thread's turns without progress. The thread spins hardly at all with more ranks than
/// cores, where the peer that it waits for needs the core.
class Backoff {
public:
    enum class Turn : uint8_t {
        spin,   // try again
        look,   // try again, after a look at what is only looked at now and then
        sleep,  // announce it, try once more, sleep
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

    /// After a sleep: whoever woke us has probably more; yield a little before sleeping again.
    void woke() { idle_ = spins_ + yields_ - yields_ / 4; }
    void reset() { idle_ = 0; }

private:
    uint32_t spins_ = 0, yields_ = 0, idle_ = 0;
};

}  // namespace tutti
