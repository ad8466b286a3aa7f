#include "collectives/catalog.h"
#include "collectives/rings.h"

namespace tutti {

Lane ring_allreduce_lane(const RingOrder& ring, uint32_t first) {
    const Rank n = ring.size(), next = ring.next(), prev = ring.prev();
    const auto at = [&](Rank back) {
        return first + static_cast<uint32_t>((ring.position() - back + n) % n);
    };
    if (n == 1)
        return {
            {.local = Region::input(first), .out = Region::output(first), .result = Form::final}};
    Lane lane;
    // Reduce-scatter: a chunk starts raw at one rank and collects partial sums; the rank before the
    // starting one finishes it.
    lane.push_back({.local = Region::input(at(0)), .send = next});
    for (Rank k = 1; k < n - 1; ++k)
        lane.push_back({.recv = prev,
                        .local = Region::input(at(k)),
                        .send = next,
                        .in = k == 1 ? Form::raw : Form::partial,
                        .result = Form::partial});
    lane.push_back({.recv = prev,
                    .local = Region::input(at(n - 1)),
                    .out = Region::output(at(n - 1)),
                    .send = next,
                    .in = n == 2 ? Form::raw : Form::partial,
                    .result = Form::final});
    // Allgather: finished chunks go round once more.
    for (Rank k = 0; k < n - 1; ++k)
        lane.push_back({.recv = prev,
                        .out = Region::output(at(k)),
                        .send = k < n - 2 ? next : nobody,
                        .in = Form::final,
                        .result = Form::final});
    return lane;
}

/// Ring allreduce as reduce-scatter then allgather.
/// Chunks: ranks × lanes; lane l works on chunks l·n … l·n+n-1. Any rank count ≥ 1.
/// Credits: 2. In place and out of place. Generated in O(n) per lane.
/// Cost: 2(n-1) hops, 2(n-1)/n of the bytes per rank (bandwidth-optimal).
/// Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule ring_allreduce(const ScheduleRequest& request) {
    const auto n = static_cast<uint32_t>(request.ranks);
    Schedule schedule;
    schedule.chunks = n * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l)
        schedule.lanes.push_back(
            ring_allreduce_lane(RingOrder(request.ranks, request.rank), l * n));
    return schedule;
}

}  // namespace tutti
