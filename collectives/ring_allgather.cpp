#include "collectives/catalog.h"
#include "collectives/rings.h"

namespace tutti {

Lane ring_allgather_lane(const RingOrder& ring, uint32_t first) {
    const Rank n = ring.size();
    const auto at = [&](Rank back) { return first + static_cast<uint32_t>(ring.ahead(-back)); };
    Lane lane;
    lane.push_back({.local = Region::input(at(0)),
                    .out = Region::output(at(0)),
                    .send = n > 1 ? ring.next() : nobody});
    for (Rank k = 1; k < n; ++k)
        lane.push_back({.recv = ring.prev(),
                        .out = Region::output(at(k)),
                        .send = k < n - 1 ? ring.next() : nobody});
    return lane;
}

/// Ring allgather: every block goes round the ring, from neighbour to neighbour.
/// Chunks: ranks × lanes; lane l works on part l of every block. Any rank count ≥ 1.
/// Credits: 2. In place and out of place. Generated in O(n) per lane.
/// Cost: n-1 hops; each rank sends n-1 blocks (bandwidth-optimal).
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule ring_allgather(const ScheduleRequest& request) {
    const auto n = static_cast<uint32_t>(request.ranks);
    Schedule schedule;
    schedule.chunks = n * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l)
        schedule.lanes.push_back(
            ring_allgather_lane(RingOrder(request.ranks, request.rank), l * n));
    return schedule;
}

}  // namespace tutti
