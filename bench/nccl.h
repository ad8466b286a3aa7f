// Calls NCCL directly for the same collectives (--peer nccl): on the same device, in the same
// memory, on the same stream.
#pragma once

#include <memory>
#include <vector>

#include "collectives.h"
#include "operation.h"
#include "tutti/tutti.hpp"

namespace bench {

class Nccl {
public:
    /// Collective. The device's context must be current. Throws std::runtime_error with the reason.
    explicit Nccl(tutti::Communicator& comm);
    ~Nccl();
    Nccl(const Nccl&) = delete;

    /// Returns nullptr if NCCL has no such collective, type or operator.
    std::unique_ptr<Operation> make(const Call& call, const std::vector<Buffers>& buffers);

private:
    struct Library;
    const std::unique_ptr<Library> library_;
};

}  // namespace bench
