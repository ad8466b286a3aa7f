// Trees that several algorithms share: parents and children by arithmetic, without tables.
#pragma once

#include <algorithm>
#include <bit>

#include "schedule/schedule.h"

namespace tutti {

/// Reduce over a tree of the ranks with rank 0 at its top, whatever the root: this is needed to
/// combine contributions in rank order. `radix` - 1 children at each power of the radix.
Schedule knomial_tree_reduce(const ScheduleRequest& request, Rank radix);

/// A rank and the ranks below it in a binomial tree from the root: `size` consecutive ranks, from
/// the rank itself on, wrapping around after the last.
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

/// A rank's place in one of two binary trees. The root has one child in each tree, and each other
/// rank is a leaf of at least one of them.
struct TwoTreeNode {
    Rank parent = nobody;
    Rank children[2] = {nobody, nobody};
    bool leaf[2] = {};  // whether that child is a leaf
};

/// The ranks after the root stand at positions 1 … m of a binary tree in symmetric order: odd ones
/// are leaves. The second tree is the first one mirrored (m even) or moved on by one (m odd), so
/// that ranks at odd positions of one stand at even positions of the other.
/// Source: Sanders, Speck & Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
/// scan", Parallel Computing 35(12), 2009.
inline TwoTreeNode two_tree_node(Rank ranks, Rank rank, Rank root, bool second) {
    const Rank m = ranks - 1, relative = (rank - root + ranks) % ranks;
    const auto rank_at = [&](Rank p) {
        return (root + (!second ? p : m % 2 == 0 ? m + 1 - p : p % m + 1)) % ranks;
    };
    TwoTreeNode node;
    const auto adopt = [&](int which, Rank p) {
        node.children[which] = rank_at(p);
        node.leaf[which] = p % 2 == 1;
    };
    if (ranks == 1) return node;
    if (relative == 0) {
        adopt(0, static_cast<Rank>(std::bit_floor(static_cast<uint32_t>(m))));
        return node;
    }
    const Rank p = !second ? relative : m % 2 == 0 ? m + 1 - relative : (relative + m - 2) % m + 1;
    const Rank lowest = p & -p;
    // Towards the middle of the next larger subtree; if the tree does not reach it, past it.
    const Rank up = ((p - lowest) | 2 * lowest) <= m ? (p - lowest) | 2 * lowest : p - lowest;
    node.parent = up == 0 ? root : rank_at(up);
    if (lowest == 1) return node;
    adopt(0, p - lowest / 2);
    if (p < m) {
        const auto rest = static_cast<uint32_t>(std::min(lowest - 1, m - p));
        adopt(1, p + static_cast<Rank>(std::bit_floor(rest)));
    }
    return node;
}

/// The steps of one chunk up such a tree, into the root's output; sums wait in scratch slot
/// `chunk`.
Lane double_tree_up(const TwoTreeNode& node, uint32_t chunk);

/// The steps of one chunk down such a tree, from the root's `from` to every rank's `out`.
Lane double_tree_down(const TwoTreeNode& node, const Region& from, const Region& out, Form form);

}  // namespace tutti
