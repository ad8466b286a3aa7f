#include "collectives/costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::costs {
namespace {

uint32_t count(Rank n) {
    return static_cast<uint32_t>(std::max<Rank>(n, 1));
}
// ⌈log2 n⌉, ⌊log2 n⌋: rounds at doubling distances.
double log_up(Rank n) {
    return std::bit_width(count(n) - 1);
}
double log_down(Rank n) {
    return std::bit_width(count(n)) - 1;
}
// ⌈log4 n⌉: rounds of a radix-4 tree.
double log4_up(Rank n) {
    return std::ceil(log_up(n) / 2);
}
bool is_power(Rank n) {
    return std::has_single_bit(count(n));
}
// All blocks but one, as a fraction of the whole.
double others(Rank n) {
    return 1 - 1.0 / count(n);
}
double peers(Rank n) {
    return count(n) - 1;
}
// Block i of n travels its distance in powers of two, one hop for each set bit of i; this is the
// mean.
double hops_by_powers(Rank n) {
    uint64_t ones = 0;
    for (uint64_t bit = 1; bit < count(n); bit *= 2) {
        const uint64_t over = count(n) % (2 * bit);
        ones += count(n) / (2 * bit) * bit + (over > bit ? over - bit : 0);
    }
    return static_cast<double>(ones) / count(n);
}
// A circulant reduce-scatter's first message has half of the blocks.
double first_half(Rank n) {
    return std::floor(count(n) / 2.0) / count(n);
}

// Counts rank 0's leaves in a k-nomial tree: its nearest children, and in some trees the last rank.
double leaves_below_top(Rank n, Rank radix) {
    double leaves = std::min<double>(radix - 1, peers(n));
    for (Rank width = radix; width < n; width *= radix)
        if ((n - 1) % width == 0 && (n - 1) / width < radix) ++leaves;
    return leaves;
}

// Partial bytes: a rank first sends raw inputs, and then partial results.
double partial(double bytes, double raw) {
    return std::max(0.0, bytes - raw);
}

// A reduction reverses a broadcast's tree: a rank that sends often in the broadcast adds often.
Cost reversed(Cost cost, double raw) {
    cost.reduced = cost.busy;
    cost.partial = partial(cost.busy, raw);
    return cost;
}

// Doubles the messages for two directions, each with half of the bytes.
Cost both_ways(Cost cost, Rank n) {
    cost.messages *= 2;
    cost.peers = std::min(2.0, peers(n));
    return cost;
}

}  // namespace

Cost ring_allreduce(Rank n) {
    const double bytes = 2 * others(n);
    return {.hops = 2 * peers(n),
            .messages = 2 * peers(n),
            .path = bytes,
            .busy = bytes,
            .partial = partial(others(n), 1.0 / count(n)),
            .reduced = others(n),
            .peers = std::min(1.0, peers(n)),
            .share = bytes};
}

Cost multi_ring_allreduce(Rank n) {
    return both_ways(ring_allreduce(n), n);
}

Cost recursive_doubling_allreduce(Rank n) {
    // Ranks beyond a power of two send their part first and receive the result at the end.
    const double rounds = log_down(n), extra = is_power(n) ? 0 : 1;
    const double core = std::bit_floor(count(n));
    return {.hops = rounds + 2 * extra,
            .messages = rounds + extra,
            .path = rounds + 2 * extra,
            .busy = rounds + extra,
            .partial = partial(rounds + extra, 1),
            .reduced = rounds + extra,
            .peers = rounds + extra,
            .share = (core * rounds + 2 * (count(n) - core)) / count(n)};
}

Cost halving_allreduce(Rank n) {
    const double rounds = 2 * log_down(n), extra = is_power(n) ? 0 : 1;
    const double core = std::bit_floor(count(n)), bytes = 2 * (1 - 1 / core);
    return {.hops = rounds + 2 * extra,
            .messages = rounds + 2 * extra,
            .path = bytes + 2 * extra,
            .busy = bytes + extra,
            .partial = partial(bytes / 2, extra > 0 ? 0 : 0.5),
            .reduced = bytes / 2 + extra,
            .peers = rounds / 2 + extra,
            .share = (core * bytes + 2 * (count(n) - core)) / count(n),
            .each = (core * rounds + 4 * (count(n) - core)) / count(n)};
}

