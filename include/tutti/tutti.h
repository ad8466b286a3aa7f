/**
 * @file tutti.h
 * @brief tutti: collective communication between processes. C11 and C++; link with -ltutti.
 *
 * Every process of a job creates a communicator and then calls the same operations in the same
 * order. Counts are elements, sizes are bytes, times are milliseconds unless a name says otherwise.
 *
 * **Errors.** Every call returns a status. tutti_last_error() is a sentence about this thread's
 * last failure: the rank, the peer, the operation's number, the cause and what to do about it.
 *
 * **Threads.** Calls on one communicator are issued by one thread at a time. tutti_wait, tutti_test
 * and tutti_comm_abort may be called from any thread; different communicators are independent.
 *
 * **Buffers.** in == out means in place. Otherwise the buffers must not overlap. After a failure
 * they are valid memory with undefined contents. No alignment is required.
 *
 * **Device memory.** Collectives take GPU buffers as well as host buffers and tell them apart by
 * the pointer: see "device memory" below, and docs/reference/gpu.md.
 *
 * **Deadlines.** Every operation has one (the communicator's, or the call's own); passing it fails
 * the communicator on all ranks with TUTTI_ERR_TIMEOUT.
 *
 * Persistent operations are in plans.h and the calls after a failure in recovery.h, which this
 * header includes; estimates and memory in use are in inspect.h, which it does not.
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 2
#define TUTTI_VERSION_PATCH 0

typedef struct tutti_comm tutti_comm;       /**< a communicator: this rank's place in a group */
typedef struct tutti_request tutti_request; /**< a non-blocking operation in progress */
typedef struct tutti_plan tutti_plan;       /**< a persistent operation: bound once, run often */
typedef struct tutti_config tutti_config;   /**< settings for tutti_comm_create */

/** The outcome of a call. */
typedef enum {
    TUTTI_OK = 0,
    TUTTI_IN_PROGRESS,     /**< not done yet (test, and wait with a time-out of 0) */
    TUTTI_ERR_INVALID,     /**< an argument or setting is wrong; nothing was done */
    TUTTI_ERR_MISMATCH,    /**< the ranks called different things; the communicator works on */
    TUTTI_ERR_TIMEOUT,     /**< a deadline passed */
    TUTTI_ERR_PEER_LOST,   /**< a rank's process is gone; tutti_last_error_rank() says which */
    TUTTI_ERR_ABORTED,     /**< tutti_comm_abort was called, or the communicator destroyed */
    TUTTI_ERR_UNSUPPORTED, /**< this build, transport or algorithm cannot do it; the text says
                                which can */
    TUTTI_ERR_AUTH,        /**< the peer does not know the job's secret */
    TUTTI_ERR_SYSTEM,      /**< the operating system refused; the text has its reason */
    TUTTI_ERR_NO_MEMORY,   /**< memory or shared memory is exhausted */
    TUTTI_ERR_REVOKED      /**< a rank called tutti_comm_revoke */
} tutti_status;

/** An element type: one of the TUTTI_… constants below. */
typedef int32_t tutti_dtype;
enum {
    TUTTI_INT8 = 0,
    TUTTI_UINT8,
    TUTTI_INT16,
    TUTTI_UINT16,
    TUTTI_INT32,
    TUTTI_UINT32,
    TUTTI_INT64,
    TUTTI_UINT64,
    TUTTI_FLOAT16,
    TUTTI_BFLOAT16,
    TUTTI_FLOAT32,
    TUTTI_FLOAT64,
    TUTTI_FLOAT8_E4M3, /**< finite variant (no infinities), as on NVIDIA and in OCP FP8 */
    TUTTI_FLOAT8_E5M2
};

/** A reduction operator: one of these, or a handle from tutti_op_create and its like. Integers
 *  wrap; 16- and 8-bit floats add in fp32 and round once; max and min propagate NaN and order -0
 *  before +0; avg of integers truncates towards zero, and scan and exscan refuse avg; band, bor and
 *  bxor take integers only. docs/explanation/semantics.md has the rules for all operators. */
typedef int32_t tutti_op;
enum {
    TUTTI_SUM = 0,
    TUTTI_MAX,
    TUTTI_MIN,
    TUTTI_PROD,
    TUTTI_AVG,
    TUTTI_BAND,
    TUTTI_BOR,
    TUTTI_BXOR,
    TUTTI_OP_USER_FIRST = 1024 /**< handles of the program's own operators are this or more */
};

