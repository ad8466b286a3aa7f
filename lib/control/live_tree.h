// A communicator's tree while ranks leave it: the first remaining rank below a rank that has left
// takes its place.
#pragma once

#include <vector>

#include "base/types.h"
#include "control/tree.h"

namespace tutti {

/// One rank's view. It depends only on the set of ranks that have left, so ranks that know the same
/// set agree.
class LiveTree {
public:
    LiveTree(Rank rank, Rank size, Rank arity = tree_arity);

    bool has_left(Rank rank) const { return gone_[static_cast<std::size_t>(rank)]; }
    /// nobody: this rank is the root.
    Rank parent() const { return parent_; }
    const std::vector<Rank>& children() const { return children_; }
    /// The remaining ranks whose way to the root passes this rank, and this rank.
    std::vector<Rank> subtree() const;

    /// Notes that a rank has left; returns the ranks that are this rank's neighbours from now on in
    /// its place. Called once per rank, and not for this rank itself.
    std::vector<Rank> remove(Rank rank);

private:
    Rank occupant(Rank place) const;
    bool is_neighbour(Rank rank) const;
    void find_neighbours();

    const Rank rank_, size_, arity_;
    std::vector<bool> gone_;
    Rank parent_ = nobody;
    Rank place_ = nobody;  // the highest place that this rank has
    std::vector<Rank> children_;
};

}  // namespace tutti