Cost circulant_allreduce(Rank n) {
    const double bytes = 2 * others(n);
    return {.hops = 2 * log_up(n),
            .messages = 2 * log_up(n),
            .path = bytes,
            .busy = bytes,
            .partial = partial(others(n), first_half(n)),
            .reduced = others(n),
            .peers = std::min(peers(n), 2 * log_up(n) - (n % 2 == 0)),
            .share = bytes};
}

Cost direct_allreduce(Rank n) {
    const double bytes = 2 * others(n);
    return {.hops = std::min(2.0, 2 * peers(n)),
            .messages = 2 * peers(n),
            .path = bytes,
            .busy = bytes,
            .reduced = others(n),
            .peers = peers(n),
            .share = bytes};
}

// The root sends a part to each carrier, and every carrier sends its part to all ranks of the host.
Cost within_host_broadcast(Rank n) {
    Cost cost = direct_allreduce(n);
    cost.reduced = 0;
    return cost;
}

// A carrier adds each rank's part, and sends the sum to the root.
Cost within_host_reduce(Rank n) {
    return direct_allreduce(n);
}

// One rank receives from all and sends to all.
Cost within_host_one(Rank n) {
    return {.hops = std::min(2.0, 2 * peers(n)),
            .messages = 2 * peers(n),
            .path = 2 * peers(n),
            .busy = 2 * peers(n),
            .reduced = peers(n),
            .peers = peers(n),
            .share = 2 * others(n)};
}

Cost within_host_barrier(Rank n) {
    return {.hops = std::min(2.0, 2 * peers(n)), .messages = 2 * peers(n), .peers = peers(n)};
}

// Half of the message in each tree: a rank is inner in one of them (two children) and a leaf in the
// other.
Cost double_binary_tree_broadcast(Rank n) {
    const double levels = log_up(n), any = std::min(1.0, levels);
    return {.hops = levels,
            .messages = 2 * any,
            .path = levels,
            .busy = any,
            .peers = std::min(2.0, peers(n)),
            .share = others(n)};
}

Cost double_binary_tree_reduce(Rank n) {
    return reversed(double_binary_tree_broadcast(n), n == 2 ? 1 : 0);
}

// Up one tree and down it: a rank that is inner in one tree and a leaf in the other sends up to its
// two parents and down to its two children. With three ranks no rank has all four.
Cost double_binary_tree_allreduce(Rank n) {
    Cost cost = double_binary_tree_reduce(n);
    cost.hops *= 2;
    cost.messages = std::min(4.0, count(n) * std::min(1.0, peers(n)));
    cost.path *= 2;
    cost.busy = cost.messages / 2;
    cost.peers = n < 6 ? std::min(3.0, peers(n)) : 4;
    cost.share *= 2;
    return cost;
}

Cost binomial_broadcast(Rank n) {
    const double rounds = log_up(n);
    return {.hops = rounds,
            .messages = rounds,
            .path = rounds,
            .busy = rounds,
            .peers = rounds,
            .share = others(n)};
}

Cost knomial_broadcast(Rank n) {
    double messages = 0;  // of the root: up to 3 a round
    for (double width = 1; width < count(n); width *= 4)
        messages += std::min(3.0, std::ceil(count(n) / width) - 1);
    return {.hops = log4_up(n),
            .messages = messages,
            .path = messages,
            .busy = messages,
            .peers = messages,
            .share = others(n)};
}

Cost chain_broadcast(Rank n) {
    const double any = std::min(1.0, peers(n));
    return {.hops = peers(n),
            .messages = any,
            .path = peers(n),
            .busy = any,
            .peers = any,
            .share = others(n)};
}