/** An operator of the program's own. Start from TUTTI_OP_SPEC_INIT. */
typedef struct {
    size_t struct_size; /**< sizeof(tutti_op_spec) */
    /** result[i] = first[i] ⊕ second[i] for count elements of dtype. first comes from lower ranks.
     *  result may be the same memory as first or second, otherwise it overlaps neither; the
     *  pointers are aligned for dtype if the callers' buffers are. combine must be associative and
     *  a pure function of its operands: any thread that drives operations calls it, several at
     *  once, for any part of the data. It must not call tutti, throw, or leave by longjmp. */
    void (*combine)(const void* first, const void* second, void* result, size_t count,
                    tutti_dtype dtype, void* user);
    void* user;           /**< passed to combine; must live until the last operation is done */
    int commutative;      /**< 0: contributions are combined in rank order */
    size_t item_elements; /**< elements of one item, such as 4 for a 2 × 2 matrix: an item is never
                               split, and counts are multiples of it. At most 64 bytes. */
} tutti_op_spec;
#define TUTTI_OP_SPEC_INIT {sizeof(tutti_op_spec), NULL, NULL, 1, 1}

/** Settings of one non-blocking call or plan. Initialise with TUTTI_CALL_OPTS_INIT. */
typedef struct {
    size_t struct_size;     /**< sizeof(tutti_call_opts): lets later versions add fields */
    int stream;             /**< the ring, 0 … nrings-1 (the setting nrings); < 0: round-robin */
    void* device_stream;    /**< orders an operation on device memory; NULL: the communicator's */
    int64_t timeout_ms;     /**< < 0: the communicator's; 0: for ever */
    const char* algorithm;  /**< its name (tutti_algorithm_name); NULL: tutti chooses */
    tutti_dtype wire_dtype; /**< < 0: as the data; anything else is UNSUPPORTED in this version */
    const char* name;       /**< the operation that the call is part of (tutti_ibarrier) */
} tutti_call_opts;
#define TUTTI_CALL_OPTS_INIT {sizeof(tutti_call_opts), -1, NULL, -1, NULL, -1, NULL}

/* ---- the library ----------------------------------------------------------------------------- */

/** "0.2.0": the version of the linked library, not of this header. */
TUTTI_API const char* tutti_version(void);
/** A short name for a status: "peer lost". Never NULL. */
TUTTI_API const char* tutti_status_string(tutti_status status);
/** This thread's last failure in words; "" if there was none. Valid until its next tutti call. */
TUTTI_API const char* tutti_last_error(void);
/** The rank at fault in this thread's last failure, -1 if none is known. */
TUTTI_API int tutti_last_error_rank(void);
/** Bytes per element; 0 for an invalid dtype. */
TUTTI_API size_t tutti_dtype_size(tutti_dtype dtype);
/** Converts count elements from in_dtype to out_dtype: a 16- or 8-bit float to float32 (exact), or
 *  float32 to a 16- or 8-bit float (round to nearest, ties to even); equal dtypes are copied. Host
 *  memory only; in and out must not overlap. UNSUPPORTED names a pair without a conversion. */
TUTTI_API tutti_status tutti_convert(const void* in, tutti_dtype in_dtype, void* out,
                                     tutti_dtype out_dtype, size_t count);
/** "float32"; NULL for an invalid dtype. Counting up from 0 until NULL lists all dtypes. */
TUTTI_API const char* tutti_dtype_name(tutti_dtype dtype);
/** "sum"; "user operator" or "pre-multiplied sum" for a handle of the program's own; NULL for an
 *  invalid op. */
TUTTI_API const char* tutti_op_name(tutti_op op);
/** The index-th algorithm for a collective ("allreduce", …); NULL past the last one. */
TUTTI_API const char* tutti_algorithm_name(const char* collective, int index);
/** One line about an algorithm of that collective; NULL if the collective has no such algorithm. */
TUTTI_API const char* tutti_algorithm_summary(const char* collective, const char* algorithm);
/** The index-th transport of this build ("shm", "tcp", …); NULL past the last one. */
TUTTI_API const char* tutti_transport_name(int index);

/* ---- settings -------------------------------------------------------------------------------- */

/** A host program's own key-value store, for rendezvous. All ranks' callbacks reach one store. The
 *  callbacks return 0, or anything else for failure. Any thread calls them, one call per user at a
 *  time. */
