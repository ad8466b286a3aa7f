#include <algorithm>

#include "collectives/catalog.h"

namespace tutti {

/// Circulant reduce-scatter: each rank holds partial sums of the blocks of the `held` ranks from
/// itself on, and in every round sends the further half of them to the rank ⌈held/2⌉ ahead, whose
/// block is the first of that half. So `held` halves, rounded up, from n to 1.
/// Chunks: ranks × lanes, in cycles of n; lane l works on part l of every block.
/// Scratch: ⌈n/2⌉ slots a lane. Any rank count ≥ 1. Credits: 1. In place and out of place.
/// Contributions meet out of order. Generated in O(log n) per lane.
/// Cost: ⌈log2 n⌉ rounds; each rank sends n-1 blocks (bandwidth-optimal, for any n).
/// Source: Träff, "Optimal, non-pipelined reduce-scatter and allreduce", arXiv 2410.14234, 2024.
Schedule circulant_reduce_scatter(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const auto cycle = static_cast<uint32_t>(n);
    const uint32_t slots = (cycle + 1) / 2;
    Schedule schedule;
    schedule.chunks = cycle * request.lanes;
    schedule.cycle = cycle;
    schedule.longest_run = std::max(1u, cycle / 2);
    schedule.scratch_slots = slots * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        // The block of the rank that far ahead, and the place of its partial sum.
        const auto block = [&](uint32_t ahead) {
            return l * cycle + (static_cast<uint32_t>(me) + ahead) % cycle;
        };
        const auto sum = [&](uint32_t ahead) {
            return Region::scratch(l * slots + ahead, block(ahead));
        };
        Lane lane;
        if (n == 1)
            lane.push_back({.local = Region::input(block(0)),
                            .out = Region::output(block(0)),
                            .result = Form::final});
        for (uint32_t held = cycle; held > 1;) {
            const uint32_t keep = (held + 1) / 2, give = held - keep;
            const bool first = held == cycle, last = keep == 1;
            const auto have = [&](uint32_t ahead) {
                return first ? Region::input(block(ahead)) : sum(ahead);
            };
            const Form form = first ? Form::raw : Form::partial;
            const auto distance = static_cast<Rank>(keep);
            lane.push_back({.local = have(keep),
                            .send = static_cast<Rank>(block(keep) % cycle),
                            .chunks = give,
                            .local_form = form,
                            .result = form});
            lane.push_back({.recv = (me - distance + n) % n,
                            .local = have(0),
                            .out = last ? Region::output(block(0)) : sum(0),
                            .chunks = give,
                            .in = form,
                            .local_form = form,
                            .result = last ? Form::final : Form::partial});
            // With an odd number, the middle block got no addition; all blocks must have one form.
            if (first && give < keep)
                lane.push_back({.local = have(give), .out = sum(give), .result = Form::partial});
            held = keep;
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
