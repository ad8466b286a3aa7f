// A communicator's tree while ranks leave it: whoever has left is replaced by the first rank below
// it that is there.
#pragma once

#include <vector>

#include "base/types.h"

namespace tutti {

/// One rank's view. It needs no more than who has left, so that ranks that know the same agree.
class LiveTree {
public:
    LiveTree(Rank rank, Rank size);

    bool has_left(Rank rank) const { return gone_[static_cast<std::size_t>(rank)]; }
    /// nobody: this rank is the root.
    Rank parent() const { return parent_; }
    const std::vector<Rank>& children() const { return children_; }

    /// The ranks that are neighbours from now on, in the other's place: those above and below it
    /// know each other then. Not twice for one rank, and not for this one.
    std::vector<Rank> remove(Rank rank);

private:
    Rank occupant(Rank place) const;
    bool is_neighbour(Rank rank) const;
    void find_neighbours();

    const Rank rank_, size_;
    std::vector<bool> gone_;
    Rank parent_ = nobody;
    std::vector<Rank> children_;
};

}  // namespace tutti
