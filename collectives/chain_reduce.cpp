#include "collectives/catalog.h"

namespace tutti {

/// Pipelined-chain reduce: from the rank before the root down to the root, each rank adding its own
/// contribution.
/// Chunks: one a lane. Any rank count ≥ 1, any root; in rank order if the root is 0, else rotated.
/// Credits: 1. Generated in O(1) per lane.
/// Cost: n-2+tiles messages in sequence; each rank sends all bytes once (bandwidth-optimal).
/// Source: Träff, Ripke et al., "Large-scale pipelined broadcast", EuroPVM/MPI 2005, reversed.
Schedule chain_reduce(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const Rank relative = (me - request.root + n) % n;
    const bool first = relative == n - 1, last = relative == 0;
    Schedule schedule;
    schedule.chunks = request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const bool from_first = relative == n - 2;
        const Form sum = last ? Form::final : first ? Form::raw : Form::partial;
        schedule.lanes.push_back({{.recv = first ? nobody : (me + 1) % n,
                                   .local = Region::input(l),
                                   .out = last ? Region::output(l) : Region{},
                                   .send = last ? nobody : (me + n - 1) % n,
                                   .local_first = true,
                                   .in = first || from_first ? Form::raw : Form::partial,
                                   .result = sum}});
    }
    return schedule;
}

}  // namespace tutti