typedef struct {
    size_t struct_size; /**< sizeof(tutti_store_callbacks) */
    /** Stores size bytes under key. */
    int (*set)(void* user, const char* key, const void* value, size_t size);
    /** Waits up to timeout_ms for key, copies at most capacity bytes of its value to value and its
     *  whole length to *size. Returns 1 if the key did not appear in time. */
    int (*get)(void* user, const char* key, void* value, size_t capacity, size_t* size,
               int64_t timeout_ms);
    /** Adds amount to the counter under key (0 at first) and writes the sum to *result. Atomic. */
    int (*add)(void* user, const char* key, int64_t amount, int64_t* result);
} tutti_store_callbacks;

/** Reads defaults, then the launcher's variables, then TUTTI_*. INVALID names a variable with a bad
 *  value. tutti_comm_create also tells that to the other ranks, if it can still reach them. */
TUTTI_API tutti_status tutti_config_create(tutti_config** config);
/** Sets one key: "rank", "size", "store", "job", "secret", "transport", "nrings", "timeout_ms", …
 *  (all: docs/reference/configuration.md; the environment's names without TUTTI_, in lower case).
 *  INVALID lists the keys, or says what the value should look like. */
TUTTI_API tutti_status tutti_config_set(tutti_config* config, const char* key, const char* value);
/** Uses the host program's store instead of "store". The struct is copied; user is passed on. */
TUTTI_API tutti_status tutti_config_set_store(tutti_config* config,
                                              const tutti_store_callbacks* callbacks, void* user);
/** NULL is fine. */
TUTTI_API void tutti_config_destroy(tutti_config* config);

/* ---- communicators --------------------------------------------------------------------------- */

/** Joins the job: returns when all ranks have joined, or fails at the deadline and names the
 *  missing ranks. config NULL: as tutti_config_create. Several ranks per process are allowed. */
TUTTI_API tutti_status tutti_comm_create(const tutti_config* config, tutti_comm** comm);
/** This rank, 0 … size-1. This call and the six below return -1 for NULL and send no message. */
TUTTI_API int tutti_comm_rank(const tutti_comm* comm);
/** The number of ranks. */
TUTTI_API int tutti_comm_size(const tutti_comm* comm);
/** The number of rings (TUTTI_NRINGS). */
TUTTI_API int tutti_comm_ring_count(const tutti_comm* comm);
/** This rank's index among the ranks of its host, from 0: a process can choose its GPU by it. */
TUTTI_API int tutti_comm_local_rank(const tutti_comm* comm);
/** The number of ranks on this rank's host. */
TUTTI_API int tutti_comm_local_size(const tutti_comm* comm);
/** The number of hosts. */
TUTTI_API int tutti_comm_host_count(const tutti_comm* comm);
/** The index of the rank's host, from 0, in the order of the hosts' lowest ranks; -1 if there is no
 *  such rank. */
TUTTI_API int tutti_comm_host_of(const tutti_comm* comm, int rank);
/** Collective: ranks that give the same color (>= 0) get a communicator of their own, ranked by
 *  key, then by their rank here. A rank with color < 0 must call too and gets *part = NULL.
 *  Both communicators can be used from then on, over the same connections; each is destroyed on
 *  its own. */
TUTTI_API tutti_status tutti_comm_split(tutti_comm* comm, int color, int key, tutti_comm** part);
/** Collective: a communicator of this rank's host, ranked by key, then by rank. */
TUTTI_API tutti_status tutti_comm_split_host(tutti_comm* comm, int key, tutti_comm** part);
/** Collective: another communicator of the same ranks, with its own order of operations. */
TUTTI_API tutti_status tutti_comm_dup(tutti_comm* comm, tutti_comm** copy);
/** Fails every pending and later operation on all ranks with ABORTED. From any thread. */
TUTTI_API tutti_status tutti_comm_abort(tutti_comm* comm);
/** Leaves in order: data that was sent still arrives. Never hangs; pending requests fail with
 *  ABORTED and stay valid until they are waited for. NULL is fine. At exit() all that remain leave
 *  in order, too. */
TUTTI_API tutti_status tutti_comm_destroy(tutti_comm* comm);
/** Says in words which algorithm such a call would run, and why. count: elements of the message, or
 *  of one rank's block; op: for calls that reduce. Copies at most capacity bytes with the final
 *  zero. Sends nothing. INVALID for an unknown collective, dtype or op, and for no text. */
