#include "collectives/catalog.h"

namespace tutti {

/// Recursive-doubling exclusive scan: in round k, a rank sends the sum of the 2^k ranks up to
/// itself to the rank 2^k ahead. It combines the sum from the rank 2^k behind twice: into its own
/// sum, and into the result, which leaves out its own contribution. Rank 0 has no result.
/// Chunks: one a lane. Scratch: 3 slots a lane. Any rank count ≥ 1. Credits: 1.
/// Generated in O(log n). Cost: ⌈log2 n⌉ rounds of all bytes.
/// Source: Hillis & Steele, CACM 29(12), 1986; with two results as in MPICH's exscan.
Schedule recursive_doubling_exscan(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    Schedule schedule;
    schedule.chunks = request.lanes;
    schedule.scratch_slots = 3 * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const Region out = Region::output(l), before = Region::scratch(3 * l + 2, l);
        uint32_t turn = 0;
        Lane lane;
        Step have{.local = Region::input(l)};  // the sum so far, as a local operand
        if (me + 1 < n) {
            lane.push_back(have);
            lane.back().send = me + 1;
        }
        Rank distance = 1;
        for (; distance <= me; distance *= 2) {
            const Form arrives = distance == 1 || me == distance ? Form::raw : Form::partial;
            if (const Rank ahead = me + 2 * distance; ahead < n) {
                Step step = have;
                step.recv = me - distance;
                step.keep = true;
                step.in = arrives;
                if (ahead + 2 * distance < n) step.out = Region::scratch(3 * l + turn++ % 2, l);
                step.send = ahead;
                step.result = Form::partial;
                lane.push_back(step);
                have = {.local = step.out, .local_form = step.result, .result = step.result};
            }
            const bool last = 2 * distance > me;
            lane.push_back({.recv = me - distance,
                            .local = distance == 1 ? Region{} : before,
                            .out = last ? out : before,
                            .in = arrives,
                            .local_form = distance == 1 ? Form::raw : Form::partial,
                            .result = last ? Form::final : Form::partial});
        }
        for (distance *= 2; me + distance < n; distance *= 2) {
            lane.push_back(have);
            lane.back().send = me + distance;
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
