/**
 * @file plans.h
 * @brief Persistent operations: bound once, run many times. Part of tutti.h, which includes it.
 *
 * A plan is a collective on a communicator with all arguments but the buffers. A run of it
 * allocates nothing, takes no lock and looks nothing up. MPI's counterpart is MPI_Allreduce_init.
 *
 * The arguments, the rules for buffers and the errors are those of the collective of the same name.
 * Collective: all ranks make the same plans in the same order, and start them in the same order
 * among their other operations. opts (NULL: the defaults) hold for all runs.
 */
#ifndef TUTTI_PLANS_H
#define TUTTI_PLANS_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Binds an allreduce: chooses its algorithm and opens its channels. Give the plan back with
 *  tutti_plan_destroy. */
TUTTI_API tutti_status tutti_plan_allreduce(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                            tutti_op op, const tutti_call_opts* opts,
                                            tutti_plan** plan);
/** As tutti_allreduce_multi of nin buffers. in of tutti_plan_start and tutti_plan_run is the list
 *  of inputs (const void* const*), which they copy; list and buffers may differ in each run. */
TUTTI_API tutti_status tutti_plan_allreduce_multi(tutti_comm* comm, int nin, size_t count,
                                                  tutti_dtype dtype, tutti_op op,
                                                  const tutti_call_opts* opts, tutti_plan** plan);
/** A broadcast; start it with in == out. */
TUTTI_API tutti_status tutti_plan_broadcast(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                            int root, const tutti_call_opts* opts,
                                            tutti_plan** plan);
/** A barrier; start it with NULL buffers. */
TUTTI_API tutti_status tutti_plan_barrier(tutti_comm* comm, const tutti_call_opts* opts,
                                          tutti_plan** plan);
/** As tutti_reduce, without its buffers. */
TUTTI_API tutti_status tutti_plan_reduce(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                         tutti_op op, int root, const tutti_call_opts* opts,
                                         tutti_plan** plan);
/** As tutti_allgather, without its buffers. */
TUTTI_API tutti_status tutti_plan_allgather(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                            const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_allgatherv, without its buffers. */
TUTTI_API tutti_status tutti_plan_allgatherv(tutti_comm* comm, const size_t* counts,
                                             const size_t* displacements, tutti_dtype dtype,
                                             const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_reduce_scatter, without its buffers. */
TUTTI_API tutti_status tutti_plan_reduce_scatter(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                                 tutti_op op, const tutti_call_opts* opts,
                                                 tutti_plan** plan);
/** As tutti_reduce_scatterv, without its buffers. */
TUTTI_API tutti_status tutti_plan_reduce_scatterv(tutti_comm* comm, const size_t* counts,
                                                  tutti_dtype dtype, tutti_op op,
                                                  const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_gather, without its buffers. */
TUTTI_API tutti_status tutti_plan_gather(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                         int root, const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_gatherv, without its buffers. */
TUTTI_API tutti_status tutti_plan_gatherv(tutti_comm* comm, size_t in_count, const size_t* counts,
                                          const size_t* displacements, tutti_dtype dtype, int root,
                                          const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_scatter, without its buffers. */
TUTTI_API tutti_status tutti_plan_scatter(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                          int root, const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_scatterv, without its buffers. */
TUTTI_API tutti_status tutti_plan_scatterv(tutti_comm* comm, const size_t* counts,
                                           const size_t* displacements, size_t out_count,
                                           tutti_dtype dtype, int root, const tutti_call_opts* opts,
                                           tutti_plan** plan);
/** As tutti_alltoall, without its buffers. */
TUTTI_API tutti_status tutti_plan_alltoall(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                           const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_alltoallv, without its buffers. */
TUTTI_API tutti_status tutti_plan_alltoallv(tutti_comm* comm, const size_t* in_counts,
                                            const size_t* in_displacements,
                                            const size_t* out_counts,
                                            const size_t* out_displacements, tutti_dtype dtype,
                                            const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_scan, without its buffers. */
TUTTI_API tutti_status tutti_plan_scan(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                       tutti_op op, const tutti_call_opts* opts, tutti_plan** plan);
/** As tutti_exscan, without its buffers. */
TUTTI_API tutti_status tutti_plan_exscan(tutti_comm* comm, size_t count, tutti_dtype dtype,
                                         tutti_op op, const tutti_call_opts* opts,
                                         tutti_plan** plan);
/** Starts a run on these buffers, which may be others in each run; the request owns them until it
 *  is done. INVALID while the previous run is not done. */
TUTTI_API tutti_status tutti_plan_start(tutti_plan* plan, const void* in, void* out,
                                        tutti_request** request);
/** Runs the plan and waits for it. INVALID while a run that was started is not done. */
TUTTI_API tutti_status tutti_plan_run(tutti_plan* plan, const void* in, void* out);
/** Call it after the last run. NULL is fine. */
TUTTI_API void tutti_plan_destroy(tutti_plan* plan);

#ifdef __cplusplus
}
#endif
#endif
