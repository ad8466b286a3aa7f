// The part of each of a rank's buffers that a call uses.
#pragma once

#include "plan/call.h"

namespace tutti {

/// The used part of one of the rank's buffers, in elements.
struct BufferRange {
    bool used = true;        // the rank has this buffer at all
    bool row = false;        // a block for every rank, else one block or message
    std::size_t length = 0;  // from its start to the end of its last element
    std::size_t own = 0;     // where the rank's own block starts
};

/// `space`: the input or the output.
BufferRange range_of(const Call& call, Rank rank, Rank ranks, Space space);

}  // namespace tutti
