// Extensions of the time-out that end with the first call after them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti_torch {

class Operation;

/// An extension applies to every call that begins before the first of these calls is over. Several
/// extensions add up, and each ends with its own first call. Any thread.
class EphemeralTimeouts {
public:
    using Milliseconds = std::chrono::milliseconds;

    void add(Milliseconds extension);
    /// The extension of this new call's time-out. The caller has no lock: an earlier call that turns
    /// out to be over may call the program.
    Milliseconds begin(const std::shared_ptr<Operation>& call);

private:
    struct Extension {
        bool is_over() const;

        Milliseconds extension;
        std::weak_ptr<Operation> first;
        bool has_first = false;
    };
    void poll_first_calls();

    std::mutex mutex_;
    std::vector<Extension> extensions_;
    std::atomic<bool> any_{false};
};

}  // namespace tutti_torch
