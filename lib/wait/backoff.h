// What a waiting thread does next: spin, yield, or sleep. Bounded spinning, and hardly any with
// more ranks than cores, where the peer that is waited for needs the core.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/clock.h"

namespace tutti {

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
