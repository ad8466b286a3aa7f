#include "collectives/catalog.h"

namespace tutti {

/// Direct reduce-scatter: every rank sends its contribution to each block directly to the owner,
/// which adds them in its accumulator: inputs travel raw, the result is rounded once. The owner
/// begins with its own contribution. It adds those of lower ranks on the left, from the nearest
/// down, and then those of higher ranks on the right: the contributions meet in rank order.
/// Chunks: ranks × lanes; lane l works on part l of every block. Scratch: 1 slot a lane.
/// Any rank count ≥ 1. Credits: 1, on n-1 channels each way. In place and out of place.
/// Generated in O(n) per lane. Cost: one round; each rank sends n-1 blocks (bandwidth-optimal) and
/// receives n-1 contributions to its own block.
/// Source: Chan, Heimlich et al., "Collective communication", CCPE 19(13), 2007.
Schedule direct_reduce_scatter(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    Schedule schedule;
    schedule.chunks = static_cast<uint32_t>(n) * request.lanes;
    schedule.scratch_slots = request.lanes;
    schedule.sends_partials = false;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto block = [&](Rank rank) {
            return l * static_cast<uint32_t>(n) + static_cast<uint32_t>(rank);
        };
        const Region mine = Region::input(block(me)), sum = Region::scratch(l, block(me));
        const Region out = Region::output(block(me));
        Lane lane;
        if (n == 1) lane.push_back({.local = mine, .out = out, .result = Form::final});
        // Each owner receives from its neighbour below first, then from the next one below.
        for (Rank k = 1; k < n; ++k)
            lane.push_back({.local = Region::input(block((me + k) % n)), .send = (me + k) % n});
        for (Rank k = 1; k < n; ++k) {
            const bool first = k == 1, last = k == n - 1;
            lane.push_back({.recv = k <= me ? me - k : k,
                            .local = first ? mine : sum,
                            .out = last ? out : sum,
                            .local_first = k > me,
                            .local_form = first ? Form::raw : Form::partial,
                            .result = last ? Form::final : Form::partial});
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
