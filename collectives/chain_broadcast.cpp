#include "collectives/catalog.h"

namespace tutti {

/// Pipelined-chain broadcast: rank after rank from the root on, tile by tile.
/// Chunks: one a lane. Any rank count ≥ 1, any root. Credits: 1. Generated in O(1) per lane.
/// Cost: n-2+tiles messages in sequence; each rank sends all bytes once (bandwidth-optimal).
/// Source: Träff, Ripke et al., "Large-scale pipelined broadcast", EuroPVM/MPI 2005.
Schedule chain_broadcast(const ScheduleRequest& request) {
    const Rank n = request.ranks;
    const Rank relative = (request.rank - request.root + n) % n;
    const Rank prev = relative == 0 ? nobody : (request.rank + n - 1) % n;
    const Rank next = relative == n - 1 ? nobody : (request.rank + 1) % n;
    Schedule schedule;
    schedule.chunks = request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        Lane lane;
        if (prev != nobody) {
            lane.push_back({.recv = prev, .out = Region::output(l), .send = next});
        } else if (next != nobody) {
            lane.push_back({.local = Region::input(l), .send = next});
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