TUTTI_API tutti_status tutti_comm_explain(tutti_comm* comm, const char* collective, size_t count,
                                          tutti_dtype dtype, tutti_op op, char* text,
                                          size_t capacity);
/** The algorithm that such a call would run ("ring"), as a constant; NULL and tutti_last_error() as
 *  for tutti_comm_explain. */
TUTTI_API const char* tutti_comm_algorithm(tutti_comm* comm, const char* collective, size_t count,
                                           tutti_dtype dtype, tutti_op op);
/** Writes the flight recorder (the last 1,024 operations) as JSON lines to a file descriptor,
 *  oldest first (docs/how-to/debug-a-hang.md). SYSTEM: the descriptor refused the data. */
TUTTI_API tutti_status tutti_comm_dump(tutti_comm* comm, int fd);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Any memory works in any operation. RDMA networks must register memory once: tutti registers large
 * buffers when it first uses them, or the program does so in advance with these calls. Shared
 * memory and TCP gain nothing by it. From any thread. */

/** Memory for buffers: page-aligned, zeroed, of huge pages if it is large and the system has them,
 *  and registered (below) until comm is destroyed. Valid until tutti_mem_free, even after that. 0
 *  bytes are fine. NO_MEMORY: out of memory; SYSTEM: the limit of locked memory is too low (ulimit
 *  -l). */
TUTTI_API tutti_status tutti_mem_alloc(tutti_comm* comm, size_t bytes, void** data);
/** Memory of the communicator's device, which ends with comm; since NCCL 2.27 a symmetric window,
 *  which all ranks' GPUs can access. Collective, after the ranks have joined
 *  (tutti_comm_use_device). Only the issuing thread allocates, frees, registers and deregisters
 *  device memory. */
TUTTI_API tutti_status tutti_mem_alloc_device(tutti_comm* comm, size_t bytes, void** data);
/** Frees memory of the two calls above; no operation may still use it. comm NULL: memory of
 *  tutti_mem_alloc, whichever communicator it is of. data NULL is fine; other memory, or another
 *  comm's, is INVALID. */
TUTTI_API tutti_status tutti_mem_free(tutti_comm* comm, void* data);
/** Registers bytes of the program's own memory from data on; device memory is registered with NCCL.
 *  It must stay mapped until tutti_mem_deregister, or until comm is destroyed. fd must be -1 (else
 *  UNSUPPORTED): memory of this process. INVALID for NULL, 0 bytes, and data that is already
 *  registered with comm. */
TUTTI_API tutti_status tutti_mem_register(tutti_comm* comm, void* data, size_t bytes, int fd);
/** Ends the registration of the memory that begins at data. INVALID if there is none. */
TUTTI_API tutti_status tutti_mem_deregister(tutti_comm* comm, void* data);

/* ---- device memory --------------------------------------------------------------------------- */

/* Collectives on GPU memory go through NCCL if it has them, else through pinned host memory
 * (TUTTI_DEVICE=staged: always). Both buffers, and all calls of a communicator, are on one GPU; the
 * ranks join NCCL in the first call. Such an operation is ordered by a device stream (a CUstream or
 * cudaStream_t) and does not block the host: a blocking call returns when its operation is on the
 * stream; a request is done when the device has finished. If the operation of a blocking call fails
 * later, the communicator's next call or tutti_comm_sync returns that. tutti_barrier is for the
 * host.
 *
 * Messages on device memory take the same path as collectives. NCCL carries them once the ranks
 * have joined it (tutti_comm_use_device, or any collective on device memory): both buffers are
 * device memory of one length, TUTTI_ANY_SOURCE is UNSUPPORTED, and messages match in the order of
 * the calls: other lengths, tags or dtypes fail the communicator with MISMATCH. A message waits for
 * its peer on the device stream and delays later work there. Through the host (TUTTI_DEVICE=staged
 * or hierarchical) messages are as on host memory, and the peer's buffer may be host memory; a
 * receive delays its stream, over UCX with CUDA a send too. A group's or tutti_sendrecv's messages
 * are launched together. */

/** Sets the stream of calls that name none. NULL, the default: the legacy default stream, which
 *  waits for all others. INVALID for a stream of another device, UNSUPPORTED without a CUDA
 *  driver. */
TUTTI_API tutti_status tutti_comm_set_device_stream(tutti_comm* comm, void* device_stream);
/** Joins the ranks on these devices now instead of in the first call on device memory. Collective.
 *  INVALID if the communicator has another device already. */
