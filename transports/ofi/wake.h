// The descriptor that wakes a thread which sleeps beside a port: the completion queue's own, or,
// where that alone does not do, one made of it and a timer.
#pragma once

#include "base/fd.h"
#include "transports/ofi/objects.h"

namespace tutti::ofi {

/// After arm(), the descriptor becomes readable when a completion has come, or shortly after; it is
/// quiet again after drain(). Once the endpoint is closed it stays quiet.
class WakeDescriptor {
public:
    explicit WakeDescriptor(const Objects& objects) : objects_(objects) {}
    Result<> open();

    int fd() const { return edges_ ? edges_.get() : timer_ ? timer_.get() : objects_.wake_fd; }
    /// False: a completion is there.
    bool arm();
    void drain();
    /// The endpoint is closed.
    void silence() const;

private:
    Result<> watch_edges();

    const Objects& objects_;
    UniqueFd timer_;  // wakes the sleeper if the provider cannot, or may not
    UniqueFd edges_;  // of a descriptor that stays readable, and the timer
};

}  // namespace tutti::ofi
