// A payload that UCX asks for, and hands over, piece by piece: UCX's generic datatype. UCX copies
// such a payload anyway where it goes through shared memory, and holds no pointer to it: until the
// payload is whole it may be moved, or dropped.
#pragma once

#include "transports/ucx/library.h"

namespace tutti::ucx {

struct Payload {
    std::byte* memory = nullptr;  // nullptr: nobody wants it any more
    std::size_t bytes = 0;
};

/// For messages of one Payload, whose address UCX gets as the buffer.
Result<ucp_datatype_t> payload_type(const Library& ucx);

}  // namespace tutti::ucx
