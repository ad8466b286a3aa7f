/**
 * @file recovery.h
 * @brief Calls that go on after a failure: agree, shrink and revoke. Part of tutti.h, which
 *        includes it.
 *
 * When a rank is lost, every survivor's operation ends with an error, but some survivors may have
 * finished the operation and go on to the next one. So a program that wants to go on makes these
 * calls on every survivor:
 *
 *     if (status != TUTTI_OK) {
 *         tutti_comm_revoke(comm);                  // no rank waits in an operation any more
 *         tutti_comm_shrink(comm, &smaller);        // the survivors' communicator
 *         tutti_comm_destroy(comm);
 *         comm = smaller;
 *     }
 *
 * tutti_comm_agree, tutti_comm_shrink and tutti_comm_shrink_without work on a healthy communicator,
 * and after PEER_LOST, TIMEOUT, ABORTED, REVOKED and every other failure. The ranks that remain
 * make these calls in the same order; the order of other operations does not matter. They block.
 * Ranks that die meanwhile are part of the result. They have the communicator's deadline: if a
 * rank that is alive does not call, they end with TIMEOUT and name it. Then the outcome is unknown
 * to this rank, and the next such call is a new one: shrink_without can leave that rank out.
 *
 * Errors of these three: INVALID (an argument, a second thread inside such a call, a completion
 * callback), MISMATCH (the ranks made different calls), TIMEOUT, PEER_LOST (the other ranks have
 * excluded this one), UNSUPPORTED (in a forked child), and those of making a communicator.
 */
#ifndef TUTTI_RECOVERY_H
#define TUTTI_RECOVERY_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Makes a communicator of the ranks that are still alive and have not left, ranked in their order
 *  here. All of them get the same members. comm stays as it is and can be destroyed at any time.
 *  *smaller is set with OK only. */
TUTTI_API tutti_status tutti_comm_shrink(tutti_comm* comm, tutti_comm** smaller);
/** The same without the named ranks of comm, alive or not; they do not call. All callers name the
 *  same ranks, or get MISMATCH. If a named rank is alive, operations of comm end with REVOKED on
 *  all ranks. count 0: as tutti_comm_shrink. INVALID for a rank that comm lacks or that is named
 *  twice, and for this rank itself. */
TUTTI_API tutti_status tutti_comm_shrink_without(tutti_comm* comm, const int* ranks, size_t count,
                                                 tutti_comm** smaller);
/** Replaces *bits by the bitwise and over the callers' bits: the same result on all of them. The
 *  bits of a rank that dies during the call may be in it or not. */
TUTTI_API tutti_status tutti_comm_agree(tutti_comm* comm, uint64_t* bits);
/** The ranks that are no members any more, as the last successful agree, shrink or shrink_without
 *  has decided: the same on all callers, in ascending order, none before the first such call.
 *  Copies at most capacity of them and sets *count to their number; ranks may be NULL if capacity
 *  is 0. Sends nothing. */
TUTTI_API tutti_status tutti_comm_lost(const tutti_comm* comm, int* ranks, size_t capacity,
                                       size_t* count);
/** Ends every pending and later operation of comm on all ranks with REVOKED, which names this rank;
 *  agree and shrink still work. From any thread. After tutti_comm_abort it changes nothing. */
TUTTI_API tutti_status tutti_comm_revoke(tutti_comm* comm);

#ifdef __cplusplus
}
#endif

#endif