TUTTI_API tutti_status tutti_comm_use_device(tutti_comm* comm, int device);
/** From here to tutti_launch_end, this thread's calls on device memory of any communicators take
 *  their place in the order but are launched together at the end. So one thread can call for
 *  several ranks, each with a device, although one rank's launch may wait for another's. The ranks
 *  must have joined (tutti_comm_use_device, each on its own thread). To wait for such a call in
 *  between is INVALID. Nests. */
TUTTI_API tutti_status tutti_launch_start(void);
/** Launches them; returns the first failure. A request has its own. INVALID without a start. */
TUTTI_API tutti_status tutti_launch_end(void);
/** Later work on the communicator's stream waits for the work that calc_stream has by now: call it
 *  between the kernels that fill a buffer and its collective. Never blocks the host. */
TUTTI_API tutti_status tutti_sync_calc_stream(tutti_comm* comm, void* calc_stream);
/** Later work on calc_stream waits for the work that the communicator's stream has by now: call it
 *  between a collective and the kernels that use its result. Never blocks the host. */
TUTTI_API tutti_status tutti_sync_comm_stream(tutti_comm* comm, void* calc_stream);
/** Waits up to timeout_ms (< 0: to their own deadlines) for the operations that blocking calls have
 *  put on device streams; returns the first failure. After TIMEOUT the operations continue. */
TUTTI_API tutti_status tutti_comm_sync(tutti_comm* comm, int64_t timeout_ms);

/* ---- operators ------------------------------------------------------------------------------- */

/** Makes an operator for all communicators of the process. Every process makes its operators in the
 *  same order, by which ranks identify them (else MISMATCH); ranks that are threads of one process
 *  share one handle. INVALID: combine is NULL, or an item is too long. From any thread. */
TUTTI_API tutti_status tutti_op_create(const tutti_op_spec* spec, tutti_op* op);
/** Makes a sum that first multiplies each rank's contribution by that rank's scalar. scalar is one
 *  element of dtype, copied; the operator is for data of that dtype and, if dtype is float32, also
 *  for 16- and 8-bit floats. The product is taken in the accumulator (fp32 for short floats): only
 *  the result is rounded, and integers wrap. It costs a pass over the input. For this communicator
 *  only; all ranks make them in the same order. INVALID: NULL scalar, no such dtype. */
TUTTI_API tutti_status tutti_op_create_premul_sum(tutti_comm* comm, const void* scalar,
                                                  tutti_dtype dtype, tutti_op* op);
/** Frees the handle; plans and requests that use the operator keep it. INVALID for a built-in
 *  operator and for an unknown handle. */
TUTTI_API tutti_status tutti_op_destroy(tutti_op op);

/* ---- blocking collectives -------------------------------------------------------------------- */

/* count is in elements. in and out may be the same memory (in place); otherwise they must not
 * overlap (INVALID). A buffer that a rank does not use, or of no elements, may be NULL.
 *
 * A call on host memory returns when this rank's out is complete and its in may change. Besides
 * INVALID for an argument, a call may fail with MISMATCH, TIMEOUT, PEER_LOST, ABORTED, UNSUPPORTED,
 * SYSTEM or NO_MEMORY; docs/explanation/failures.md says which errors the other ranks then get. */

/** out[i] = in[i] of rank 0 ⊕ … ⊕ in[i] of the last rank, the same bits on every rank. */
TUTTI_API tutti_status tutti_allreduce(tutti_comm* comm, const void* in, void* out, size_t count,
                                       tutti_dtype dtype, tutti_op op);
/** An allreduce of nin buffers of each rank (local devices, micro-batches): out[i] = ins[0][i] ⊕ …
 *  ⊕ ins[nin-1][i] of rank 0 ⊕ … of the last rank, with one rounding. out may be one of ins. nin
 *  may differ between ranks, except for avg, which divides by the number of all inputs. All ranks
 *  call this or none. INVALID for nin < 1 and NULL entries. */
TUTTI_API tutti_status tutti_allreduce_multi(tutti_comm* comm, const void* const* ins, int nin,
                                             void* out, size_t count, tutti_dtype dtype,
                                             tutti_op op);
/** Copies root's buf to every rank's. Different roots: the next call returns MISMATCH; with
 *  check=strict, this one. */
TUTTI_API tutti_status tutti_broadcast(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype,
                                       int root);
