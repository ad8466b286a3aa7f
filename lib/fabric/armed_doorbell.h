// The port's doorbell, and whether it rings for the threads that sleep.
#pragma once

#include "fabric/engine_port.h"

namespace tutti::fabric {

/// While a thread sleeps, the doorbell is armed again after everything that moved. All of the
/// engine's owner, but fd().
class ArmedDoorbell {
public:
    explicit ArmedDoorbell(EnginePort& port) : port_(port) {}

    /// The descriptor that a sleeper's reactor polls; -1: there is none.
    int fd() const {
        PortDoorbell* const bell = port_.port().doorbell();
        return bell ? bell->wake_fd() : -1;
    }
    void count_sleepers(int change) { sleepers_ += change; }
    void moved() { armed_ = false; }
    /// The descriptor was readable.
    void drain() {
        armed_ = false;
        if (PortDoorbell* const bell = port_.port().doorbell()) bell->drain();
    }
    bool must_arm() const { return sleepers_ > 0 && !armed_; }
    /// False: there is something to do first. A thread that sleeps beside a port without a doorbell
    /// looks now and then.
    bool arm() {
        PortDoorbell* const bell = port_.port().doorbell();
        armed_ = !bell || bell->arm();
        return armed_;
    }

private:
    EnginePort& port_;
    int sleepers_ = 1;  // a rank that waits to be found counts, too, until it has its first peer
    bool armed_ = false;
};

}  // namespace tutti::fabric
