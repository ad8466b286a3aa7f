#include <bit>

#include "collectives/catalog.h"

namespace tutti {

/// Recursive doubling: in round k, ranks 2^k apart exchange their sums and combine them. With n not
/// a power of two, the first 2(n - 2^m) ranks pair up: the odd rank of a pair works for both, the
/// even rank receives the result at the end.
/// Chunks: one a lane. Scratch: 2 slots a lane. Any rank count ≥ 1.
/// Both partners combine lower ranks first, so they compute the same bits.
/// Credits: 1. Generated in O(log n). Cost: log2(n) rounds (+2 unless n = 2^m) of all bytes.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule recursive_doubling_allreduce(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const auto power = static_cast<Rank>(std::bit_floor(static_cast<uint32_t>(n)));
    const Rank pairs = n - power;
    Schedule schedule;
    schedule.chunks = request.lanes;
    schedule.scratch_slots = 2 * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const Region in = Region::input(l), out = Region::output(l);
        Lane lane;
        if (n == 1) {
            lane.push_back({.local = in, .out = out, .result = Form::final});
        } else if (me < 2 * pairs && me % 2 == 0) {
            lane.push_back({.local = in, .send = me + 1});
            lane.push_back({.recv = me + 1, .out = out, .in = Form::final, .result = Form::final});
        } else {
            const bool works_for_two = me < 2 * pairs;
            const Rank worker = works_for_two ? me / 2 : me - pairs;
            const auto rank_of = [&](Rank w) { return w < pairs ? 2 * w + 1 : w + pairs; };
            const auto slot = [&](uint32_t s) { return Region::scratch(2 * l + s % 2, l); };
            Region have = in;
            Form form = Form::raw;
            uint32_t next_slot = 0;
            const auto combine = [&](Rank peer, Form arrives, bool local_first, bool last) {
                Step step{.recv = peer,
                          .local = have,
                          .out = last ? out : slot(next_slot++),
                          .local_first = local_first,
                          .in = arrives,
                          .local_form = form,
                          .result = last ? Form::final : Form::partial};
                lane.push_back(step);
                have = step.out;
                form = step.result;
            };
            if (works_for_two) combine(me - 1, Form::raw, false, false);
            for (Rank distance = 1; distance < power; distance *= 2) {
                const Rank peer_worker = worker ^ distance;
                const Rank peer = rank_of(peer_worker);
                // In the first round a partner that works only for itself still has its raw input.
                const bool peer_raw = distance == 1 && peer_worker >= pairs;
                lane.push_back({.local = have, .send = peer, .local_form = form, .result = form});
                combine(peer, peer_raw ? Form::raw : Form::partial, worker < peer_worker,
                        distance * 2 == power);
            }
            if (works_for_two)
                lane.push_back({.local = out,
                                .send = me - 1,
                                .local_form = Form::final,
                                .result = Form::final});
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
