// The pace of a thread that polls because no doorbell or condition variable announces the event.
#pragma once

#include <sched.h>
#include <unistd.h>

#include "base/clock.h"

namespace tutti {

/// Paces a loop that looks, pauses and looks again: `while (!done() && pace.pause()) {}`. A thread
/// that waits for an operation uses Backoff instead.
class Pace {
public:
    struct Pauses {
        int yields = 0;           // number of yields before the first sleep
        useconds_t sleep_us = 0;  // then the length of each sleep; 0: only yields
    };
    explicit Pace(Deadline deadline) : Pace(deadline, Pauses{}) {}
    Pace(Deadline deadline, Pauses pauses) : deadline_(deadline), pauses_(pauses) {}

    /// Returns false at once if the deadline has passed.
    bool pause() {
        if (deadline_.passed()) return false;
        if (pauses_.yields == 0 && pauses_.sleep_us > 0) {
            ::usleep(pauses_.sleep_us);
            return true;
        }
        if (pauses_.yields > 0) --pauses_.yields;
        sched_yield();
        return true;
    }

private:
    const Deadline deadline_;
    Pauses pauses_;
};

}  // namespace tutti
