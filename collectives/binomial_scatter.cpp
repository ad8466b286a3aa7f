#include <algorithm>
#include <bit>

#include "collectives/catalog.h"
#include "collectives/trees.h"

namespace tutti {

/// Binomial-tree scatter: runs of blocks travel down the tree, halved at every rank. An inner rank
/// gets its subtree's blocks into scratch, in the order of ranks from itself on.
/// Chunks: ranks × lanes, lane l moves part l of every block; runs wrap around after rank n-1.
/// Scratch: a slot for every block of the subtree and lane, n/2 at most; none at leaves and root.
/// Any rank count ≥ 1, any root; blocks of one size. Credits: 1. In place and out of place.
/// Generated in O(log n).
/// Cost: ⌈log2 n⌉ rounds; the root sends n-1 blocks, up to n/2 of them in one message.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_scatter(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const auto [parent, size] = binomial_subtree(n, me, request.root);
    const bool root = parent == nobody, inner = !root && size > 1;
    Schedule schedule;
    schedule.chunks = static_cast<uint32_t>(n) * request.lanes;
    schedule.cycle = static_cast<uint32_t>(n);
    schedule.longest_run = std::max(1u, std::bit_ceil(static_cast<uint32_t>(n)) / 2);
    schedule.scratch_slots = inner ? static_cast<uint32_t>(size) * request.lanes : 0;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto block = [&](Rank ahead) {
            return l * static_cast<uint32_t>(n) + static_cast<uint32_t>((me + ahead) % n);
        };
        const auto held = [&, size = size](Rank ahead) {
            const uint32_t slot = l * static_cast<uint32_t>(size) + static_cast<uint32_t>(ahead);
            return root ? Region::input(block(ahead)) : Region::scratch(slot, block(ahead));
        };
        const Region own = Region::output(block(0));
        Lane lane;
        if (!root)
            lane.push_back({.recv = parent,
                            .out = inner ? held(0) : own,
                            .chunks = static_cast<uint32_t>(size)});
        for (auto ahead = static_cast<Rank>(std::bit_ceil(static_cast<uint32_t>(size)) / 2);
             ahead > 0; ahead /= 2)
            lane.push_back({.local = held(ahead),
                            .send = (me + ahead) % n,
                            .chunks = static_cast<uint32_t>(std::min(ahead, size - ahead))});
        if (root || inner) lane.push_back({.local = held(0), .out = own});
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