/** Returns when every rank has called it. */
TUTTI_API tutti_status tutti_barrier(tutti_comm* comm);
/** As tutti_allreduce, but only root's out gets the result; out of other ranks may be NULL. */
TUTTI_API tutti_status tutti_reduce(tutti_comm* comm, const void* in, void* out, size_t count,
                                    tutti_dtype dtype, tutti_op op, int root);
/** out holds one block of count elements for each rank, in rank order: every rank's in. In place:
 *  in is this rank's own block of out. */
TUTTI_API tutti_status tutti_allgather(tutti_comm* comm, const void* in, void* out, size_t count,
                                       tutti_dtype dtype);
/** Blocks of different lengths: rank r's in has counts[r] elements and goes to out at
 *  displacements[r] (in elements; NULL: one after the other). All ranks give the same counts. */
TUTTI_API tutti_status tutti_allgatherv(tutti_comm* comm, const void* in, void* out,
                                        const size_t* counts, const size_t* displacements,
                                        tutti_dtype dtype);
/** in holds one block of count elements for each rank; out becomes this rank's block of the
 *  reduction of all ranks' in. In place: out is the rank's own block of in; other blocks stay. */
TUTTI_API tutti_status tutti_reduce_scatter(tutti_comm* comm, const void* in, void* out,
                                            size_t count, tutti_dtype dtype, tutti_op op);
/** Blocks of different lengths, one after the other; all ranks give the same counts. */
TUTTI_API tutti_status tutti_reduce_scatterv(tutti_comm* comm, const void* in, void* out,
                                             const size_t* counts, tutti_dtype dtype, tutti_op op);
/** out of root holds one block of count elements for each rank, in rank order: every rank's in.
 *  out of other ranks may be NULL. In place at the root: in is its own block of out. */
TUTTI_API tutti_status tutti_gather(tutti_comm* comm, const void* in, void* out, size_t count,
                                    tutti_dtype dtype, int root);
/** Every rank gives in_count elements; root says with counts and displacements (NULL: one after the
 *  other) how many come from each rank and where they go. Other ranks may pass NULL for both. */
TUTTI_API tutti_status tutti_gatherv(tutti_comm* comm, const void* in, size_t in_count, void* out,
                                     const size_t* counts, const size_t* displacements,
                                     tutti_dtype dtype, int root);
/** in of root holds one block of count elements for each rank; out becomes this rank's block. in of
 *  other ranks may be NULL. In place at the root: out is its own block of in. */
TUTTI_API tutti_status tutti_scatter(tutti_comm* comm, const void* in, void* out, size_t count,
                                     tutti_dtype dtype, int root);
/** Root says with counts and displacements which elements go to each rank; every rank takes
 *  out_count. */
TUTTI_API tutti_status tutti_scatterv(tutti_comm* comm, const void* in, const size_t* counts,
                                      const size_t* displacements, void* out, size_t out_count,
                                      tutti_dtype dtype, int root);
/** in holds a block of count elements for each rank, out one from each. In place: in == out. */
TUTTI_API tutti_status tutti_alltoall(tutti_comm* comm, const void* in, void* out, size_t count,
                                      tutti_dtype dtype);
/** Blocks of different lengths: in_counts[r] elements go to rank r, out_counts[r] come from it,
 *  at the displacements (NULL: one after the other). in == out only where counts and
 *  displacements agree both ways. */
TUTTI_API tutti_status tutti_alltoallv(tutti_comm* comm, const void* in, const size_t* in_counts,
                                       const size_t* in_displacements, void* out,
                                       const size_t* out_counts, const size_t* out_displacements,
                                       tutti_dtype dtype);
/** out[i] = in[i] of rank 0 ⊕ … ⊕ in[i] of this rank. */
TUTTI_API tutti_status tutti_scan(tutti_comm* comm, const void* in, void* out, size_t count,
                                  tutti_dtype dtype, tutti_op op);
/** out[i] = in[i] of rank 0 ⊕ … ⊕ in[i] of the rank before; rank 0's out stays as it is. */
TUTTI_API tutti_status tutti_exscan(tutti_comm* comm, const void* in, void* out, size_t count,
                                    tutti_dtype dtype, tutti_op op);

/* ---- non-blocking ---------------------------------------------------------------------------- */

/** As tutti_allreduce, but returns a request, which owns the buffers until it is done; lists are
 *  copied. */
TUTTI_API tutti_status tutti_iallreduce(tutti_comm* comm, const void* in, void* out, size_t count,
                                        tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                                        tutti_request** request);
