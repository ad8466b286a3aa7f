#include "collectives/catalog.h"

namespace tutti {

/// Recursive-doubling scan: in round k, a rank sends the sum of the 2^k ranks up to itself to the
/// rank 2^k ahead, and combines the sum from the rank 2^k behind with its own, on the left.
/// Chunks: one a lane. Scratch: 2 slots a lane. Any rank count ≥ 1. Credits: 1.
/// Generated in O(log n). Cost: ⌈log2 n⌉ rounds of all bytes.
/// Source: Hillis & Steele, "Data parallel algorithms", CACM 29(12), 1986.
Schedule recursive_doubling_scan(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    Schedule schedule;
    schedule.chunks = request.lanes;
    schedule.scratch_slots = 2 * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const Region in = Region::input(l), out = Region::output(l);
        Lane lane;
        uint32_t turn = 0;
        Step have{.local = in};  // the sum so far, as a local operand
        if (me + 1 < n) {
            lane.push_back(have);
            lane.back().send = me + 1;
        }
        Rank distance = 1;
        for (; distance <= me; distance *= 2) {
            // Once no message is left to receive, the sum is the scan; a rank that still sends it
            // keeps it unrounded.
            const Rank ahead = me + 2 * distance;
            const bool stays = 2 * distance > me && ahead >= n;
            Step step = have;
            step.recv = me - distance;
            step.in = distance == 1 || me == distance ? Form::raw : Form::partial;
            step.out = stays ? out : Region::scratch(2 * l + turn++ % 2, l);
            step.send = ahead < n ? ahead : nobody;
            step.result = stays ? Form::final : Form::partial;
            lane.push_back(step);
            have = {.local = step.out, .local_form = step.result, .result = step.result};
        }
        for (distance *= 2; me + distance < n; distance *= 2) {
            lane.push_back(have);
            lane.back().send = me + distance;
        }
        if (have.local.space != Space::output) {
            lane.push_back(have);
            lane.back().out = out;
            lane.back().result = Form::final;
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
