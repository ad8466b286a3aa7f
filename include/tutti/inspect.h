/**
 * @file inspect.h
 * @brief Questions to a communicator that send nothing: the time that calls would take. Part of
 * libtutti, as tutti.h is.
 */
#ifndef TUTTI_INSPECT_H
#define TUTTI_INSPECT_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- estimates of time ------------------------------------------------------------------------ */

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

#ifdef __cplusplus
}
#endif
#endif
