#include "collectives/catalog.h"

namespace tutti {

/// Ring reduce-scatter: a block starts raw at the rank after its owner and gathers partial sums all
/// the way round to it.
/// Chunks: ranks × lanes; lane l works on part l of every block. Any rank count ≥ 1.
/// Contributions meet in the ring's order, not the ranks'. Credits: 2. In place and out of place.
/// Generated in O(n) per lane. Cost: n-1 hops; each rank sends n-1 blocks (bandwidth-optimal).
/// Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule ring_reduce_scatter(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const Rank next = (me + 1) % n, prev = (me + n - 1) % n;
    Schedule schedule;
    schedule.chunks = static_cast<uint32_t>(n) * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto at = [&](Rank back) {
            return l * static_cast<uint32_t>(n) + static_cast<uint32_t>((me - back + n) % n);
        };
        Lane lane;
        if (n > 1) lane.push_back({.local = Region::input(at(1)), .send = next});
        for (Rank k = 2; k < n; ++k)
            lane.push_back({.recv = prev,
                            .local = Region::input(at(k)),
                            .send = next,
                            .in = k == 2 ? Form::raw : Form::partial,
                            .result = Form::partial});
        lane.push_back({.recv = n > 1 ? prev : nobody,
                        .local = Region::input(at(0)),
                        .out = Region::output(at(0)),
                        .in = n > 2 ? Form::partial : Form::raw,
                        .result = Form::final});
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
