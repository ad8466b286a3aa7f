// The contents of a rank's memory before a call and after it, in place or not.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives.h"

namespace bench {

enum class Source {
    poison,   // memory that no rank has written
    input,    // of rank `ranks`
    combined  // the inputs of the first `ranks` ranks
};

/// Consecutive elements of one source, beginning with its element number `first`.
struct ContentRange {
    Source source = Source::poison;
    int ranks = 0;
    std::size_t first = 0;
    std::size_t count = 0;
};
using Contents = std::vector<ContentRange>;

/// A call in place has one buffer, which has the size of the larger side.
struct Layout {
    Contents in;      // before and after; in place: empty
    Contents before;  // of the output's memory
    Contents after;
};
Layout layout_of(const Call& call, Seat seat, bool in_place);

/// Returns the buffers to pass to the call. The call is in place if in == out.
Buffers place(const Call& call, Seat seat, std::byte* in, std::byte* out);

}  // namespace bench
