#include "collectives/catalog.h"

namespace tutti {

/// Pairwise alltoall: in round k, each rank sends to the ranks k ahead and k behind and receives
/// from both. So in place, a message only overwrites a block that was sent before, and no block
/// needs a copy.
/// Chunks: ranks² × lanes; lane l works on part l of every block. n² × lanes < 2^32.
/// Any rank count ≥ 1. Credits: 1, on n-1 channels each way. In place and out of place.
/// Generated in O(n) per lane. Cost: ⌊n/2⌋ rounds of two messages; each rank sends n-1 blocks
/// (bandwidth-optimal).
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule pairwise_alltoall(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const auto count = static_cast<uint32_t>(n);
    Schedule schedule;
    schedule.chunks = count * count * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto block = [&](Rank source, Rank destination) {
            return (l * count + static_cast<uint32_t>(source)) * count +
                   static_cast<uint32_t>(destination);
        };
        Lane lane;
        lane.push_back(
            {.local = Region::input(block(me, me)), .out = Region::output(block(me, me))});
        const auto send = [&](Rank to) {
            lane.push_back({.local = Region::input(block(me, to)), .send = to});
        };
        const auto receive = [&](Rank from) {
            lane.push_back({.recv = from, .out = Region::output(block(from, me))});
        };
        for (Rank k = 1; k <= n / 2; ++k) {
            const Rank ahead = (me + k) % n, behind = (me - k + n) % n;
            send(ahead);
            if (behind != ahead) send(behind);
            receive(behind);
            if (behind != ahead) receive(ahead);
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
