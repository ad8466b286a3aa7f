// The port's doorbell, and whether it is armed for sleeping threads.
#pragma once

#include "fabric/engine_port.h"

namespace tutti::fabric {

/// While a thread sleeps, the owner arms the doorbell again whenever data has moved. Only the
/// engine's owner uses this, except fd().
class ArmedDoorbell {
public:
    explicit ArmedDoorbell(EnginePort& port) : port_(port) {}

    /// The descriptor that a sleeping thread's reactor polls; -1: none.
    int fd() const {
        PortDoorbell* const bell = port_.port().doorbell();
        return bell ? bell->wake_fd() : -1;
    }
    void count_sleepers(int change) { sleepers_ += change; }
    void moved() { armed_ = false; }
    /// Call when the descriptor is readable.
    void drain() {
        armed_ = false;
        if (PortDoorbell* const bell = port_.port().doorbell()) bell->drain();
    }
    bool must_arm() const { return sleepers_ > 0 && !armed_; }
    /// False: the caller must make progress first. A thread that sleeps beside a port without a
    /// doorbell polls it periodically.
    bool arm() {
        PortDoorbell* const bell = port_.port().doorbell();
        armed_ = !bell || bell->arm();
        return armed_;
    }

private:
    EnginePort& port_;
    int sleepers_ = 1;  // starts at 1: a rank waits for its first peer as if one thread slept
    bool armed_ = false;
};

}  // namespace tutti::fabric
