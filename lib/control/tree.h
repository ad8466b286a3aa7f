// The shape of the control tree. Start-up and failure messages travel along it.
#pragma once

#include <vector>

#include "base/types.h"

namespace tutti {

inline constexpr Rank tree_arity = 8;

/// The rank above, or nobody for the root, which is rank 0. Tests of small jobs give a small arity,
/// so that the tree has depth.
constexpr Rank tree_parent(Rank rank, Rank arity = tree_arity) {
    return rank == 0 ? nobody : (rank - 1) / arity;
}

inline std::vector<Rank> tree_children(Rank rank, Rank size, Rank arity = tree_arity) {
    std::vector<Rank> children;
    for (int64_t child = int64_t{rank} * arity + 1;
         child <= int64_t{rank} * arity + arity && child < size; ++child)
        children.push_back(static_cast<Rank>(child));
    return children;
}

/// All ranks, each one before its children and after its earlier siblings' subtrees. The root of a
/// LiveTree is the first of them that remains.
std::vector<Rank> tree_preorder(Rank size, Rank arity = tree_arity);

/// The neighbour of `from` on the way to another rank: down into the child's subtree that has it,
/// else up.
constexpr Rank tree_next_hop(Rank from, Rank to) {
    for (Rank at = to; at != nobody; at = tree_parent(at))
        if (tree_parent(at) == from) return at;
    return tree_parent(from);
}

}  // namespace tutti
