// A payload that UCX reads and writes piece by piece through callbacks: UCX's generic datatype. UCX
// copies payloads through shared memory anyway, and holds no pointer to this one: until the payload
// is whole, the port may move or drop it.
#pragma once

#include "transports/ucx/library.h"

namespace tutti::ucx {

struct Payload {
    std::byte* memory = nullptr;  // nullptr: dropped
    std::size_t bytes = 0;
};

/// For messages of one Payload, whose address is UCX's buffer argument.
Result<ucp_datatype_t> payload_type(const Library& ucx);

}  // namespace tutti::ucx
