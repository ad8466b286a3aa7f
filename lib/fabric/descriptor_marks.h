// Sets close-on-exec on descriptors that a message library opens without it.
#pragma once

#include <atomic>
#include <optional>

#include "os/library_fds.h"

namespace tutti::fabric {

/// Libraries connect and reconnect in the background. So the service thread looks for new
/// descriptors in each tick for a second after a new peer, then rarely.
class DescriptorMarks {
public:
    /// Call before the library opens its port.
    void begin() { fds_.emplace(); }
    void port_opened() { fds_->take_new(); }
    /// From any thread.
    void peer_connected() { due_.store(marks_a_peer, std::memory_order_relaxed); }
    /// Called ten times a second, only by the service thread.
    void tick() {
        int due = due_.load(std::memory_order_relaxed);
        if (due > 0) due_.compare_exchange_strong(due, due - 1, std::memory_order_relaxed);
        if (due > 0 || ++ticks_ % ticks_a_mark == 0) fds_->mark();
    }

private:
    static constexpr int marks_a_peer = 10, ticks_a_mark = 100;

    std::optional<LibraryFds> fds_;  // empty until begin()
    std::atomic<int> due_{0};        // ticks left in which to look for new descriptors
    int ticks_ = 0;
};

}  // namespace tutti::fabric
