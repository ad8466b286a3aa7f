/**
 * @file inspect.h
 * @brief Questions to a communicator that send nothing: the time that calls would take, and the
 * memory in use. Part of libtutti, as tutti.h is.
 */
#ifndef TUTTI_INSPECT_H
#define TUTTI_INSPECT_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- estimates of time ----------------------------------------------------------------------- */

/** From here to tutti_estimate_end, this thread's collectives on comm are planned, not made: they
 *  check their arguments and choose an algorithm, but touch no buffer, send nothing and take no
 *  place in the order of operations. So one rank can estimate alone. A blocking call returns at
 *  once, and a request is done at once. Runs of plans count, too. UNSUPPORTED in between: device
 *  memory, messages between two ranks, and algorithms that the cost model does not cover. Other
 *  functions work as usual. INVALID if comm has an estimate already. */
TUTTI_API tutti_status tutti_estimate_begin(tutti_comm* comm);
/** Writes the sum of the times that the cost model predicts for these calls, one after the other,
 *  from the time at which all ranks have called; refused calls add nothing. For gatherv, scatterv
 *  and alltoallv it is the time for the blocks that this rank knows. From here on calls are made
 *  again. INVALID without a tutti_estimate_begin of this thread. */
TUTTI_API tutti_status tutti_estimate_end(tutti_comm* comm, double* microseconds);

/* ---- memory in use --------------------------------------------------------------------------- */

/** Host memory that a communicator uses, and memory for messages that all communicators of the
 *  process share. Start from TUTTI_MEMORY_STATS_INIT. */
typedef struct {
    size_t struct_size;      /**< sizeof(tutti_memory_stats) */
    size_t allocated_bytes;  /**< tutti_mem_alloc's that is not freed: whole pages */
    size_t registered_bytes; /**< the program's own, registered with tutti_mem_register */
    size_t work_bytes;       /**< intermediate results of plans */
    size_t recorder_bytes;   /**< entries of the flight recorder */
    size_t mapped_bytes;     /**< of the process: shared memory for messages, its own and its
                                  peers'; unused pages of it take no memory */
    size_t cell_bytes;       /**< of the process: large messages of transports without shared
                                  memory */
} tutti_memory_stats;
#define TUTTI_MEMORY_STATS_INIT {sizeof(tutti_memory_stats), 0, 0, 0, 0, 0, 0}

/** Writes the current numbers. Only the issuing thread calls it. INVALID if struct_size is too
 *  small. */
TUTTI_API tutti_status tutti_comm_memory(tutti_comm* comm, tutti_memory_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
