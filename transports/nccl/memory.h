// Device memory that NCCL knows in advance: registered with every ring's communicator, as a window
// of all ranks or as what this rank alone has.
#pragma once

#include <map>
#include <mutex>

#include "transports/nccl/membership.h"

namespace tutti::nccl {

class KnownMemory {
public:
    explicit KnownMemory(std::shared_ptr<Membership> membership)
        : membership_(std::move(membership)) {}

    /// window: collective. Nothing with an NCCL that has no such function.
    Result<> add(std::byte* memory, std::size_t bytes, bool window);
    void remove(std::byte* memory);
    /// Before the communicators are left in order; those that are aborted take it with them.
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
