#include "collectives/catalog.h"

namespace tutti {

/// Ring allgather: every block goes round, from neighbour to neighbour.
/// Chunks: ranks × lanes; lane l works on part l of every block. Any rank count ≥ 1.
/// Credits: 2. In place and out of place. Generated in O(n) per lane.
/// Cost: n-1 hops; each rank sends n-1 blocks (bandwidth-optimal).
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule ring_allgather(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const Rank next = (me + 1) % n, prev = (me + n - 1) % n;
    Schedule schedule;
    schedule.chunks = static_cast<uint32_t>(n) * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto at = [&](Rank back) {
            return l * static_cast<uint32_t>(n) + static_cast<uint32_t>((me - back + n) % n);
        };
        Lane lane;
        lane.push_back({.local = Region::input(at(0)),
                        .out = Region::output(at(0)),
                        .send = n > 1 ? next : nobody});
        for (Rank k = 1; k < n; ++k)
            lane.push_back(
                {.recv = prev, .out = Region::output(at(k)), .send = k < n - 1 ? next : nobody});
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