/** As tutti_allreduce_multi. The list of buffers is copied. */
TUTTI_API tutti_status tutti_iallreduce_multi(tutti_comm* comm, const void* const* ins, int nin,
                                              void* out, size_t count, tutti_dtype dtype,
                                              tutti_op op, const tutti_call_opts* opts,
                                              tutti_request** request);
/** As tutti_broadcast. */
TUTTI_API tutti_status tutti_ibroadcast(tutti_comm* comm, void* buf, size_t count,
                                        tutti_dtype dtype, int root, const tutti_call_opts* opts,
                                        tutti_request** request);
/** As tutti_barrier. An operation of several calls begins with a barrier that has its name
 *  (opts.name, at most 15 letters, digits and blanks): if names differ, it fails with MISMATCH at
 *  once (docs/explanation/semantics.md). */
TUTTI_API tutti_status tutti_ibarrier(tutti_comm* comm, const tutti_call_opts* opts,
                                      tutti_request** request);
/** As tutti_reduce. */
TUTTI_API tutti_status tutti_ireduce(tutti_comm* comm, const void* in, void* out, size_t count,
                                     tutti_dtype dtype, tutti_op op, int root,
                                     const tutti_call_opts* opts, tutti_request** request);
/** As tutti_allgather. */
TUTTI_API tutti_status tutti_iallgather(tutti_comm* comm, const void* in, void* out, size_t count,
                                        tutti_dtype dtype, const tutti_call_opts* opts,
                                        tutti_request** request);
/** As tutti_allgatherv. */
TUTTI_API tutti_status tutti_iallgatherv(tutti_comm* comm, const void* in, void* out,
                                         const size_t* counts, const size_t* displacements,
                                         tutti_dtype dtype, const tutti_call_opts* opts,
                                         tutti_request** request);
/** As tutti_reduce_scatter. */
TUTTI_API tutti_status tutti_ireduce_scatter(tutti_comm* comm, const void* in, void* out,
                                             size_t count, tutti_dtype dtype, tutti_op op,
                                             const tutti_call_opts* opts, tutti_request** request);
/** As tutti_reduce_scatterv. */
TUTTI_API tutti_status tutti_ireduce_scatterv(tutti_comm* comm, const void* in, void* out,
                                              const size_t* counts, tutti_dtype dtype, tutti_op op,
                                              const tutti_call_opts* opts, tutti_request** request);
/** As tutti_gather. */
TUTTI_API tutti_status tutti_igather(tutti_comm* comm, const void* in, void* out, size_t count,
                                     tutti_dtype dtype, int root, const tutti_call_opts* opts,
                                     tutti_request** request);
/** As tutti_gatherv. */
TUTTI_API tutti_status tutti_igatherv(tutti_comm* comm, const void* in, size_t in_count, void* out,
                                      const size_t* counts, const size_t* displacements,
                                      tutti_dtype dtype, int root, const tutti_call_opts* opts,
                                      tutti_request** request);
/** As tutti_scatter. */
TUTTI_API tutti_status tutti_iscatter(tutti_comm* comm, const void* in, void* out, size_t count,
                                      tutti_dtype dtype, int root, const tutti_call_opts* opts,
                                      tutti_request** request);
/** As tutti_scatterv. */
TUTTI_API tutti_status tutti_iscatterv(tutti_comm* comm, const void* in, const size_t* counts,
                                       const size_t* displacements, void* out, size_t out_count,
                                       tutti_dtype dtype, int root, const tutti_call_opts* opts,
                                       tutti_request** request);
/** As tutti_alltoall. */
TUTTI_API tutti_status tutti_ialltoall(tutti_comm* comm, const void* in, void* out, size_t count,
                                       tutti_dtype dtype, const tutti_call_opts* opts,
                                       tutti_request** request);
/** As tutti_alltoallv. */
TUTTI_API tutti_status tutti_ialltoallv(tutti_comm* comm, const void* in, const size_t* in_counts,
                                        const size_t* in_displacements, void* out,
                                        const size_t* out_counts, const size_t* out_displacements,
                                        tutti_dtype dtype, const tutti_call_opts* opts,
                                        tutti_request** request);
/** As tutti_scan. */
TUTTI_API tutti_status tutti_iscan(tutti_comm* comm, const void* in, void* out, size_t count,
                                   tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                                   tutti_request** request);
/** As tutti_exscan. */
TUTTI_API tutti_status tutti_iexscan(tutti_comm* comm, const void* in, void* out, size_t count,
                                     tutti_dtype dtype, tutti_op op, const tutti_call_opts* opts,
                                     tutti_request** request);

