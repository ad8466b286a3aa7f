/**
 * @file trainer_parallel.h
 * @brief Helpers for one process with many devices: split a batch, run a replica on each device,
 *        exchange values among them, synchronised batch-norm. Guide: docs/reference/parallel.md.
 *
 * A device is a number here, and a worker thread; the program chooses the memory of its values.
 * Link with -ltutti_trainer.
 *
 * **Errors.** tutti_trainer_last_error() is the failure in words, tutti_trainer_last_error_device()
 * its device.
 */
#ifndef TUTTI_TRAINER_PARALLEL_H
#define TUTTI_TRAINER_PARALLEL_H

#include "tutti/trainer_errors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_value tutti_value;       /**< an array, anything else, or a nest of them */
typedef struct tutti_pool tutti_pool;         /**< a persistent worker thread for each device */
typedef struct tutti_replica tutti_replica;   /**< the argument of a running replica */
typedef struct tutti_parallel tutti_parallel; /**< an exchange among the devices of a process */
typedef struct tutti_data_parallel tutti_data_parallel; /**< a model on all devices */
typedef struct tutti_sync_bn tutti_sync_bn;             /**< a batch-norm layer of all devices */

/* ---- nested values ----------------------------------------------------------------------------
 */

#define TUTTI_ARRAY_DIMENSIONS 8

/** An array in row-major order, without gaps. */
typedef struct {
    void* data;
    tutti_dtype dtype;
    int dims; /**< at most TUTTI_ARRAY_DIMENSIONS; 0: a single element, which is never split */
    int64_t shape[TUTTI_ARRAY_DIMENSIONS];
    int device; /**< the device whose memory it is; -1: the host's */
} tutti_array;

typedef enum {
    TUTTI_VALUE_ARRAY = 0,
    TUTTI_VALUE_PLAIN, /**< a pointer of the program's own: replicated unchanged */
    TUTTI_VALUE_LIST,
    TUTTI_VALUE_TUPLE,
    TUTTI_VALUE_MAP
} tutti_value_kind;

/** Values share their contents; each handle is destroyed on its own, and the last one calls
 *  release(owner); release may be NULL. Different threads may use handles of one value. */
TUTTI_API tutti_status tutti_value_create_array(const tutti_array* array,
                                                void (*release)(void* owner), void* owner,
                                                tutti_value** value);
/** A value that is a pointer of the program's own. */
TUTTI_API tutti_status tutti_value_create_plain(void* pointer, void (*release)(void* owner),
                                                tutti_value** value);
/** kind: TUTTI_VALUE_LIST or TUTTI_VALUE_TUPLE. The items stay the caller's handles. */
TUTTI_API tutti_status tutti_value_create_sequence(tutti_value_kind kind,
                                                   const tutti_value* const* items, int count,
                                                   tutti_value** value);
/** The keys are copied, and keep their order. INVALID for a duplicate key. */
TUTTI_API tutti_status tutti_value_create_map(const char* const* keys,
                                              const tutti_value* const* items, int count,
                                              tutti_value** value);
/** Another handle of the same value. */
TUTTI_API tutti_status tutti_value_share(const tutti_value* value, tutti_value** other);
/** NULL is fine. */
TUTTI_API void tutti_value_destroy(tutti_value* value);
/** The kind of a value, which is not NULL. */
TUTTI_API tutti_value_kind tutti_value_kind_of(const tutti_value* value);
/** Items of a list, tuple or map; 0 for others. */
TUTTI_API int tutti_value_count(const tutti_value* value);
/** The index-th item, which lives as long as value; NULL if there is none. */
TUTTI_API const tutti_value* tutti_value_item(const tutti_value* value, int index);
/** The index-th item's key in a map; NULL if there is none. */
TUTTI_API const char* tutti_value_key(const tutti_value* value, int index);
/** The array; NULL if the value is no array. */
TUTTI_API const tutti_array* tutti_value_array(const tutti_value* value);
/** The pointer; NULL if the value is not plain. */
TUTTI_API void* tutti_value_plain(const tutti_value* value);

/* ---- split and load ---------------------------------------------------------------------------
 */

