// The descriptor that wakes a thread that sleeps beside a port: the completion queue's own, or, if
// that is not enough, one made of it and a timer.
#pragma once

#include "base/fd.h"
#include "transports/ofi/objects.h"

namespace tutti::ofi {

/// After arm(), the descriptor becomes readable when a completion arrives, or shortly after; after
/// drain() it is unreadable again. Once the endpoint is closed it stays unreadable.
class WakeDescriptor {
public:
    explicit WakeDescriptor(const Objects& objects) : objects_(objects) {}
    Result<> open();

    int fd() const { return edges_ ? edges_.get() : timer_ ? timer_.get() : objects_.wake_fd; }
    /// False: a completion is there.
    bool arm();
    void drain();
    /// Call when the endpoint is closed.
    void silence() const;

private:
    Result<> watch_edges();

    const Objects& objects_;
    UniqueFd timer_;  // wakes the sleeping thread if the provider cannot, or may miss it
    UniqueFd edges_;  // an epoll of a descriptor that stays readable, and the timer
};

}  // namespace tutti::ofi
