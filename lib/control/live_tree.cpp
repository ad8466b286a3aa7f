#include "control/live_tree.h"

#include <algorithm>

namespace tutti {
namespace {

void append_preorder(Rank place, Rank size, Rank arity, std::vector<Rank>& ranks) {
    ranks.push_back(place);
    for (const Rank child : tree_children(place, size, arity))
        append_preorder(child, size, arity, ranks);
}

}  // namespace

std::vector<Rank> tree_preorder(Rank size, Rank arity) {
    std::vector<Rank> ranks;
    append_preorder(0, size, arity, ranks);
    return ranks;
}

LiveTree::LiveTree(Rank rank, Rank size, Rank arity)
    : rank_(rank), size_(size), arity_(arity), gone_(static_cast<std::size_t>(size)) {
    find_neighbours();
}

/// The rank itself or, once it has left, the first remaining rank of its subtree; nobody if none
/// remains.
Rank LiveTree::occupant(Rank place) const {
    if (!has_left(place)) return place;
    for (const Rank child : tree_children(place, size_, arity_))
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
    for (Rank place = rank_; place != nobody && parent_ == nobody;
         place = tree_parent(place, arity_)) {
        place_ = place;
        for (const Rank child : tree_children(place, size_, arity_))
            if (const Rank below = occupant(child); below != nobody && below != rank_)
                children_.push_back(below);
        const Rank above = tree_parent(place, arity_);
        if (above != nobody && occupant(above) != rank_) parent_ = occupant(above);
    }
}

std::vector<Rank> LiveTree::subtree() const {
    std::vector<Rank> ranks;
    append_preorder(place_, size_, arity_, ranks);
    ranks.erase(std::remove_if(ranks.begin(), ranks.end(), [&](Rank r) { return has_left(r); }),
                ranks.end());
    return ranks;
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
