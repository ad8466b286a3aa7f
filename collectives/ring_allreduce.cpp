#include "collectives/catalog.h"

namespace tutti {

/// Ring allreduce as reduce-scatter then allgather.
/// Chunks: ranks × lanes; lane l works on chunks l·n … l·n+n-1. Any rank count ≥ 1.
/// Credits: 2. In place and out of place. Generated in O(n) per lane.
/// Cost: 2(n-1) hops, 2(n-1)/n of the bytes per rank (bandwidth-optimal).
/// Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule ring_allreduce(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const Rank next = (me + 1) % n, prev = (me + n - 1) % n;
    Schedule schedule;
    schedule.chunks = static_cast<uint32_t>(n) * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto at = [&](Rank back) {
            return l * static_cast<uint32_t>(n) + static_cast<uint32_t>((me - back + 2 * n) % n);
        };
        Lane lane;
        if (n == 1) {
            lane.push_back({.local = Region::input(at(0)),
                            .out = Region::output(at(0)),
                            .result = Form::final});
            schedule.lanes.push_back(std::move(lane));
            continue;
        }
        // Reduce-scatter: a chunk starts raw at one rank, gathers partial sums on its way, and is
        // finished by the rank before the one it started from.
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
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
