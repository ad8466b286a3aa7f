#include "collectives/catalog.h"

namespace tutti {

/// Linear pipelined exclusive scan: each rank keeps the sum that the rank before sends, and sends
/// it on with its own contribution added. Rank 0 has no result.
/// Chunks: one a lane. Any rank count ≥ 1. Credits: 1. Generated in O(1) per lane.
/// Cost: n-2+tiles messages in sequence; each rank sends all bytes once (bandwidth-optimal).
/// Source: Sanders & Träff, "Parallel prefix (scan) algorithms for MPI", EuroPVM/MPI 2006.
Schedule chain_exscan(const ScheduleRequest& request) {
    const Rank me = request.rank;
    const bool first = me == 0, last = me == request.ranks - 1;
    const Form arrives = me <= 1 ? Form::raw : Form::partial;
    Schedule schedule;
    schedule.chunks = request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        Lane lane;
        if (!last)
            lane.push_back({.recv = first ? nobody : me - 1,
                            .local = Region::input(l),
                            .send = me + 1,
                            .keep = !first,
                            .in = arrives,
                            .result = first ? Form::raw : Form::partial});
        if (!first)
            lane.push_back(
                {.recv = me - 1, .out = Region::output(l), .in = arrives, .result = Form::final});
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
