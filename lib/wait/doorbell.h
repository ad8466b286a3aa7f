// The descriptor that wakes the sleeping threads of a process.
#pragma once

#include "base/fd.h"
#include "wait/event_fd.h"

namespace tutti {

/// An eventfd that threads sleep on, of this process or of a peer that has passed it.
class Doorbell {
public:
    Doorbell() = default;
    explicit Doorbell(UniqueFd fd) : fd_(std::move(fd)) {}
    void ring() const { ring_event_fd(fd_.get()); }
    /// Before the work is looked at: a ring that comes later is for what comes later.
    void drain() const { drain_event_fd(fd_.get()); }
    int fd() const { return fd_.get(); }

private:
    UniqueFd fd_;
};

}  // namespace tutti
