#include "collectives/catalog.h"

namespace tutti {

/// Direct reduce-scatter: everyone sends its contribution to each block straight to the owner, who
/// adds them in its accumulator: inputs travel raw, the result is rounded once.
/// The owner's own comes first, then those of the ranks below it from the nearest down, on the
/// left, then those above on the right: the contributions meet in rank order.
/// Chunks: ranks × lanes; lane l works on part l of every block. Scratch: 1 slot a lane.
/// Any rank count ≥ 1. Credits: 1, on n-1 channels each way. In place and out of place.
/// Generated in O(n) per lane. Cost: one round; each rank sends n-1 blocks (bandwidth-optimal) and
/// hears n-1 of its own block.
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
        // Each owner hears of its neighbour below first, then of the next one below.
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
