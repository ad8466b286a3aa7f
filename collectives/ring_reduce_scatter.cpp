#include "collectives/catalog.h"
#include "collectives/rings.h"

namespace tutti {

Lane ring_reduce_scatter_lane(const RingOrder& ring, uint32_t first) {
    const Rank n = ring.size();
    const auto at = [&](Rank back) { return first + static_cast<uint32_t>(ring.ahead(-back)); };
    Lane lane;
    if (n > 1) lane.push_back({.local = Region::input(at(1)), .send = ring.next()});
    for (Rank k = 2; k < n; ++k)
        lane.push_back({.recv = ring.prev(),
                        .local = Region::input(at(k)),
                        .send = ring.next(),
                        .in = k == 2 ? Form::raw : Form::partial,
                        .result = Form::partial});
    lane.push_back({.recv = n > 1 ? ring.prev() : nobody,
                    .local = Region::input(at(0)),
                    .out = Region::output(at(0)),
                    .in = n > 2 ? Form::partial : Form::raw,
                    .result = Form::final});
    return lane;
}

/// Ring reduce-scatter: a block starts raw at the rank after its owner and gathers partial sums all
/// the way round to its owner.
/// Chunks: ranks × lanes; lane l works on part l of every block. Any rank count ≥ 1.
/// Contributions meet in the ring's order, not the ranks'. Credits: 2. In place and out of place.
/// Generated in O(n) per lane. Cost: n-1 hops; each rank sends n-1 blocks (bandwidth-optimal).
/// Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule ring_reduce_scatter(const ScheduleRequest& request) {
    const auto n = static_cast<uint32_t>(request.ranks);
    Schedule schedule;
    schedule.chunks = n * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l)
        schedule.lanes.push_back(
            ring_reduce_scatter_lane(RingOrder(request.ranks, request.rank), l * n));
    return schedule;
}

}  // namespace tutti
