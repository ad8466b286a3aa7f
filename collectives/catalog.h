// All schedule algorithms, in one table. Each has a .cpp file; a test fails for a file that is not
// in the table.
#pragma once

#include <span>

#include "schedule/schedule.h"

namespace tutti {

Schedule ring_allreduce(const ScheduleRequest& request);
Schedule recursive_doubling_allreduce(const ScheduleRequest& request);
Schedule rabenseifner_allreduce(const ScheduleRequest& request);
Schedule circulant_allreduce(const ScheduleRequest& request);
Schedule direct_allreduce(const ScheduleRequest& request);
Schedule double_binary_tree_allreduce(const ScheduleRequest& request);
Schedule multi_ring_allreduce(const ScheduleRequest& request);
Schedule hierarchical_allreduce(const ScheduleRequest& request);
Schedule hierarchical_doubling_allreduce(const ScheduleRequest& request);
Schedule binomial_broadcast(const ScheduleRequest& request);
Schedule knomial_broadcast(const ScheduleRequest& request);
Schedule chain_broadcast(const ScheduleRequest& request);
Schedule double_binary_tree_broadcast(const ScheduleRequest& request);
Schedule hierarchical_broadcast(const ScheduleRequest& request);
Schedule dissemination_barrier(const ScheduleRequest& request);
Schedule hierarchical_barrier(const ScheduleRequest& request);
Schedule binomial_reduce(const ScheduleRequest& request);
Schedule knomial_reduce(const ScheduleRequest& request);
Schedule chain_reduce(const ScheduleRequest& request);
Schedule double_binary_tree_reduce(const ScheduleRequest& request);
Schedule hierarchical_reduce(const ScheduleRequest& request);
Schedule ring_allgather(const ScheduleRequest& request);
Schedule bruck_allgather(const ScheduleRequest& request);
Schedule direct_allgather(const ScheduleRequest& request);
Schedule multi_ring_allgather(const ScheduleRequest& request);
Schedule hierarchical_allgather(const ScheduleRequest& request);
Schedule ring_reduce_scatter(const ScheduleRequest& request);
Schedule direct_reduce_scatter(const ScheduleRequest& request);
Schedule circulant_reduce_scatter(const ScheduleRequest& request);
Schedule multi_ring_reduce_scatter(const ScheduleRequest& request);
Schedule hierarchical_reduce_scatter(const ScheduleRequest& request);
Schedule direct_gather(const ScheduleRequest& request);
Schedule binomial_gather(const ScheduleRequest& request);
Schedule direct_scatter(const ScheduleRequest& request);
Schedule binomial_scatter(const ScheduleRequest& request);
Schedule pairwise_alltoall(const ScheduleRequest& request);
Schedule bruck_alltoall(const ScheduleRequest& request);
Schedule chain_scan(const ScheduleRequest& request);
Schedule recursive_doubling_scan(const ScheduleRequest& request);
Schedule chain_exscan(const ScheduleRequest& request);
Schedule recursive_doubling_exscan(const ScheduleRequest& request);

std::span<const Algorithm> algorithms();

/// nullptr if the collective has no algorithm of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);

}  // namespace tutti
