/**
 * @file recovery.h
 * @brief Calls that go on after a failure or change the ranks: agree, shrink, revoke, grow, leave
 *        and reconfigure. Part of tutti.h, which includes it.
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
 * excluded this one, or it is cut off from the majority of the ranks), UNSUPPORTED (in a forked
 * child), and those of making a communicator.
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
/** Makes a communicator of the ranks of comm, which keep their numbers, and of `newcomers` (1 to
 *  1024) processes, which get the numbers after them. A newcomer is a new process with TUTTI_JOIN=1
 *  (the setting "join") and the job's TUTTI_STORE, TUTTI_JOB and TUTTI_SECRET, but without a rank
 *  and a size: it calls tutti_comm_create, which returns its part of the same communicator. All
 *  ranks of comm call this with the same number. It waits for the newcomers up to the
 *  communicator's deadline (TIMEOUT: too few came). PEER_LOST: a rank of comm is lost or has left
 *  (call tutti_comm_shrink first). After any other failure of comm it returns that failure. On an
 *  error no rank of comm gets a communicator; comm stays as it is in any case, and may grow again.
 *  *larger is set with OK only. INVALID if tutti_comm_reconfigure has made comm: newcomers have no
 *  store then. MISMATCH: the ranks gave different numbers. */
TUTTI_API tutti_status tutti_comm_grow(tutti_comm* comm, int newcomers, tutti_comm** larger);
/** Sets *newcomers to the number of processes that wait in the job's store to join, which a grow of
 *  that many would take at once. No other rank takes part, and each may get another number: let
 *  rank 0 ask, and tell the others. If the process that served the store has ended, this rank
 *  serves it anew, so that newcomers find it. Errors: INVALID (a job without a store), those of the
 *  store. */
TUTTI_API tutti_status tutti_comm_waiting(tutti_comm* comm, int* newcomers);
/** Takes this rank out of comm: finishes the operations that it has issued, and says goodbye. The
 *  next collective of the other ranks ends with PEER_LOST ("rank 2 has left"), and their next agree
 *  or shrink does not wait for this rank. Later calls with comm end with INVALID here;
 *  tutti_comm_destroy is still due. Works after every failure. From the issuing thread. */
TUTTI_API tutti_status tutti_comm_leave(tutti_comm* comm);

/*
 * Communicators of processes that exchange their addresses themselves, without a store:
 *
 *     char handle[TUTTI_MAX_HANDLE_BYTES];
 *     size_t bytes;
 *     tutti_comm_get_handle(NULL, handle, sizeof handle, &bytes);
 *     ...                    give it to the other processes, and gather theirs
 *     tutti_comm_reconfigure(NULL, "step 1", handles, sizes, count, -1, &comm);
 *
 * After a loss, or when a process is to join, the processes call tutti_comm_reconfigure again with
 * the handles of the new set. They keep their handles.
 */

/** A handle has at most so many bytes. */
#define TUTTI_MAX_HANDLE_BYTES 1024

/** Writes the handle of this process: bytes without a meaning for the program, which lead to it for
 *  as long as it lives. config: NULL is the environment; size and store have no meaning. The same
 *  job, secret, iface, insecure and rank give the same handle, so several ranks in one process set
 *  different ranks here, which need not be those of a communicator. The first call starts a thread
 *  that listens on the usual address (TUTTI_IFACE): without a secret on loopback only, unless
 *  insecure is set. The handle proves that its process knows the secret, and does not tell the
 *  secret. *bytes is the handle's length, also with INVALID for a capacity that is too small;
 *  handle may be NULL if capacity is 0. Other errors: INVALID (a setting; a job's name of more than
 *  512 bytes), SYSTEM. */
TUTTI_API tutti_status tutti_comm_get_handle(const tutti_config* config, void* handle,
                                             size_t capacity, size_t* bytes);
/** Makes a communicator of the processes of these handles. All of them call it with the same uuid
 *  and the same handles in the same order, which is the order of the ranks; this process is one of
 *  them. config: as for its tutti_comm_get_handle. uuid: a text of 1 to 256 bytes, which no earlier
 *  call of these processes had, also if that call failed. timeout_ms: for this call; < 0: the
 *  configuration's; 0: none. Operations of the communicator have the configuration's. Other
 *  communicators of the process, working or failed, stay as they are. Afterwards the ranks need no
 *  process to meet: if the first one ends, it is a lost rank as any other. *comm is set with OK
 *  only. Errors: INVALID (an argument; a handle that is cut short, damaged, given twice or of
 *  another job; no handle of this process; a uuid that was used), UNSUPPORTED (a handle of another
 *  version), AUTH (a handle of a process with another secret), MISMATCH (the processes have
 *  different lists), PEER_LOST (a process has ended), TIMEOUT (names the ranks that did not come),
 *  and those of tutti_comm_create. */
TUTTI_API tutti_status tutti_comm_reconfigure(const tutti_config* config, const char* uuid,
                                              const void* const* handles,
                                              const size_t* handle_bytes, int count,
                                              int64_t timeout_ms, tutti_comm** comm);

#ifdef __cplusplus
}
#endif

#endif
