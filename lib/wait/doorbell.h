// The descriptor that wakes the sleeping threads of a process.
#pragma once

#include "base/fd.h"
#include "wait/event_fd.h"

namespace tutti {

/// An eventfd on which threads of this process sleep, or threads of a peer that has passed it here.
class Doorbell {
public:
    Doorbell() = default;
    explicit Doorbell(UniqueFd fd) : fd_(std::move(fd)) {}
    void ring() const { ring_event_fd(fd_.get()); }
    /// Drain first, then check for work: a ring after drain() stays readable and announces later
    /// work.
    void drain() const { drain_event_fd(fd_.get()); }
    int fd() const { return fd_.get(); }

private:
    UniqueFd fd_;
};

}  // namespace tutti
