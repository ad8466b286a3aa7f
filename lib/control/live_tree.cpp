#include "control/live_tree.h"

#include <algorithm>

#include "control/tree.h"

namespace tutti {

LiveTree::LiveTree(Rank rank, Rank size)
    : rank_(rank), size_(size), gone_(static_cast<std::size_t>(size)) {
    find_neighbours();
}

/// The rank itself or, once it has left, the first remaining rank of its subtree; nobody if none
/// remains.
Rank LiveTree::occupant(Rank place) const {
    if (!has_left(place)) return place;
    for (const Rank child : tree_children(place, size_))
        if (const Rank found = occupant(child); found != nobody) return found;
    return nobody;
}

bool LiveTree::is_neighbour(Rank rank) const {
    return rank == parent_ ||
           std::find(children_.begin(), children_.end(), rank) != children_.end();
}

// Walks from this rank's own place up through the places that it has taken over.
void LiveTree::find_neighbours() {
    parent_ = nobody;
    children_.clear();
    for (Rank place = rank_; place != nobody && parent_ == nobody; place = tree_parent(place)) {
        for (const Rank child : tree_children(place, size_))
            if (const Rank below = occupant(child); below != nobody && below != rank_)
                children_.push_back(below);
        const Rank above = tree_parent(place);
        if (above != nobody && occupant(above) != rank_) parent_ = occupant(above);
    }
}

std::vector<Rank> LiveTree::remove(Rank rank) {
    gone_[static_cast<std::size_t>(rank)] = true;
    if (!is_neighbour(rank)) return {};
    const LiveTree before = *this;
    find_neighbours();
    std::vector<Rank> added;
    if (parent_ != nobody && !before.is_neighbour(parent_)) added.push_back(parent_);
    for (const Rank child : children_)
        if (!before.is_neighbour(child)) added.push_back(child);
    return added;
}

}  // namespace tutti