/** Options of tutti_split_and_load: axis and device memory. Start from TUTTI_SPLIT_OPTS_INIT. */
typedef struct {
    size_t struct_size;
    int axis; /**< of the samples; < 0 counts from the last one */
    int even; /**< 1: samples that the devices cannot share evenly are an error */
    void* user;
    /** Memory of a device; NULL on failure. All three NULL: the host's memory. */
    void* (*alloc)(void* user, int device, size_t bytes);
    void (*free)(void* user, int device, void* data);
    /** Copies rows pieces of row_bytes, row_stride apart on the host, consecutively to data. */
    tutti_status (*copy)(void* user, int device, void* data, const void* from, size_t rows,
                         size_t row_bytes, size_t row_stride);
} tutti_split_opts;
#define TUTTI_SPLIT_OPTS_INIT \
    { sizeof(tutti_split_opts), 0, 0, NULL, NULL, NULL, NULL }

/** Splits the arrays of a nested batch along an axis: parts[d] has the batch's structure with
 * device d's share of each array; every device gets the plain values. If the split is uneven, the
 * first devices have one sample more; with fewer samples than devices, *used devices have one each.
 * parts has room for devices handles. In host memory, parts of axis 0 are views of the batch.
 * opts NULL: defaults. INVALID names the item that does not fit. */
TUTTI_API tutti_status tutti_split_and_load(const tutti_value* batch, int devices,
                                            const tutti_split_opts* opts, tutti_value** parts,
                                            int* used);

/* ---- parallel apply ---------------------------------------------------------------------------
 */

/** A replica's work. Anything but TUTTI_OK fails the call; so does an exception of a C++ function,
 *  with its text. */
typedef tutti_status (*tutti_replica_fn)(tutti_replica* replica, void* user);

/** Start from TUTTI_APPLY_OPTS_INIT. */
typedef struct {
    size_t struct_size;
    int training;  /**< the result of tutti_replica_training in every replica */
    int recording; /**< the result of tutti_replica_recording in every replica */
    int sync; /**< 0: one after another, on the caller; 1: all at once, on the devices' threads */
} tutti_apply_opts;
#define TUTTI_APPLY_OPTS_INIT \
    { sizeof(tutti_apply_opts), 1, 1, 0 }

/** Starts a thread for each device, which lasts as long as the pool. */
TUTTI_API tutti_status tutti_pool_create(int devices, tutti_pool** pool);
/** Destroy it after the exchanges and layers of the pool. NULL is fine. */
TUTTI_API void tutti_pool_destroy(tutti_pool* pool);
/** The number of devices; -1 for NULL. */
TUTTI_API int tutti_pool_size(const tutti_pool* pool);
/** Runs function for devices 0 … replicas-1, each with its input (inputs NULL: none), and returns
 * when all are done: outputs[d] is replica d's output (outputs may be NULL), NULL after a failure.
 * A replica that fails releases the replicas that wait for it in an exchange; status, text and
 * device are of the first one that failed. The pool stays usable. One caller at a time. */
TUTTI_API tutti_status tutti_parallel_apply(tutti_pool* pool, tutti_replica_fn function, void* user,
                                            const tutti_value* const* inputs, int replicas,
                                            const tutti_apply_opts* opts, tutti_value** outputs);
/** The replica's device. */
TUTTI_API int tutti_replica_device(const tutti_replica* replica);
/** The number of replicas that run in this call. */
TUTTI_API int tutti_replica_count(const tutti_replica* replica);
/** The call's training flag. */
TUTTI_API int tutti_replica_training(const tutti_replica* replica);
/** The call's recording flag. */
TUTTI_API int tutti_replica_recording(const tutti_replica* replica);
/** The replica's input; NULL if the call had no inputs. */
TUTTI_API const tutti_value* tutti_replica_input(const tutti_replica* replica);
/** Takes over the handle, as this replica's output. */
TUTTI_API void tutti_replica_set_output(tutti_replica* replica, tutti_value* output);
/** The text of the failure that the replica is about to return. Copied. */
TUTTI_API void tutti_replica_set_error(tutti_replica* replica, const char* text);

/* ---- exchange among devices (ParallelState; advanced) ------------------------------------------
 */

