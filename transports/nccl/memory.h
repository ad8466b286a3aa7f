// Device memory registered in advance with every ring's communicator, as a window of all ranks or
// for this rank alone.
#pragma once

#include <map>
#include <mutex>

#include "transports/nccl/membership.h"

namespace tutti::nccl {

class KnownMemory {
public:
    explicit KnownMemory(std::shared_ptr<Membership> membership)
        : membership_(std::move(membership)) {}

    /// window: collective. Does nothing if this NCCL lacks the function.
    Result<> add(std::byte* memory, std::size_t bytes, bool window);
    void remove(std::byte* memory);
    /// Call before the communicators are finalised in order. Aborted communicators deregister the
    /// memory themselves.
    void clear();

private:
    struct RegisteredWindows {
        bool window = false;
        std::vector<void*> handles;  // by ring
    };
    void forget(const RegisteredWindows& known);

    const std::shared_ptr<Membership> membership_;
    std::mutex mutex_;
    std::map<std::byte*, RegisteredWindows> known_;
};

}  // namespace tutti::nccl
