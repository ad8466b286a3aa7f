#include <algorithm>
#include <bit>

#include "collectives/catalog.h"

namespace tutti {
namespace {

/// The 2^m working ranks, numbered in the order of the ranks for which they work.
struct Workers {
    Rank count, pairs;  // pairs: the number of workers that work for two ranks, which come first
    Rank me;

    Rank rank_of(Rank worker) const { return worker < pairs ? 2 * worker + 1 : worker + pairs; }
    uint32_t half_at(Rank distance) const { return static_cast<uint32_t>(count / 2 / distance); }
};

/// Reduce-scatter of the chunks from `mine` on; returns the chunk that this worker finishes.
uint32_t halve(Lane& lane, const Workers& workers, uint32_t mine) {
    Form form = workers.me < workers.pairs ? Form::partial : Form::raw;
    const auto have = [&](uint32_t chunk) {
        return form == Form::raw ? Region::input(chunk) : Region::scratch(chunk, chunk);
    };
    for (Rank distance = 1; distance < workers.count; distance *= 2) {
        const uint32_t half = workers.half_at(distance);
        const Rank other = workers.me ^ distance, peer = workers.rank_of(other);
        // In the first round a partner that works only for itself still has its raw input.
        const bool peer_raw = distance == 1 && other >= workers.pairs;
        const bool lower = workers.me < other, last = half == 1;
        lane.push_back({.local = have(lower ? mine + half : mine),
                        .send = peer,
                        .chunks = half,
                        .local_form = form,
                        .result = form});
        if (!lower) mine += half;
        lane.push_back({.recv = peer,
                        .local = have(mine),
                        .out = last ? Region::output(mine) : Region::scratch(mine, mine),
                        .chunks = half,
                        .local_first = lower,
                        .in = peer_raw ? Form::raw : Form::partial,
                        .local_form = form,
                        .result = last ? Form::final : Form::partial});
        form = Form::partial;
    }
    return mine;
}

/// Allgather: the same exchanges backwards, of finished chunks.
void redouble(Lane& lane, const Workers& workers, uint32_t mine) {
    for (Rank distance = workers.count / 2; distance > 0; distance /= 2) {
        const uint32_t half = workers.half_at(distance);
        const Rank other = workers.me ^ distance, peer = workers.rank_of(other);
        const bool lower = workers.me < other;
        lane.push_back({.local = Region::output(mine),
                        .send = peer,
                        .chunks = half,
                        .local_form = Form::final,
                        .result = Form::final});
        lane.push_back({.recv = peer,
                        .out = Region::output(lower ? mine + half : mine - half),
                        .chunks = half,
                        .in = Form::final,
                        .result = Form::final});
        if (!lower) mine -= half;
    }
}

}  // namespace

/// Rabenseifner's allreduce: reduce-scatter by recursive halving, allgather by recursive doubling.
/// In round k of the first phase, ranks 2^k apart exchange half of the chunks that they still work
/// on, near ranks first, so that contributions meet in rank order. The second phase goes the same
/// way back. With n not a power of two, the first 2(n - 2^m) ranks pair up: the odd rank of a pair
/// works for both, the even rank receives the result at the end.
/// Chunks: 2^m × lanes, the largest power of two ≤ n. Scratch: as many slots. Any rank count ≥ 1.
/// Credits: 1. In place and out of place. Generated in O(log n) per lane.
/// Cost: 2m rounds (+2 unless n = 2^m); each rank sends 2(2^m-1)/2^m of the bytes
/// (bandwidth-optimal; a rank that works for two sends them once more).
/// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
Schedule rabenseifner_allreduce(const ScheduleRequest& request) {
    const Rank n = request.ranks, me = request.rank;
    const uint32_t power = std::bit_floor(static_cast<uint32_t>(n));
    const Rank pairs = n - static_cast<Rank>(power);
    const bool paired = me < 2 * pairs, works = !paired || me % 2 == 1;
    const Workers workers{static_cast<Rank>(power), pairs, paired ? me / 2 : me - pairs};
    // Pairs move halves, too, so that the longest message is the same for all ranks.
    const uint32_t half = power / 2;
    Schedule schedule;
    schedule.chunks = power * request.lanes;
    schedule.longest_run = std::max(1u, half);
    schedule.scratch_slots = schedule.chunks;
    for (uint32_t first = 0; first < schedule.chunks; first += power) {
        Lane lane;
        if (n == 1)
            lane.push_back({.local = Region::input(first),
                            .out = Region::output(first),
                            .result = Form::final});
        for (uint32_t chunk : {first, first + half}) {
            const Region in = Region::input(chunk), sum = Region::scratch(chunk, chunk);
            if (!works)
                lane.push_back({.local = in, .send = me + 1, .chunks = half});
            else if (paired)
                lane.push_back({.recv = me - 1,
                                .local = in,
                                .out = sum,
                                .chunks = half,
                                .result = Form::partial});
        }
        if (works && n > 1) redouble(lane, workers, halve(lane, workers, first));
        for (uint32_t chunk : {first, first + half}) {
            if (!paired) continue;
            Step result{.chunks = half, .result = Form::final};
            if (works) {
                result.local = Region::output(chunk);
                result.local_form = Form::final;
                result.send = me - 1;
            } else {
                result.recv = me + 1;
                result.in = Form::final;
                result.out = Region::output(chunk);
            }
            lane.push_back(result);
        }
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

}  // namespace tutti
