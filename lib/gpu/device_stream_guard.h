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
class StreamUse {
public:
    StreamUse() = default;
    /// invalid while another rank of the communicator uses it.
    static Result<StreamUse> begin(const StreamUser& user);
    StreamUse(StreamUse&& other) noexcept : user_(std::exchange(other.user_, std::nullopt)) {}
    StreamUse& operator=(StreamUse&& other) noexcept {
        end();
        user_ = std::exchange(other.user_, std::nullopt);
        return *this;
    }
    ~StreamUse() { end(); }
    void end();

private:
    explicit StreamUse(const StreamUser& user) : user_(user) {}
    std::optional<StreamUser> user_;
};

}  // namespace tutti
