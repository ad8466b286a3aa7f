// How long a failed operation waits, all in all, for memory that cannot be called back.
#pragma once

#include <optional>
#include <utility>

#include "base/clock.h"

namespace tutti {

/// While it lives, what this thread cancels is waited for together: one wait's time, from the first
/// on, however many peers keep something. An inner one has its own, as it is of another operation.
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
