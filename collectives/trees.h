// Trees that several algorithms share: parents and children by arithmetic, without tables.
#pragma once

#include <algorithm>

#include "schedule/schedule.h"

namespace tutti {

/// Reduce over a tree of the ranks themselves, rank 0 at its top, whatever the root: only so do
/// contributions meet in rank order. `radix` - 1 children at each power of the radix.
Schedule knomial_tree_reduce(const ScheduleRequest& request, Rank radix);

/// A rank and those below it in a binomial tree from the root: `size` ranks in a row, from the rank
/// itself on, wrapping around after the last.
struct Subtree {
    Rank parent = nobody;
    Rank size = 1;
};

inline Subtree binomial_subtree(Rank ranks, Rank rank, Rank root) {
    const Rank relative = (rank - root + ranks) % ranks;
    if (relative == 0) return {nobody, ranks};
    const Rank lowest = relative & -relative;
    return {(rank - lowest + ranks) % ranks, std::min(lowest, ranks - relative)};
}

}  // namespace tutti