/** The function, dtype and time-out of an exchange. Start from TUTTI_PARALLEL_SPEC_INIT. */
typedef struct {
    size_t struct_size;
    /** Reads every device's input and writes every device's output, in the order of devices;
     * inputs[d] may be outputs[d]. Called once a round, on the last device's thread to push. NULL:
     * the sum of dtype, in the order of devices, in host memory or by the functions of devices. */
    tutti_status (*combine)(void* user, const void* const* inputs, void* const* outputs,
                            int devices, size_t bytes);
    void* user;
    tutti_dtype dtype;  /**< of the sum: TUTTI_FLOAT32, FLOAT64 or INT64 */
    int64_t timeout_ms; /**< of a pull; < 0: 5 minutes; 0: for ever */
    /** One for each device (trainer.h): device 0's functions then add up the inputs, copied from
     *  the other devices. For FLOAT32 and FLOAT64. NULL: host memory. The list is copied; the
     *  devices outlive the exchange. */
    struct tutti_device* const* devices;
} tutti_parallel_spec;
#define TUTTI_PARALLEL_SPEC_INIT \
    { sizeof(tutti_parallel_spec), NULL, NULL, TUTTI_FLOAT32, -1, NULL }

/** An exchange for the replicas of a pool's tutti_parallel_apply: its devices are the replicas of
 *  the call, and each call starts it anew. */
TUTTI_API tutti_status tutti_parallel_create(tutti_pool* pool, const tutti_parallel_spec* spec,
                                             tutti_parallel** state);
/** An exchange for the program's own threads; after a failure all further calls return it. */
TUTTI_API tutti_status tutti_parallel_create_free(int devices, const tutti_parallel_spec* spec,
                                                  tutti_parallel** state);
/** Destroy it before its pool. NULL is fine. */
TUTTI_API void tutti_parallel_destroy(tutti_parallel* state);
/** The number of devices that take part now; 0 outside tutti_parallel_apply. */
TUTTI_API int tutti_parallel_size(tutti_parallel* state);
/** Gives a device's contribution to its next round and the place for its result. Never waits for
 * other devices; the last device to push combines. in and out stay valid until the round is over.
 * *round (may be NULL) is the number for then and pull. INVALID under sync = 0 with several
 * replicas, and for sizes that differ between devices. */
TUTTI_API tutti_status tutti_parallel_push(tutti_parallel* state, int device, const void* in,
                                           void* out, size_t bytes, uint64_t* round);
/** Calls function once the round is done or has failed (status), on the thread that ends it; at
 *  once if it is over. */
TUTTI_API tutti_status tutti_parallel_then(tutti_parallel* state, uint64_t round,
                                           void (*function)(void* user, tutti_status status),
                                           void* user);
/** Waits for the round. The error names another device that failed. */
TUTTI_API tutti_status tutti_parallel_pull(tutti_parallel* state, uint64_t round);
/** push, then pull. */
TUTTI_API tutti_status tutti_parallel_exchange(tutti_parallel* state, int device, const void* in,
                                               void* out, size_t bytes);

/* ---- a model on all devices -------------------------------------------------------------------
 */

/** Start from TUTTI_DATA_PARALLEL_SPEC_INIT. */
typedef struct {
    size_t struct_size;
    int devices;
    int sync;               /**< as in tutti_apply_opts: 1 for models with synchronised layers */
    tutti_replica_fn model; /**< the forward pass of one device */
    void* user;
    const tutti_split_opts* split; /**< NULL: defaults; copied */
} tutti_data_parallel_spec;
#define TUTTI_DATA_PARALLEL_SPEC_INIT \
    { sizeof(tutti_data_parallel_spec), 1, 0, NULL, NULL, NULL }

/** Makes a pool of its own. */
TUTTI_API tutti_status tutti_data_parallel_create(const tutti_data_parallel_spec* spec,
                                                  tutti_data_parallel** model);
/** NULL is fine. */
TUTTI_API void tutti_data_parallel_destroy(tutti_data_parallel* model);
/** The pool for exchanges and synchronised layers of the model. */
TUTTI_API tutti_pool* tutti_data_parallel_pool(tutti_data_parallel* model);
/** Splits the batch, runs the model, and leaves each output on its device: a list with one item for
 * each device used, even for one device. */
TUTTI_API tutti_status tutti_data_parallel_forward(tutti_data_parallel* model,
                                                   const tutti_value* batch, int training,
                                                   int recording, tutti_value** outputs);
/** Splits the targets as the batch was, and runs loss on each device with the tuple (output,
 * target): a list of losses, each on its device. outputs is the result of forward. */
TUTTI_API tutti_status tutti_data_parallel_loss(tutti_data_parallel* model, tutti_replica_fn loss,
                                                void* user, const tutti_value* outputs,
                                                const tutti_value* targets, int recording,
                                                tutti_value** losses);

