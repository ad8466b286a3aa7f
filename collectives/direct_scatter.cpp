#include "collectives/catalog.h"

namespace tutti {

/// Direct scatter: the root sends every rank its block.
/// Chunks: ranks × lanes, lane l moves part l of every block. Any rank count ≥ 1, any root.
/// Credits: 1. In place and out of place. Generated in O(n) per lane at the root, else in O(1).
/// Cost: 1 hop; the root sends n-1 blocks (bandwidth-optimal).
/// Source: Chan, Heimlich et al., "Collective communication", CCPE 19(13), 2007: the flat tree.
Schedule direct_scatter(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank, root = request.root;
    Schedule schedule;
    schedule.chunks = static_cast<uint32_t>(n) * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto block = [&](Rank rank) {
            return l * static_cast<uint32_t>(n) + static_cast<uint32_t>(rank);
        };
        Lane lane;
        if (me == root) {
            for (Rank ahead = 1; ahead < n; ++ahead) {
                const Rank peer = (me + ahead) % n;
                lane.push_back({.local = Region::input(block(peer)), .send = peer});
            }
            lane.push_back({.local = Region::input(block(me)), .out = Region::output(block(me))});
        } else {
            lane.push_back({.recv = root, .out = Region::output(block(me))});
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
