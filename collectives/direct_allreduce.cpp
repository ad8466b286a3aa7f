#include "collectives/catalog.h"

namespace tutti {

/// Direct allreduce: a direct reduce-scatter, then every rank sends its finished chunk to every
/// other rank.
/// Inputs travel raw and results final, rounded once: 16-bit floats travel as such both ways, and
/// contributions meet in rank order.
/// Chunks: ranks × lanes; lane l works on chunks l·n … l·n+n-1. Scratch: 1 slot a lane.
/// Any rank count ≥ 1. Credits: 1, on n-1 channels each way. In place and out of place.
/// Generated in O(n) per lane. Cost: two rounds, 2(n-1)/n of the bytes per rank
/// (bandwidth-optimal).
/// Source: Chan, Heimlich et al., "Collective communication", CCPE 19(13), 2007.
Schedule direct_allreduce(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    Schedule schedule = direct_reduce_scatter(request);
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto result = [&](Rank rank) {
            return Region::output(l * static_cast<uint32_t>(n) + static_cast<uint32_t>(rank));
        };
        for (Rank k = 1; k < n; ++k)
            schedule.lanes[l].push_back({.local = result(me),
                                         .send = (me + k) % n,
                                         .local_form = Form::final,
                                         .result = Form::final});
        for (Rank k = 1; k < n; ++k) {
            const Rank peer = (me - k + n) % n;
            schedule.lanes[l].push_back(
                {.recv = peer, .out = result(peer), .in = Form::final, .result = Form::final});
        }
    }
    return schedule;
}

}  // namespace tutti
