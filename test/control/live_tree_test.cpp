// The tree of those who have not left.
#include "control/live_tree.h"

#include <algorithm>
#include <random>

#include "support/catch.h"

using namespace tutti;

namespace {

bool contains(const std::vector<Rank>& ranks, Rank rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

/// The ranks that are there form one tree: their views of parents and children agree.
void expect_tree(const std::vector<LiveTree>& views, const std::vector<Rank>& there) {
    std::size_t roots = 0, edges = 0;
    for (const Rank rank : there) {
        const LiveTree& view = views[static_cast<std::size_t>(rank)];
        edges += view.children().size();
        if (view.parent() == nobody) ++roots;
        if (view.parent() != nobody) {
            REQUIRE(contains(there, view.parent()));
            REQUIRE(contains(views[static_cast<std::size_t>(view.parent())].children(), rank));
        }
    }
    REQUIRE(roots == 1);
    REQUIRE(edges == there.size() - 1);
    for (const Rank rank : there) {
        const LiveTree& view = views[static_cast<std::size_t>(rank)];
        std::size_t below = 1;
        for (const Rank child : view.children())
            below += views[static_cast<std::size_t>(child)].subtree().size();
        REQUIRE(view.subtree().size() == below);
        REQUIRE(contains(view.subtree(), rank));
        for (const Rank member : view.subtree()) REQUIRE(contains(there, member));
        if (view.parent() == nobody) REQUIRE(below == there.size());
    }
    // From each rank there is a way to the root.
    for (Rank rank : there) {
        std::size_t steps = 0;
        while (views[static_cast<std::size_t>(rank)].parent() != nobody) {
            rank = views[static_cast<std::size_t>(rank)].parent();
            REQUIRE(++steps < there.size());
        }
    }
}

}  // namespace

TEST_CASE(
    "live tree: the remaining ranks form one tree after each leave, and learn of new neighbours") {
    const auto seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    for (const auto& [size, arity] :
         {std::pair{1, 8}, {2, 8}, {9, 8}, {10, 8}, {20, 8}, {100, 8}, {5, 1}, {20, 2}}) {
        std::vector<LiveTree> views;
        std::vector<Rank> there;
        for (Rank rank = 0; rank < size; ++rank) {
            views.emplace_back(rank, size, arity);
            there.push_back(rank);
        }
        while (there.size() > 1) {
            expect_tree(views, there);
            const std::vector<Rank> order = tree_preorder(size, arity);
            const auto root = std::find_if(order.begin(), order.end(),
                                           [&](Rank rank) { return contains(there, rank); });
            REQUIRE(views[static_cast<std::size_t>(*root)].parent() == nobody);
            const auto leaver =
                there.begin() + static_cast<std::ptrdiff_t>(random() % there.size());
            const Rank left = *leaver;
            there.erase(leaver);
            for (const Rank rank : there) {
                LiveTree& view = views[static_cast<std::size_t>(rank)];
                auto before = view.children();
                before.push_back(view.parent());
                const auto added = view.remove(left);
                auto now = view.children();
                if (view.parent() != nobody) now.push_back(view.parent());
                for (const Rank neighbour : now)
                    REQUIRE(contains(added, neighbour) != contains(before, neighbour));
                REQUIRE(view.has_left(left));
            }
        }
    }
}