Cost binomial_reduce(Rank n) {
    return reversed(binomial_broadcast(n), leaves_below_top(n, 2));
}
Cost knomial_reduce(Rank n) {
    return reversed(knomial_broadcast(n), leaves_below_top(n, 4));
}
Cost chain_reduce(Rank n) {
    return reversed(chain_broadcast(n), n == 2 ? 1 : 0);
}

// A rank adds once for its own result, and once for the next rank.
Cost chain_scan(Rank n) {
    Cost cost = chain_reduce(n);
    cost.reduced = std::min(2.0, peers(n));
    return cost;
}
// A rank receives its complete result; it adds only for the next rank.
Cost chain_exscan(Rank n) {
    Cost cost = chain_reduce(n);
    cost.reduced = n > 2 ? 1 : 0;
    return cost;
}

Cost dissemination_barrier(Rank n) {
    return {.hops = log_up(n), .messages = log_up(n), .peers = log_up(n)};
}

Cost ring_allgather(Rank n) {
    return {.hops = peers(n),
            .messages = peers(n),
            .path = others(n),
            .busy = others(n),
            .peers = std::min(1.0, peers(n)),
            .share = others(n)};
}

Cost multi_ring_allgather(Rank n) {
    return both_ways(ring_allgather(n), n);
}

Cost bruck_allgather(Rank n) {
    return {.hops = log_up(n),
            .messages = log_up(n),
            .path = others(n),
            .busy = others(n),
            .peers = log_up(n),
            .share = others(n)};
}

Cost direct_allgather(Rank n) {
    return {.hops = std::min(1.0, peers(n)),
            .messages = peers(n),
            .path = others(n),
            .busy = others(n),
            .peers = peers(n),
            .share = others(n)};
}

Cost ring_reduce_scatter(Rank n) {
    return reversed(ring_allgather(n), 1.0 / count(n));
}
Cost multi_ring_reduce_scatter(Rank n) {
    return both_ways(ring_reduce_scatter(n), n);
}
Cost circulant_reduce_scatter(Rank n) {
    return reversed(bruck_allgather(n), first_half(n));
}
Cost direct_reduce_scatter(Rank n) {
    return reversed(direct_allgather(n), others(n));
}

Cost direct_gather(Rank n) {
    return {.hops = std::min(1.0, peers(n)),
            .messages = peers(n),
            .path = others(n),
            .busy = others(n),
            .peers = peers(n),
            .share = others(n) / count(n)};
}

Cost binomial_gather(Rank n) {
    return {.hops = log_up(n),
            .messages = log_up(n),
            .path = others(n),
            .busy = others(n),
            .peers = log_up(n),
            .share = hops_by_powers(n) / count(n),
            .each = others(n)};
}

// Two messages at a time: from the rank k behind, to the rank k ahead.
Cost pairwise_alltoall(Rank n) {
    Cost cost = direct_allgather(n);
    cost.hops = std::ceil(peers(n) / 2);
    return cost;
}

Cost bruck_alltoall(Rank n) {
    const double bytes = hops_by_powers(n);
    return {.hops = log_up(n),
            .messages = log_up(n),
            .path = bytes,
            .busy = bytes,
            .peers = log_up(n),
            .share = bytes};
}

Cost recursive_doubling_scan(Rank n) {
    // The first 2^k ranks receive nothing in round k, and the last send nothing.
    const double rounds = log_up(n), idle = (std::exp2(rounds) - 1) / count(n);
    return {.hops = rounds,
            .messages = rounds,
            .path = rounds,
            .busy = rounds,
            .partial = partial(rounds, n > 3 ? 1 : rounds),
            .reduced = rounds,
            .peers = rounds,
            .share = rounds - idle};
}

// Two sums a round: one with the rank's input to send on, one without it for its result. Minus
// three: the first result is a copy, and no rank sends and receives in the last round.
Cost recursive_doubling_exscan(Rank n) {
    Cost cost = recursive_doubling_scan(n);
    cost.reduced = std::max(0.0, 2 * cost.reduced - 3);
    return cost;
}

}  // namespace tutti::costs
