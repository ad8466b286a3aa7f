#include <algorithm>
#include <bit>

#include "collectives/catalog.h"

namespace tutti {

/// Bruck's allgather: in round k, a rank sends all blocks that it has so far (2^k of them, from its
/// own on) to the rank 2^k behind, and receives as many from the rank 2^k ahead; the last round
/// sends the rest. Blocks go straight to their places: a run of them wraps around, so nothing is
/// rotated.
/// Chunks: ranks × lanes, in cycles of n; lane l works on part l of every block.
/// Any rank count ≥ 1. Credits: 1. In place and out of place. Generated in O(log n) per lane.
/// Cost: ⌈log2 n⌉ rounds; each rank sends n-1 blocks (bandwidth-optimal).
/// Source: Bruck, Ho et al., IEEE TPDS 8(11), 1997.
Schedule bruck_allgather(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const auto cycle = static_cast<uint32_t>(n);
    Schedule schedule;
    schedule.chunks = cycle * request.lanes;
    schedule.cycle = cycle;
    schedule.longest_run = std::max(1u, std::bit_ceil(cycle) / 2);
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto block = [&](Rank rank) { return l * cycle + static_cast<uint32_t>(rank); };
        Lane lane;
        lane.push_back({.local = Region::input(block(me)), .out = Region::output(block(me))});
        for (int64_t known = 1; known < n; known *= 2) {
            const auto distance = static_cast<Rank>(known);
            const auto blocks = static_cast<uint32_t>(std::min(distance, n - distance));
            const Rank behind = (me - distance + n) % n;
            const auto ahead = static_cast<Rank>((me + known) % n);
            if (known == 1)
                lane.back().send = behind;
            else
                lane.push_back(
                    {.local = Region::output(block(me)), .send = behind, .chunks = blocks});
            lane.push_back({.recv = ahead, .out = Region::output(block(ahead)), .chunks = blocks});
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
