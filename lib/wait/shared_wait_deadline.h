// The total time that a failed operation waits for peers to let go of its memory.
#pragma once

#include <optional>
#include <utility>

#include "base/clock.h"

namespace tutti {

/// While this object lives, all cancels of this thread share one deadline, which the first wait
/// sets, however many peers still hold memory. A nested object belongs to another operation and has
/// its own deadline.
class SharedWaitDeadline {
public:
    SharedWaitDeadline() : outer_(std::exchange(current(), this)) {}
    ~SharedWaitDeadline() { current() = outer_; }
    SharedWaitDeadline(const SharedWaitDeadline&) = delete;

    /// For a wait that begins now.
    static Deadline deadline(int64_t ms) {
        const auto own = Deadline::after_ms(ms);
        if (!current()) return own;
        auto& shared = current()->deadline_;
        if (!shared) shared = own;
        return *shared;
    }

private:
    static SharedWaitDeadline*& current() {
        static thread_local SharedWaitDeadline* current = nullptr;
        return current;
    }
    SharedWaitDeadline* const outer_;
    std::optional<Deadline> deadline_;
};

}  // namespace tutti
