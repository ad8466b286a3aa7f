// The cost of each algorithm of the catalog in closed form; a test compares it with the verifier's.
#pragma once

#include "base/types.h"
#include "schedule/cost.h"

namespace tutti::costs {

// Costs of the steps within a host, for two-level algorithms.
Cost within_host_broadcast(Rank ranks);
Cost within_host_reduce(Rank ranks);
Cost within_host_one(Rank ranks);
Cost within_host_barrier(Rank ranks);

Cost ring_allreduce(Rank ranks);
Cost multi_ring_allreduce(Rank ranks);
Cost recursive_doubling_allreduce(Rank ranks);
Cost halving_allreduce(Rank ranks);  // rabenseifner
Cost circulant_allreduce(Rank ranks);
Cost direct_allreduce(Rank ranks);
Cost double_binary_tree_allreduce(Rank ranks);
Cost binomial_broadcast(Rank ranks);
Cost knomial_broadcast(Rank ranks);
Cost chain_broadcast(Rank ranks);
Cost double_binary_tree_broadcast(Rank ranks);
Cost dissemination_barrier(Rank ranks);
Cost binomial_reduce(Rank ranks);
Cost knomial_reduce(Rank ranks);
Cost chain_reduce(Rank ranks);
Cost chain_scan(Rank ranks);
Cost chain_exscan(Rank ranks);
Cost double_binary_tree_reduce(Rank ranks);
Cost ring_allgather(Rank ranks);
Cost multi_ring_allgather(Rank ranks);
Cost bruck_allgather(Rank ranks);
Cost direct_allgather(Rank ranks);
Cost ring_reduce_scatter(Rank ranks);
Cost multi_ring_reduce_scatter(Rank ranks);
Cost direct_reduce_scatter(Rank ranks);
Cost circulant_reduce_scatter(Rank ranks);
Cost direct_gather(Rank ranks);    // scatter too
Cost binomial_gather(Rank ranks);  // scatter too
Cost pairwise_alltoall(Rank ranks);
Cost bruck_alltoall(Rank ranks);
Cost recursive_doubling_scan(Rank ranks);
Cost recursive_doubling_exscan(Rank ranks);

}  // namespace tutti::costs
