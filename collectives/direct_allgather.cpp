#include "collectives/catalog.h"

namespace tutti {

/// Direct allgather: every rank sends its block to every other rank, the next rank first.
/// Chunks: ranks × lanes; lane l works on part l of every block. Any rank count ≥ 1.
/// Credits: 1, on n-1 channels each way. In place and out of place. Generated in O(n) per lane.
/// Cost: one round; each rank sends n-1 blocks (bandwidth-optimal).
/// Source: Chan, Heimlich et al., "Collective communication", CCPE 19(13), 2007.
Schedule direct_allgather(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    Schedule schedule;
    schedule.chunks = static_cast<uint32_t>(n) * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto block = [&](Rank rank) {
            return l * static_cast<uint32_t>(n) + static_cast<uint32_t>(rank);
        };
        Lane lane;
        lane.push_back({.local = Region::input(block(me)),
                        .out = Region::output(block(me)),
                        .send = n > 1 ? (me + 1) % n : nobody});
        for (Rank k = 2; k < n; ++k)
            lane.push_back({.local = Region::input(block(me)), .send = (me + k) % n});
        for (Rank k = 1; k < n; ++k) {
            const Rank peer = (me - k + n) % n;
            lane.push_back({.recv = peer, .out = Region::output(block(peer))});
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
