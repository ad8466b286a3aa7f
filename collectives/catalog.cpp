#include "collectives/catalog.h"

namespace tutti {
namespace {

constexpr Algorithm entries[] = {
    {"ring", Collective::allreduce,
     "reduce-scatter then allgather around a ring: bandwidth-optimal, 2(n-1) hops", ring_allreduce},
    {"recursive_doubling", Collective::allreduce,
     "pairs exchange everything, at doubling distances: log2(n) rounds",
     recursive_doubling_allreduce},
    {"binomial", Collective::broadcast,
     "a binomial tree from the root: log2(n) rounds of the whole message", binomial_broadcast},
    {"chain", Collective::broadcast,
     "rank after rank, tile by tile: each rank sends the message once", chain_broadcast},
    {"dissemination", Collective::barrier,
     "everyone tells a neighbour at doubling distances: log2(n) rounds", dissemination_barrier},
    {.name = "ring",
     .collective = Collective::allgather,
     .summary = "blocks go round a ring: bandwidth-optimal, n-1 hops",
     .make = ring_allgather},
    {.name = "bruck",
     .collective = Collective::allgather,
     .summary = "runs of blocks at doubling distances: bandwidth-optimal, log2(n) rounds",
     .make = bruck_allgather},
    {.name = "direct",
     .collective = Collective::allgather,
     .summary = "everyone sends its block to everyone: one round of n-1 messages",
     .make = direct_allgather},
    {.name = "ring",
     .collective = Collective::reduce_scatter,
     .summary = "blocks gather sums around a ring: bandwidth-optimal, n-1 hops",
     .make = ring_reduce_scatter,
     .reorders = true},
    {.name = "direct",
     .collective = Collective::reduce_scatter,
     .summary = "every owner hears all: one round, one rounding, in rank order",
     .make = direct_reduce_scatter},
    {.name = "circulant",
     .collective = Collective::reduce_scatter,
     .summary = "halves of what is left, any n: bandwidth-optimal, log2(n) rounds",
     .make = circulant_reduce_scatter,
     .reorders = true},
    {.name = "pairwise",
     .collective = Collective::alltoall,
     .summary = "exchange with the ranks k ahead and behind, k = 1, 2 …: each block travels once",
     .make = pairwise_alltoall},
    {.name = "bruck",
     .collective = Collective::alltoall,
     .summary = "blocks travel together by powers of two: log2(n) rounds; equal blocks only",
     .make = bruck_alltoall,
     .even_only = true},
    {.name = "rabenseifner",
     .collective = Collective::allreduce,
     .summary = "halving reduce-scatter, doubling allgather: 2 log2(n) rounds, bandwidth-optimal",
     .make = rabenseifner_allreduce},
    {.name = "circulant",
     .collective = Collective::allreduce,
     .summary = "halves of what is left and back, any n: bandwidth-optimal, 2 log2(n) rounds",
     .make = circulant_allreduce,
     .reorders = true},
    {.name = "direct",
     .collective = Collective::allreduce,
     .summary = "every owner hears all and tells all: two rounds, one rounding, in rank order",
     .make = direct_allreduce},
};

}  // namespace

std::span<const Algorithm> algorithms() {
    return entries;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
    for (const Algorithm& a : entries)
        if (a.collective == collective && a.name == name) return &a;
    return nullptr;
}

}  // namespace tutti