/* ---- synchronised batch-norm ------------------------------------------------------------------
 */

/** The arithmetic on a device, for arrays of rows × channels × inner elements. The statistics
 *  (double) are in the host's memory, everything else on the device. */
typedef struct {
    size_t struct_size;
    void* user;
    /** sums[c] = Σ x, sums[channels + c] = Σ x². */
    tutti_status (*sums)(void* user, int device, const void* x, size_t rows, size_t channels,
                         size_t inner, double* sums);
    /** y = (x - mean) · inverse · gamma + beta; gamma and beta may be NULL. */
    tutti_status (*normalize)(void* user, int device, const void* x, size_t rows, size_t channels,
                              size_t inner, const double* mean, const double* inverse,
                              const void* gamma, const void* beta, void* y);
    /** sums[c] = Σ dy, sums[channels + c] = Σ dy · (x - mean) · inverse. */
    tutti_status (*gradient_sums)(void* user, int device, const void* x, const void* dy,
                                  size_t rows, size_t channels, size_t inner, const double* mean,
                                  const double* inverse, double* sums);
    /** dx = gamma · inverse · (dy - a - (x - mean) · inverse · b), with a = means[c], b =
     *  means[channels + c]. */
    tutti_status (*input_gradient)(void* user, int device, const void* x, const void* dy,
                                   size_t rows, size_t channels, size_t inner, const double* mean,
                                   const double* inverse, const double* means, const void* gamma,
                                   void* dx);
    /** Copies channels of a device's array to the host's doubles, or back. */
    tutti_status (*load)(void* user, int device, const void* from, size_t channels, double* to);
    tutti_status (*store)(void* user, int device, const double* from, size_t channels, void* to);
} tutti_bn_math;
/** float32 in the host's memory. */
TUTTI_API const tutti_bn_math* tutti_bn_math_host(void);

/** Start from TUTTI_SYNC_BN_SPEC_INIT. */
typedef struct {
    size_t struct_size;
    size_t channels;
    double epsilon;
    double momentum;           /**< running = (1 - momentum) · running + momentum · batch */
    void* const* running_mean; /**< one array a device; NULL: none are kept. Copied. */
    void* const* running_var;
    tutti_comm* comm;          /**< the hosts that take part; NULL: this process alone. Copied. */
    const tutti_bn_math* math; /**< NULL: tutti_bn_math_host; copied */
} tutti_sync_bn_spec;
#define TUTTI_SYNC_BN_SPEC_INIT \
    { sizeof(tutti_sync_bn_spec), 0, 1e-5, 0.1, NULL, NULL, NULL, NULL }

/** A layer for the replicas of pool. Every process makes its layers, and runs them, in the same
 *  order; the first layer of a pool is collective over comm. If a replica fails, other than in
 *  evaluation (the call's flag, if no layer trains), the layers end on all hosts: the sums of other
 *  ranks fail with ABORTED and its rank. */
TUTTI_API tutti_status tutti_sync_bn_create(tutti_pool* pool, const tutti_sync_bn_spec* spec,
                                            tutti_sync_bn** layer);
/** Destroy it before its pool and communicator. NULL is fine. */
TUTTI_API void tutti_sync_bn_destroy(tutti_sync_bn* layer);
/** One device's part, from inside its replica. Training: uses the statistics of all devices and
 *  hosts, and updates each device's running statistics once. Evaluation: uses the running
 *  statistics and sends nothing. rows may be 0, and differ between devices. */
TUTTI_API tutti_status tutti_sync_bn_forward(tutti_sync_bn* layer, int device, int training,
                                             const void* x, size_t rows, size_t inner,
                                             const void* gamma, const void* beta, void* y);
/** Call it after a training forward. dgamma and dbeta (overwritten; may be NULL) are this device's
 * share: the program adds them up over devices and hosts like all gradients. */
TUTTI_API tutti_status tutti_sync_bn_backward(tutti_sync_bn* layer, int device, const void* x,
                                              const void* dy, size_t rows, size_t inner,
                                              const void* gamma, void* dx, void* dgamma,
                                              void* dbeta);
/** Bytes that this process has given to its communicator for the layer so far. */
TUTTI_API uint64_t tutti_sync_bn_bytes(const tutti_sync_bn* layer);

#ifdef __cplusplus
}
#endif
#endif
