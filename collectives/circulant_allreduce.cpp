#include "collectives/catalog.h"

namespace tutti {

/// Circulant allreduce: the circulant reduce-scatter, then its rounds backwards as an allgather.
/// Chunks: ranks × lanes, in cycles of n; lane l works on chunks l·n … l·n+n-1.
/// Scratch: ⌈n/2⌉ slots a lane. Any rank count ≥ 1. Credits: 1. In place and out of place.
/// Contributions meet out of order. Generated in O(log n) per lane.
/// Cost: 2⌈log2 n⌉ rounds, 2(n-1)/n of the bytes per rank (bandwidth-optimal, for any n).
/// Source: Träff, "Optimal, non-pipelined reduce-scatter and allreduce", arXiv 2410.14234, 2024.
Schedule circulant_allreduce(const ScheduleRequest& request) {
    const auto cycle = static_cast<uint32_t>(request.ranks);
    const auto me = static_cast<uint32_t>(request.rank);
    Schedule schedule = circulant_reduce_scatter(request);
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto result = [&](uint32_t ahead) {
            return Region::output(l * cycle + (me + ahead) % cycle);
        };
        // The sequence n, ⌈n/2⌉, … 1 from its end: its k-th value is ⌈n / 2^k⌉.
        uint32_t rounds = 0;
        while ((uint64_t{1} << rounds) < cycle) ++rounds;
        for (uint32_t round = rounds; round > 0; --round) {
            const auto after = [&](uint32_t k) {
                return static_cast<uint32_t>((cycle + (uint64_t{1} << k) - 1) >> k);
            };
            const uint32_t known = after(round), blocks = after(round - 1) - known;
            schedule.lanes[l].push_back({.local = result(0),
                                         .send = static_cast<Rank>((me + cycle - known) % cycle),
                                         .chunks = blocks,
                                         .local_form = Form::final,
                                         .result = Form::final});
            schedule.lanes[l].push_back({.recv = static_cast<Rank>((me + known) % cycle),
                                         .out = result(known),
                                         .chunks = blocks,
                                         .in = Form::final,
                                         .result = Form::final});
        }
    }
    return schedule;
}

}  // namespace tutti
