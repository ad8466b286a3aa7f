#include "collectives/catalog.h"

namespace tutti {

/// Binomial-tree broadcast: each rank that has the message sends it on, at halving distances.
/// Chunks: one a lane. Any rank count ≥ 1, any root. Credits: 1. Generated in O(log n).
/// Cost: ⌈log2 n⌉ rounds of all bytes; the root sends them ⌈log2 n⌉ times.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_broadcast(const ScheduleRequest& request) {
    const Rank n = request.ranks, root = request.root;
    const Rank relative = (request.rank - root + n) % n;
    Schedule schedule;
    schedule.chunks = request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        Lane lane;
        // The lowest set bit of the distance to the root gives the parent; the lower bits give the
        // children.
        Rank bit = 1;
        while (bit < n && !(relative & bit)) bit *= 2;
        if (relative != 0)
            lane.push_back({.recv = (request.rank - bit + n) % n, .out = Region::output(l)});
        for (bit /= 2; bit > 0; bit /= 2) {
            if (relative + bit >= n) continue;
            const Rank child = (request.rank + bit) % n;
            if (lane.size() == 1 && lane.back().send == nobody && relative != 0) {
                lane.back().send = child;
            } else {
                lane.push_back(
                    {.local = relative == 0 ? Region::input(l) : Region::output(l), .send = child});
            }
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
