// Records the ranks of this process with a collective running on a device stream. Ranks of one
// communicator may share a device, but not a stream: one rank's operation would be queued behind
// another's that waits for it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/result.h"

namespace tutti {

struct StreamUser {
    int32_t device = 0;
    const void* stream = nullptr;
    uint64_t job = 0;  // of all ranks; communicator: its number in the job
    uint32_t communicator = 0;
    Rank rank = 0;
};

/// Held while an operation runs. Any thread.
class DeviceStreamGuard {
public:
    DeviceStreamGuard() = default;
    /// invalid while another rank of the communicator uses the stream.
    static Result<DeviceStreamGuard> begin(const StreamUser& user);
    DeviceStreamGuard(DeviceStreamGuard&& other) noexcept
        : user_(std::exchange(other.user_, std::nullopt)) {}
    DeviceStreamGuard& operator=(DeviceStreamGuard&& other) noexcept {
        end();
        user_ = std::exchange(other.user_, std::nullopt);
        return *this;
    }
    ~DeviceStreamGuard() { end(); }
    void end();

private:
    explicit DeviceStreamGuard(const StreamUser& user) : user_(user) {}
    std::optional<StreamUser> user_;
};

}  // namespace tutti
