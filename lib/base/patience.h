// How long a failed operation waits, all in all, for memory that cannot be called back.
#pragma once

#include <optional>
#include <utility>

#include "base/clock.h"

namespace tutti {

/// While it lives, what this thread cancels is waited for together: one wait's time, from the first
/// on, however many peers keep something. An inner one has its own, as it is of another operation.
class OnePatience {
public:
    OnePatience() : outer_(std::exchange(current(), this)) {}
    ~OnePatience() { current() = outer_; }
    OnePatience(const OnePatience&) = delete;

    /// For a wait that begins now.
    static Deadline deadline(int64_t ms) {
        const auto own = Deadline::after_ms(ms);
        if (!current()) return own;
        auto& shared = current()->deadline_;
        if (!shared) shared = own;
        return *shared;
    }

private:
    static OnePatience*& current() {
        static thread_local OnePatience* current = nullptr;
        return current;
    }
    OnePatience* const outer_;
    std::optional<Deadline> deadline_;
};

}  // namespace tutti
