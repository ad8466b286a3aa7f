// The port's doorbell, and the threads that sleep until it rings.
#pragma once

#include "fabric/engine_port.h"

namespace tutti {
class Reactor;
}

namespace tutti::fabric {

/// While a thread sleeps, the doorbell is armed again after everything that moved, and the reactor
/// watches it. Once no thread sleeps it is watched for some polls more, because a thread that has
/// slept may soon sleep again. All of the engine's owner.
class PortWatch {
public:
    PortWatch(EnginePort& port, Reactor* reactor, const SleeperWaker& waker)
        : port_(port), reactor_(reactor), waker_(waker) {}

    /// The descriptor to poll; -1: there is none.
    int fd() const {
        PortDoorbell* const bell = port_.port().doorbell();
        return bell ? bell->wake_fd() : -1;
    }
    void count_sleepers(int change) {
        sleepers_ += change;
        stay_watched();
    }
    /// A thread may soon sleep.
    void stay_watched();
    void poll_begins(uint64_t number) {
        if (number == ignored_from_) watch(false);
    }
    void moved() { armed_ = false; }
    /// The descriptor was readable.
    void drain();
    bool must_arm() const { return sleepers_ > 0 && !armed_; }
    /// False: there is something to do first.
    bool arm();

private:
    void watch(bool on);

    EnginePort& port_;
    Reactor* const reactor_;
    const SleeperWaker& waker_;
    int sleepers_ = 1;  // a rank that waits to be found counts, too, until it has its first peer
    bool armed_ = false;
    bool watched_ = true;        // by a sleeper's reactor
    uint64_t ignored_from_ = 0;  // the poll with which that ends; 0: none
};

}  // namespace tutti::fabric