/* ---- between two ranks ----------------------------------------------------------------------- */

/** Receive the first message with the tag, from any rank. */
#define TUTTI_ANY_SOURCE (-1)
/** A received message's sender, tag and length. */
typedef struct {
    int source;   /**< the sender */
    int tag;      /**< its tag */
    size_t count; /**< elements received, at most the count of the call */
} tutti_recv_status;

/* Messages between two ranks with one tag arrive in the order of the sends; receives match in the
 * order of the calls. They are not ordered with collectives. A tag is 0 … 2^31-1. A send of up to
 * 32 KiB returns when its buffer is copied; a larger one waits for its receive. A rank keeps up to
 * "unexpected_bytes" of another rank's messages before their receives; then the sender waits. */

/** Sends count elements to rank dest. INVALID if its receive has a smaller buffer or another dtype
 *  (large messages; for a small one only the receiver gets the error). */
TUTTI_API tutti_status tutti_send(tutti_comm* comm, const void* buf, size_t count,
                                  tutti_dtype dtype, int dest, int tag);
/** Receives at most count elements from rank source or TUTTI_ANY_SOURCE. INVALID if more were sent,
 *  MISMATCH if they have another dtype; both consume the message. status may be NULL. */
TUTTI_API tutti_status tutti_recv(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype,
                                  int source, int tag, tutti_recv_status* status);
/** Both at once, without an order between them. The buffers do not overlap. */
TUTTI_API tutti_status tutti_sendrecv(tutti_comm* comm, const void* send_buf, size_t send_count,
                                      int dest, int send_tag, void* recv_buf, size_t recv_count,
                                      int source, int recv_tag, tutti_dtype dtype,
                                      tutti_recv_status* status);
/** As tutti_send; the buffer belongs to the request until it is done. Only timeout_ms and
 *  device_stream of opts apply. */
TUTTI_API tutti_status tutti_isend(tutti_comm* comm, const void* buf, size_t count,
                                   tutti_dtype dtype, int dest, int tag,
                                   const tutti_call_opts* opts, tutti_request** request);
/** As tutti_recv; status, if not NULL, is written before the request is done. */
TUTTI_API tutti_status tutti_irecv(tutti_comm* comm, void* buf, size_t count, tutti_dtype dtype,
                                   int source, int tag, tutti_recv_status* status,
                                   const tutti_call_opts* opts, tutti_request** request);
/** From here to tutti_group_end, tutti_send, tutti_recv and tutti_sendrecv on this communicator
 *  only start; their buffers belong to the group. Groups nest. */
TUTTI_API tutti_status tutti_group_start(tutti_comm* comm);
/** Waits for everything that the group has started, in any order; returns the first failure. */
TUTTI_API tutti_status tutti_group_end(tutti_comm* comm);

/** Waits up to timeout_ms: 0 polls, < 0 until the operation's own deadline. When the operation is
 *  over, frees the request, sets it to NULL and returns the operation's status. TIMEOUT with the
 *  request still there means only that this wait was too short. A NULL request is done. */
TUTTI_API tutti_status tutti_wait(tutti_request** request, int64_t timeout_ms);
/** tutti_wait with a time-out of 0: IN_PROGRESS while it runs. */
TUTTI_API tutti_status tutti_test(tutti_request** request);
/** Calls fn(status, user) once, from the thread that completes the operation, before the request is
 *  done (at once if it is); the request must be waited for. One per request. In fn, calls that
 *  start or wait are INVALID. */
TUTTI_API tutti_status tutti_request_on_complete(tutti_request* request,
                                                 void (*fn)(tutti_status, void* user), void* user);
/** A file descriptor that is readable once tutti_test says done; tutti_wait closes it. */
TUTTI_API tutti_status tutti_request_fd(tutti_request* request, int* fd);

/** Drives this communicator's operations as far as they go without waiting. A host program that
 *  sets "progress" to "manual" calls it from its own loop; tutti then starts no thread. */
TUTTI_API tutti_status tutti_progress(tutti_comm* comm);
/** A file descriptor that becomes readable when tutti_progress has work (manual progress). */
TUTTI_API tutti_status tutti_progress_fd(tutti_comm* comm, int* fd);

#ifdef __cplusplus
}
#endif

#include "tutti/plans.h"
#include "tutti/recovery.h"

#endif
