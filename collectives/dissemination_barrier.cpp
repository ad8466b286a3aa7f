#include "collectives/catalog.h"

namespace tutti {

/// Dissemination barrier: in round k, each rank sends to the rank 2^k ahead and receives from the
/// rank 2^k behind.
/// Chunks: one, of no elements. One lane. Any rank count ≥ 1. Credits: 1. Generated in O(log n).
/// Cost: ⌈log2 n⌉ rounds of empty messages.
/// Source: Hensgen, Finkel & Manber, IJPP 17(1), 1988.
Schedule dissemination_barrier(const ScheduleRequest& request) {
    const Rank n = request.ranks;
    Schedule schedule;
    Lane lane;
    Region known = Region::input(0);
    for (int64_t distance = 1; distance < n; distance *= 2) {
        const auto d = static_cast<Rank>(distance);
        lane.push_back({.local = known, .send = (request.rank + d) % n});
        lane.push_back(
            {.recv = (request.rank + n - d) % n, .local = known, .out = Region::output(0)});
        known = Region::output(0);
    }
    schedule.lanes.push_back(std::move(lane));
    return schedule;
}

}  // namespace tutti
