#include "collectives/catalog.h"

namespace tutti {
namespace {

constexpr Algorithm entries[] = {
    {"ring", Collective::allreduce,
     "reduce-scatter then allgather around a ring: bandwidth-optimal, 2(n-1) hops", ring_allreduce,
     /*reorders=*/true},
    {"recursive_doubling", Collective::allreduce,
     "pairs exchange everything, at doubling distances: log2(n) rounds",
     recursive_doubling_allreduce},
    {"binomial", Collective::broadcast,
     "a binomial tree from the root: log2(n) rounds of the whole message", binomial_broadcast},
    {"chain", Collective::broadcast,
     "rank after rank, tile by tile: each rank sends the message once", chain_broadcast},
    {"dissemination", Collective::barrier,
     "everyone tells a neighbour at doubling distances: log2(n) rounds", dissemination_barrier},
    {"binomial", Collective::reduce,
     "a binomial tree to the root: log2(n) rounds of the whole message, in rank order",
     binomial_reduce},
    {"chain", Collective::reduce, "rank after rank, tile by tile: each rank sends the message once",
     chain_reduce, /*reorders=*/true},
    {"chain", Collective::scan, "rank after rank, tile by tile: each rank sends the message once",
     chain_scan},
    {"recursive_doubling", Collective::scan,
     "sums of 2^k ranks move 2^k ahead: log2(n) rounds of the whole message",
     recursive_doubling_scan},
    {"chain", Collective::exscan, "rank after rank, tile by tile: each rank sends the message once",
     chain_exscan},
    {"recursive_doubling", Collective::exscan,
     "sums of 2^k ranks move 2^k ahead: log2(n) rounds of the whole message",
     recursive_doubling_exscan},
    {"direct", Collective::gather, "everyone sends to the root: one hop, n-1 messages to one rank",
     direct_gather},
    {"direct", Collective::scatter, "the root sends to everyone: one hop, n-1 messages of one rank",
     direct_scatter},
    {"binomial", Collective::gather,
     "a binomial tree to the root, runs of blocks doubling: log2(n) rounds", binomial_gather,
     /*reorders=*/false, /*even_only=*/true},
    {"binomial", Collective::scatter,
     "a binomial tree from the root, runs of blocks halving: log2(n) rounds", binomial_scatter,
     /*reorders=*/false, /*even_only=*/true},
    {"knomial", Collective::broadcast,
     "a radix-4 tree from the root: log4(n) rounds of up to three messages", knomial_broadcast},
    {"knomial", Collective::reduce,
     "a radix-4 tree to the root: log4(n) rounds of up to three messages, in rank order",
     knomial_reduce},
    {"double_binary_tree", Collective::broadcast,
     "a binary tree for each half of the message: log2(n) hops, bandwidth-optimal",
     double_binary_tree_broadcast},
    {"double_binary_tree", Collective::reduce,
     "a binary tree for each half of the message: log2(n) hops, bandwidth-optimal",
     double_binary_tree_reduce, /*reorders=*/true},
    {"double_binary_tree", Collective::allreduce,
     "up and down a binary tree for each half of the message: 2 log2(n) hops, bandwidth-optimal",
     double_binary_tree_allreduce, /*reorders=*/true},
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
