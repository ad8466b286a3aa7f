// Which ranks of this process have collectives under way on which device stream. Ranks of one
// communicator may share a device, but no stream: the end of the one's operation, which waits for
// the other's, would come before that.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/result.h"

namespace tutti {

struct StreamUser {
    int32_t device = 0;
    const void* stream = nullptr;
    uint64_t job = 0;  // of all ranks, and the communicator's number in it
    uint32_t communicator = 0;
    Rank rank = 0;
};

/// As long as an operation is under way. Any thread.
class DeviceStreamGuard {
public:
    DeviceStreamGuard() = default;
    /// invalid while another rank of the communicator uses it.
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
