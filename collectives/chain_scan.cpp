#include "collectives/catalog.h"

namespace tutti {

/// Linear pipelined scan: each rank adds its own contribution to the sum that the rank before
/// sends, and sends that on. It combines the message twice, into the sum that it sends (partial)
/// and its result (final).
/// Chunks: one a lane. Any rank count ≥ 1. Credits: 1. Generated in O(1) per lane.
/// Cost: n-2+tiles messages in sequence; each rank sends all bytes once (bandwidth-optimal).
/// Source: Sanders & Träff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006.
Schedule chain_scan(const ScheduleRequest& request) {
    const Rank me = request.rank;
    const bool first = me == 0, last = me == request.ranks - 1;
    Schedule schedule;
    schedule.chunks = request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const Step sum{.recv = first ? nobody : me - 1,
                       .local = Region::input(l),
                       .in = me <= 1 ? Form::raw : Form::partial};
        Lane lane;
        if (!last) {
            lane.push_back(sum);
            lane.back().send = me + 1;
            lane.back().keep = !first;
            lane.back().result = first ? Form::raw : Form::partial;
        }
        lane.push_back(sum);
        lane.back().out = Region::output(l);
        lane.back().result = Form::final;
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
