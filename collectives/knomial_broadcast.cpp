#include "collectives/catalog.h"

namespace tutti {

/// Radix-4 tree broadcast: half the rounds of a binomial tree, up to three messages from a rank in
/// each. For when starting a message is cheap and its latency is not.
/// Chunks: one a lane. Any rank count ≥ 1, any root. Credits: 1. Generated in O(log n).
/// Cost: ⌈log4 n⌉ rounds of all bytes; the root sends them up to 3 ⌈log4 n⌉ times.
/// Source: the k-nomial trees of MPICH and Open MPI.
Schedule knomial_broadcast(const ScheduleRequest& request) {
    constexpr Rank radix = 4;
    const Rank n = request.ranks;
    const Rank relative = (request.rank - request.root + n) % n;
    Schedule schedule;
    schedule.chunks = request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const bool root = relative == 0;
        // The lowest non-zero digit of the distance to the root: cleared, it gives the parent; the
        // lower digits give the children.
        Rank width = 1;
        while (width < n && relative / width % radix == 0) width *= radix;
        Lane lane;
        if (!root) {
            const Rank parent = relative - relative % (radix * width);
            lane.push_back({.recv = (parent + request.root) % n, .out = Region::output(l)});
        }
        for (Rank distance = width / radix; distance > 0; distance /= radix)
            for (Rank k = 1; k < radix && relative + k * distance < n; ++k) {
                const bool forwards = !root && lane.back().send == nobody;
                if (!forwards)
                    lane.push_back({.local = root ? Region::input(l) : Region::output(l)});
                lane.back().send = (request.rank + k * distance) % n;
            }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
