// The proofs without hosts and those with hosts take the same roots and the same bound.
#pragma once

#include <set>
#include <vector>

#include "collectives/catalog.h"

namespace tutti::test {

// The docstrings promise this bound; the transports have at least four.
inline constexpr uint32_t most_credits = 2;

inline std::set<Rank> roots_of(const Algorithm& a, Rank ranks) {
    if (!traits_of(a.collective).rooted) return {0};
    return {0, ranks / 2, ranks - 1};
}

/// All rank counts from least to most.
inline std::vector<Rank> counts_between(Rank least, Rank most) {
    std::vector<Rank> counts;
    for (Rank ranks = least; ranks <= most; ++ranks) counts.push_back(ranks);
    return counts;
}

}  // namespace tutti::test
