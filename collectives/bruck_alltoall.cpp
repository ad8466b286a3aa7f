#include <algorithm>
#include <bit>

#include "collectives/catalog.h"

namespace tutti {

/// Bruck's alltoall: a block for the rank d ahead travels in the powers of two that make up d. In
/// round k, all blocks whose d has bit k move 2^k ranks ahead, in one message. Ranks on the way
/// know a block's d, but not its source, so all blocks must have one size.
/// Chunks: ranks² × lanes, in cycles of n; lane l works on part l of every block. n² × lanes <
/// 2^32. Scratch: n-1 slots a lane, one for each d. Any rank count ≥ 1. Credits: 1.
/// In place and out of place: every block leaves from scratch.
/// Generated in O(n) per lane: O(log n) messages, then each block goes to its place.
/// Cost: ⌈log2 n⌉ rounds; each rank sends at most ⌈n/2⌉ blocks a round.
/// Source: Bruck, Ho et al., IEEE TPDS 8(11), 1997.
Schedule bruck_alltoall(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const auto count = static_cast<uint32_t>(n);
    Schedule schedule;
    schedule.chunks = count * count * request.lanes;
    schedule.cycle = count;
    schedule.longest_run = std::max(1u, std::bit_ceil(count) / 2);
    schedule.scratch_slots = (count - 1) * request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const auto block = [&](Rank source, Rank destination) {
            return (l * count + static_cast<uint32_t>(source)) * count +
                   static_cast<uint32_t>(destination);
        };
        const auto travelling = [&](uint32_t d, uint32_t chunk) {
            return Region::scratch(l * (count - 1) + d - 1, chunk);
        };
        Lane lane;
        lane.push_back(
            {.local = Region::input(block(me, me)), .out = Region::output(block(me, me))});
        if (n > 1) {
            const uint32_t first = block(me, (me + 1) % n);
            lane.push_back(
                {.local = Region::input(first), .out = travelling(1, first), .chunks = count - 1});
        }
        for (uint32_t bit = 1; bit < count; bit *= 2) {
            const auto distance = static_cast<Rank>(bit);
            // This round moves the blocks among 1 … n-1 whose number has the bit.
            const uint32_t whole = count / (2 * bit) * bit, rest = count % (2 * bit);
            const uint32_t moving = whole + (rest > bit ? rest - bit : 0);
            const Region blocks = travelling(bit, any_chunk);
            const SlotPattern pattern{.burst = bit, .period = 2 * bit};
            lane.push_back(
                {.local = blocks, .send = (me + distance) % n, .chunks = moving, .slots = pattern});
            lane.push_back({.recv = (me - distance + n) % n,
                            .out = blocks,
                            .chunks = moving,
                            .slots = pattern});
        }
        for (Rank d = 1; d < n; ++d) {
            const uint32_t arrived = block((me - d + n) % n, me);
            lane.push_back({.local = travelling(static_cast<uint32_t>(d), arrived),
                            .out = Region::output(arrived)});
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
