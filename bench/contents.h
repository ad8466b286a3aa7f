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

/// Consecutive elements of one source, from its first-th on.
struct Stretch {
    Source source = Source::poison;
    int ranks = 0;
    std::size_t first = 0;
    std::size_t count = 0;
};
using Contents = std::vector<Stretch>;

/// In place there is one buffer, which holds the larger side.
struct Layout {
    Contents in;      // before and after; in place: empty
    Contents before;  // of the output's memory
    Contents after;
};
Layout layout_of(const Call& call, Seat seat, bool in_place);

/// The call's arguments; in == out: in place.
Buffers place(const Call& call, Seat seat, std::byte* in, std::byte* out);

}  // namespace bench
