// A call bound once: what was asked for, what was chosen, and the operation that does it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/collective.h"
#include "reduce/reduce.h"
#include "transport/operation.h"

namespace tutti {

/// Everything about a call but its buffers.
struct Call {
    Collective collective = Collective::allreduce;
    std::size_t count = 0;
    Dtype dtype = Dtype::uint8;
    Op op = Op::sum;
    Rank root = 0;
    std::string_view algorithm;  // "": tutti's choice

    std::size_t bytes() const { return count * dtype_bytes(dtype); }
    bool operator==(const Call&) const = default;
};

struct Plan {
    Call call;
    std::string algorithm;  // what call.algorithm points to
    uint32_t stream = 0;
    Tag tag;  // all but the sequence
    std::unique_ptr<Operation> operation;
    std::atomic<bool> busy{false};  // a request runs it
};

}  // namespace tutti
