// Descriptors that a message library opens without close-on-exec.
#pragma once

#include <atomic>
#include <optional>

#include "os/library_fds.h"

namespace tutti::fabric {

/// Libraries connect in their own time, and again when it suits them: their new descriptors are
/// looked for in each tick for a second after a peer is new, then rarely.
class DescriptorMarks {
public:
    /// The library is about to open its port.
    void begin() { fds_.emplace(); }
    void port_opened() { fds_->take_new(); }
    /// Any thread's.
    void peer_connected() { due_.store(marks_a_peer, std::memory_order_relaxed); }
    /// Ten times a second, by the service thread alone.
    void tick() {
        int due = due_.load(std::memory_order_relaxed);
        if (due > 0) due_.compare_exchange_strong(due, due - 1, std::memory_order_relaxed);
        if (due > 0 || ++ticks_ % ticks_a_mark == 0) fds_->mark();
    }

private:
    static constexpr int marks_a_peer = 10, ticks_a_mark = 100;

    std::optional<LibraryFds> fds_;  // once the port is open
    std::atomic<int> due_{0};        // marks of what the library may have opened lately
    int ticks_ = 0;
};

}  // namespace tutti::fabric
