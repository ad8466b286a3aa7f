/**
 * @file trainer.h
 * @brief Data-parallel training over devices and hosts, without one collective call. C11 and C++;
 *        link with -ltutti_trainer.
 *
 * Builders describe a model to a recorder, once for each device: its buffers, its operations, and
 * the buffers that each operation reads and writes. The layer derives from these the order of the
 * backward pass, the moment when a gradient is ready, the buffers that may share memory, and the
 * dependencies. The arithmetic is the program's own. docs/reference/trainer.md is the guide.
 *
 * **Errors.** Every call returns a status; tutti_trainer_last_error() is a sentence about this
 * thread's last failure. A failure in a step of several ranks ends the trainer on all of them,
 * unless tutti_trainer_set_recovery lets it go on after a loss.
 *
 * **Threads.** Calls on one trainer come from one thread at a time, except for
 * tutti_trainer_grad_ready. Operations run on that thread and, with TUTTI_EXECUTION_DAG, on the
 * trainer's threads.
 *
 * **Memory.** Buffers lie on devices and are reached through tutti_device_functions only.
 */
#ifndef TUTTI_TRAINER_H
#define TUTTI_TRAINER_H

#include "tutti/checkpoint.h"
#include "tutti/trainer_errors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_device tutti_device;   /**< where buffers lie and operations run */
typedef struct tutti_trainer tutti_trainer; /**< a model on all local devices */
typedef struct tutti_model tutti_model;     /**< one device's scope, while a builder runs */
typedef struct tutti_losses tutti_losses;   /**< the list that a forward builder fills */
typedef struct tutti_step tutti_step;       /**< the argument of a running operation */
typedef int32_t tutti_buffer;               /**< a declared buffer; of one trainer; < 0: none */

/* ---- devices ------------------------------------------------------------------------------ */

/** The access that an operation has to a buffer while it runs (checking mode). */
typedef enum { TUTTI_ACCESS_NONE = 0, TUTTI_ACCESS_READ, TUTTI_ACCESS_WRITE } tutti_access;

/** Whether code other than the device's own functions can access its memory. */
typedef enum {
    /** libtutti takes its addresses, and devices of one kind take each other's: host memory, and
     *  device memory that libtutti supports (docs/reference/gpu.md). */
    TUTTI_MEMORY_REACHABLE = 0,
    /** No other code: devices copy between each other, and data for other ranks goes through host
     *  memory. */
    TUTTI_MEMORY_OWN
} tutti_device_memory;

/** The functions through which the layer reaches a device's memory. Each returns TUTTI_OK or an
 *  error, may be called from any thread, and has finished its work when it returns. Start from
 *  TUTTI_DEVICE_FUNCTIONS_INIT. */
typedef struct {
    size_t struct_size; /**< sizeof(tutti_device_functions) */
    /** Memory of that many bytes, zeroed, aligned to a page. */
    tutti_status (*alloc)(void* user, size_t bytes, void** data);
    void (*free)(void* user, void* data, size_t bytes);
    /** Either side may be this device's memory or the host's; without copy_peer, also that of
     *  another device of the same kind. */
    tutti_status (*copy)(void* user, void* to, const void* from, size_t bytes);
    tutti_status (*zero)(void* user, void* data, size_t bytes);
    /** y[i] = a * x[i] + b * y[i] for floating types; b == 0 does not read y. */
    tutti_status (*axpby)(void* user, size_t count, tutti_dtype dtype, double a, const void* x,
                          double b, void* y);
    /** Calls work(argument) where this device's operations run. */
    tutti_status (*run)(void* user, void (*work)(void* argument), void* argument);
    /** Makes whole pages fault; NULL: this device cannot check declarations. */
    tutti_status (*protect)(void* user, void* data, size_t bytes, tutti_access access);
    /** Converts float16 or bfloat16 to float32, or back (round to nearest, ties to even). NULL: no
     *  such parameters with fixed_order or local_steps. */
    tutti_status (*convert)(void* user, size_t count, tutti_dtype from_dtype, const void* from,
                            tutti_dtype to_dtype, void* to);
    /** Copies from another device's memory to this one's, without the host. Both devices are of one
     *  kind: the same copy and copy_peer. from_user is that device's user. NULL: copy is used. */
    tutti_status (*copy_peer)(void* user, void* to, void* from_user, const void* from,
                              size_t bytes);
    tutti_device_memory memory;
} tutti_device_functions;
#define TUTTI_DEVICE_FUNCTIONS_INIT                                                           \
    {                                                                                         \
        sizeof(tutti_device_functions), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
            TUTTI_MEMORY_REACHABLE                                                            \
    }

/** A device of the program's own. The table is copied. INVALID names a function that is missing. */
TUTTI_API tutti_status tutti_device_create(const tutti_device_functions* functions, void* user,
                                           tutti_device** device);
/** A device of this host's cores and memory; a program may create any number of them. */
TUTTI_API tutti_status tutti_device_create_cpu(tutti_device** device);
/** Destroy it after the trainers that use it. NULL is fine. */
TUTTI_API void tutti_device_destroy(tutti_device* device);

/* ---- declaring a model -------------------------------------------------------------------- */

/** The kind of a buffer. */
typedef enum {
    TUTTI_PARAMETER = 0, /**< learnt: has a gradient, equal on all replicas */
    TUTTI_COMPUTED,      /**< not learnt but kept, such as running statistics: synchronised */
    TUTTI_GRADIENT,      /**< of another buffer (gradient_of); the layer makes those not declared */
    TUTTI_ACTIVATION,    /**< of one micro-batch */
    TUTTI_INPUT,         /**< filled by the input builder's operations, or by the program */
    TUTTI_STATE          /**< the optimiser's: momentum, learning rate, iteration counter */
} tutti_buffer_kind;

enum {
    TUTTI_DISTRIBUTED = 1, /**< a shard: each replica has its own; the layer does not sync it */
    TUTTI_KEEP = 2,        /**< stays readable after the step, so shares no memory */
    TUTTI_SPARSE = 4       /**< a table whose gradient has few rows (tutti_model_sparse) */
};

#define TUTTI_MAX_DIMENSIONS 8

/** A buffer's declaration. Start from TUTTI_BUFFER_SPEC_INIT. */
typedef struct {
    size_t struct_size;
    const char* name; /**< within the scope; letters, digits and . _ - */
    tutti_buffer_kind kind;
    tutti_dtype dtype;
    size_t bytes;   /**< a multiple of the dtype's size; 0: from shape */
    int dimensions; /**< of shape; 0: one, as bytes say */
    int64_t shape[TUTTI_MAX_DIMENSIONS];
    tutti_buffer gradient_of; /**< TUTTI_GRADIENT: the buffer it belongs to */
    uint32_t flags;           /**< TUTTI_DISTRIBUTED, TUTTI_KEEP, TUTTI_SPARSE */
    int64_t sparse_rows;      /**< TUTTI_SPARSE: the most rows that one micro-batch touches */
    /** TUTTI_DISTRIBUTED: rows (shape[0]) of the whole value. Replica r has the rows from
     *  r * ceil(total_rows / replicas) on (tutti_shard_range); the rest of its buffer is padding.
     *  0: there is no padding, the replicas' rows follow one another. */
    int64_t total_rows;
} tutti_buffer_spec;
#define TUTTI_BUFFER_SPEC_INIT \
    { sizeof(tutti_buffer_spec), NULL, TUTTI_PARAMETER, TUTTI_FLOAT32, 0, 0, {0}, -1, 0, 0, 0 }

/** A buffer of a device, as declared. */
typedef struct {
    size_t struct_size;
    const char* name; /**< without the device's scope; valid while the trainer is */
    tutti_buffer_kind kind;
    tutti_dtype dtype;
    size_t bytes;
    int dimensions;
    int64_t shape[TUTTI_MAX_DIMENSIONS];
    uint32_t flags;
    void* data; /**< on the device */
    /** TUTTI_DISTRIBUTED, of a trainer: this rank has rows first_row to first_row + own_rows - 1
     *  of total_rows. */
    int64_t total_rows, first_row, own_rows;
} tutti_buffer_info;

/** An operation's arithmetic. Anything but TUTTI_OK fails the step with the operation's name. A C++
 *  function may throw: the step fails with the exception's text. */
typedef tutti_status (*tutti_operation_fn)(tutti_step* step, void* user);

/** An operation's declaration. The backward function may read what forward reads and writes and the
 *  gradients of its writes, and *adds* to the gradients of its reads. Start from
 *  TUTTI_OPERATION_SPEC_INIT. */
typedef struct {
    size_t struct_size;
    const char* name;
    const tutti_buffer* reads;
    size_t read_count;
    const tutti_buffer* writes; /**< a buffer may be in both lists */
    size_t write_count;
    tutti_operation_fn forward;
    tutti_operation_fn backward; /**< NULL: gradients end here */
    void* user;
} tutti_operation_spec;
#define TUTTI_OPERATION_SPEC_INIT \
    { sizeof(tutti_operation_spec), NULL, NULL, 0, NULL, 0, NULL, NULL, NULL }

/** A collective among all replicas (devices × hosts), as an operation. */
typedef enum {
    TUTTI_COLLECTIVE_ALLREDUCE = 0,
    TUTTI_COLLECTIVE_BROADCAST,
    TUTTI_COLLECTIVE_REDUCE,
    TUTTI_COLLECTIVE_ALLGATHER,
    TUTTI_COLLECTIVE_REDUCE_SCATTER
} tutti_collective_kind;

/** The gradient of an allreduced sum. */
typedef enum {
    TUTTI_BACKWARD_SUM = 0, /**< each replica has its own loss: the gradients are summed */
    TUTTI_BACKWARD_COPY     /**< all replicas compute the same loss: the gradient is copied */
} tutti_backward_convention;

/** Start from TUTTI_COLLECTIVE_SPEC_INIT. Every device declares the same ones in the same order. */
typedef struct {
    size_t struct_size;
    const char* name;
    tutti_collective_kind kind;
    tutti_buffer in, out; /**< different buffers; replica r's block, if any, is the r-th */
    tutti_op op;          /**< max, min and prod have no gradient: refused where one is needed */
    int root;             /**< replica: rank × devices + device */
    tutti_backward_convention backward; /**< of an allreduce */
} tutti_collective_spec;
#define TUTTI_COLLECTIVE_SPEC_INIT                                                             \
    {                                                                                          \
        sizeof(tutti_collective_spec), NULL, TUTTI_COLLECTIVE_ALLREDUCE, -1, -1, TUTTI_SUM, 0, \
            TUTTI_BACKWARD_SUM                                                                 \
    }

/** Declares a buffer. INVALID if the name is taken or the size is invalid. */
TUTTI_API tutti_status tutti_model_buffer(tutti_model* model, const tutti_buffer_spec* spec,
                                          tutti_buffer* buffer);
/** A buffer by name: in this scope, or "device_0/name" of another. */
TUTTI_API tutti_status tutti_model_find(tutti_model* model, const char* name, tutti_buffer* buffer);
/** Describes a declared buffer of any scope. Set info->struct_size before; data is NULL. */
TUTTI_API tutti_status tutti_model_info(tutti_model* model, tutti_buffer buffer,
                                        tutti_buffer_info* info);
/** The gradient of a buffer, for the update builder. INVALID if it has none. */
TUTTI_API tutti_status tutti_model_gradient(tutti_model* model, tutti_buffer of,
                                            tutti_buffer* gradient);
/** The gradient of a TUTTI_SPARSE parameter is a list: count[0] entries, entry i for the row
 *  rows[i] (int64) of the table, with values[i] as long as a row. A backward function appends
 *  entries and sets all their values: only count[0] begins at zero. A row may occur several times.
 *  The update reads each row once, in order, summed over all replicas. Operations that read the
 *  parameter may append; operations of the update builder declare the parts that they read. */
TUTTI_API tutti_status tutti_model_sparse(tutti_model* model, tutti_buffer parameter,
                                          tutti_buffer* values, tutti_buffer* rows,
                                          tutti_buffer* count);
/** The learning rate: "learning_rate", one float64 of kind state, for the update builder. */
TUTTI_API tutti_status tutti_model_learning_rate(tutti_model* model, double value,
                                                 tutti_buffer* buffer);
/** The count of finished steps: "iteration", one int64 of kind state, counted by the layer, for the
 *  update builder. If the builder does not ask for it, or has it in a scope ("adam/iteration"), the
 *  layer keeps an "iteration" for the checkpoint; no other buffer may have that name. */
TUTTI_API tutti_status tutti_model_iteration(tutti_model* model, tutti_buffer* buffer);
/** Adds an operation after those declared so far. */
TUTTI_API tutti_status tutti_model_operation(tutti_model* model, const tutti_operation_spec* spec);
/** Adds a collective after the operations declared so far. */
TUTTI_API tutti_status tutti_model_collective(tutti_model* model,
                                              const tutti_collective_spec* spec);
/** Adds a copy after the operations declared so far: from a buffer of this scope or of a scope that
 * was declared before ("device_0/name"), to a buffer of this scope of the same bytes and dtype. It
 * runs after the other scope's operations of this builder; gradients end here. Devices of one kind
 * copy directly. */
TUTTI_API tutti_status tutti_model_copy(tutti_model* model, const char* name, tutti_buffer from,
                                        tutti_buffer to);
/** Prefixes the names from here to tutti_model_leave with name/. */
TUTTI_API tutti_status tutti_model_enter(tutti_model* model, const char* name);
/** Ends the innermost tutti_model_enter. */
TUTTI_API tutti_status tutti_model_leave(tutti_model* model);
/** Which local device this is. */
TUTTI_API int tutti_model_device(const tutti_model* model);
/** Which of all replicas: rank × devices + device. */
TUTTI_API int tutti_model_replica(const tutti_model* model);
/** Devices × ranks. */
TUTTI_API int tutti_model_replicas(const tutti_model* model);
/** A loss: the backward pass begins here, with a gradient of 1 for each element. */
TUTTI_API tutti_status tutti_losses_add(tutti_losses* losses, tutti_buffer loss);

/* ---- inside an operation ------------------------------------------------------------------ */

/** Device memory of a declared buffer; NULL, and the step fails, if this operation did not declare
 *  it. */
TUTTI_API void* tutti_step_data(tutti_step* step, tutti_buffer buffer);
/** Device memory of its gradient. NULL without failure if there is none: nothing to compute. */
TUTTI_API void* tutti_step_gradient(tutti_step* step, tutti_buffer buffer);
/** The local device that the operation runs for. */
TUTTI_API int tutti_step_device(const tutti_step* step);
/** Which of the step's micro-batches this is. */
TUTTI_API int tutti_step_micro_batch(const tutti_step* step);
/** The step's number, from 0; restored steps count. */
TUTTI_API int64_t tutti_step_iteration(const tutti_step* step);
/** The factor by which to multiply a mean over this replica's samples in this step. */
TUTTI_API double tutti_step_loss_scale(const tutti_step* step);
/** This replica's samples of this micro-batch, as given to tutti_trainer_step; -1 if not given. */
TUTTI_API int64_t tutti_step_samples(const tutti_step* step);

/* ---- building ----------------------------------------------------------------------------- */

typedef tutti_status (*tutti_input_builder)(tutti_model* model, void* user);
typedef tutti_status (*tutti_forward_builder)(tutti_model* model, double loss_scale,
                                              tutti_losses* losses, void* user);
typedef tutti_status (*tutti_update_builder)(tutti_model* model, double lr_scale, void* user);

typedef enum { TUTTI_EXECUTION_SERIAL = 0, TUTTI_EXECUTION_DAG } tutti_execution;
typedef enum { TUTTI_SCALE_LOSS = 0, TUTTI_SCALE_LEARNING_RATE } tutti_scale;
typedef enum { TUTTI_COMPUTED_BROADCAST = 0, TUTTI_COMPUTED_MEAN } tutti_computed_sync;

/** Start from TUTTI_TRAINER_OPTIONS_INIT, the defaults. All ranks give the same options, else
 *  INVALID; only execution, threads, max_in_flight and optimize_gradient_memory may differ. */
typedef struct {
    size_t struct_size;
    tutti_execution execution; /**< TUTTI_EXECUTION=serial|dag in the environment wins over it */
    int threads;         /**< of the DAG; 0: TUTTI_TRAINER_THREADS, else one per device + 1; where
                              devices are cores, no more than the rank has of those */
    tutti_scale scale;   /**< where 1 / (replicas × micro-batches) is applied */
    int micro_batches;   /**< per replica and step */
    int uneven;          /**< sample numbers differ: weigh by them (one tiny sum a step) */
    int fixed_order;     /**< sums in pairs by replica and micro-batch; not for 8-bit types */
    size_t bucket_bytes; /**< 0: 25 MiB */
    size_t first_bucket_bytes; /**< 0: 1 MiB */
    int max_in_flight;         /**< collectives at once; 0: 4 */
    int rings;                 /**< used round-robin; 0: 2, or 1 if the communicator has one */
    tutti_computed_sync computed_sync;
    int computed_every;           /**< steps between synchronisations; 0: 1 */
    int local_steps;              /**< LocalSGD: steps between averages; 0: synchronous SGD */
    int optimize_gradient_memory; /**< gradients and activations share memory */
    int check_declarations;       /**< 1, or TUTTI_TRAINER_CHECK=1: false declarations are errors */
    int external_autograd;        /**< no operations; see tutti_trainer_grad_ready */
    tutti_trainer* parameters_of; /**< use that trainer's parameters and computed buffers */
} tutti_trainer_options;
#define TUTTI_TRAINER_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(tutti_trainer_options), TUTTI_EXECUTION_SERIAL, 0, TUTTI_SCALE_LOSS, 1, 0, 0, 0, 0, \
            0, 0, TUTTI_COMPUTED_BROADCAST, 0, 0, 0, 0, 0, NULL                                    \
    }

/** The builders, devices and communicator of a trainer. Start from TUTTI_PARALLELIZE_INIT. */
typedef struct {
    size_t struct_size;
    tutti_device* const* devices;
    int device_count;
    tutti_comm* comm;          /**< NULL: this process alone. Not owned: the layer copies it. */
    tutti_input_builder input; /**< may be NULL */
    tutti_forward_builder forward;
    tutti_update_builder update;          /**< NULL: forward only */
    void* user;                           /**< of the builders */
    const tutti_trainer_options* options; /**< NULL: defaults */
} tutti_parallelize_spec;
#define TUTTI_PARALLELIZE_INIT \
    { sizeof(tutti_parallelize_spec), NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL }

/** Collective: runs the builders once for each device, checks what they declared and allocates.
 *  INVALID names the builder, operation, buffer and scopes at fault. */
TUTTI_API tutti_status tutti_parallelize(const tutti_parallelize_spec* spec,
                                         tutti_trainer** trainer);
/** NULL is fine. Never hangs. */
TUTTI_API void tutti_trainer_destroy(tutti_trainer* trainer);

/* ---- training ----------------------------------------------------------------------------- */

/** Collective, once before the first step: copies parameters, computed buffers and state of rank
 *  0's device 0 to all replicas. */
TUTTI_API tutti_status tutti_trainer_init_sync(tutti_trainer* trainer);
/** As tutti_trainer_init_sync, any number of times, such as after loading a checkpoint. */
TUTTI_API tutti_status tutti_trainer_sync(tutti_trainer* trainer);
/** Collective: one step of micro_batches micro-batches. samples: NULL, or for options.uneven the
 * number that each device has in each micro-batch (device × micro_batches + micro-batch), 0 if a
 * device ran out. total: NULL, or receives the samples of all replicas; 0 means that all ran out
 * and nothing was done. */
TUTTI_API tutti_status tutti_trainer_step(tutti_trainer* trainer, const int64_t* samples,
                                          int64_t* total);
/** Collective: waits for all ranks. */
TUTTI_API tutti_status tutti_trainer_epoch_barrier(tutti_trainer* trainer);

/** Collective, between steps: reads rows of a table that is sharded over all replicas. Each replica
 *  holds ceil(total_rows / replicas) rows, the last ones fewer, in a TUTTI_DISTRIBUTED parameter.
 *  Copies row rows[i] to the i-th place of values, on the host. Ranks may ask for different rows
 *  and numbers of rows. INVALID on all ranks if one asks for a row that does not exist. */
TUTTI_API tutti_status tutti_trainer_sparse_pull(tutti_trainer* trainer, const char* parameter,
                                                 int64_t total_rows, const int64_t* rows,
                                                 size_t count, void* values);

/** With external_autograd, a step is begin, then grad_ready for every parameter of every device in
 *  any order from any thread, then finish. Gradients are zero after begin, and stay zero at finish
 *  for parameters that were not used. */
TUTTI_API tutti_status tutti_trainer_begin(tutti_trainer* trainer);
/** The parameter's gradient on that device is complete: its bucket may be reduced. From any
 *  thread. */
TUTTI_API tutti_status tutti_trainer_grad_ready(tutti_trainer* trainer, int device,
                                                const char* parameter);
/** Call it after every grad_ready has returned: waits for all gradients, then updates. */
TUTTI_API tutti_status tutti_trainer_finish(tutti_trainer* trainer);

/* ---- after a loss ------------------------------------------------------------------------- */

/** The behaviour after another rank's loss or failure. Start from TUTTI_TRAINER_RECOVERY_INIT. */
typedef struct {
    size_t struct_size;
    /** 1: the ranks that are left repeat the step with the parameters, the optimiser's state and
     *  the computed buffers of the step's begin; loss scale and sample counts follow the new number
     *  of ranks. 0: a loss ends the trainer. The same on all ranks. */
    int recover;
    /** Sets the shares of this rank, which is now rank of ranks, before a step is repeated inside
     *  tutti_trainer_step, on that call's thread. samples: NULL, or the numbers of the step, for
     *  the function to replace. Anything but TUTTI_OK ends the trainer. NULL: the step returns
     *  PEER_LOST instead, and the program calls it again. */
    tutti_status (*resize)(void* user, int rank, int ranks, int64_t* samples);
    void* user; /**< of resize */
} tutti_trainer_recovery;
#define TUTTI_TRAINER_RECOVERY_INIT \
    { sizeof(tutti_trainer_recovery), 0, NULL, NULL }

/** Collective, between steps, at best before tutti_trainer_init_sync. With recover, PEER_LOST from
 *  a collective call of the trainer always means that the trainer goes on with fewer ranks and that
 *  the program makes the call again; if the trainer cannot go on, the call has another error. If
 *  some rank was between two steps (in tutti_trainer_recover, admit, sync, save, load or
 *  epoch_barrier), every rank repeats all that it has done since the last finished step. A rank
 *  whose step another rank had finished gets that rank's state, and its step returns OK. A loss in
 *  tutti_parallelize is an error as without recover; one in this call is left to the next
 *  collective call of the trainer.
 *
 *  UNSUPPORTED for a model that depends on a lost rank's data or on the first number of replicas:
 *  buffers with TUTTI_DISTRIBUTED or TUTTI_SPARSE, collectives of the model other than allreduce or
 *  with TUTTI_AVG, TUTTI_SCALE_LEARNING_RATE, local_steps, and no update builder. */
TUTTI_API tutti_status tutti_trainer_set_recovery(tutti_trainer* trainer,
                                                  const tutti_trainer_recovery* recovery);
/** Collective, after an operation of the program's on tutti_trainer_comm has failed by a loss: the
 *  trainer goes on with the ranks that are left. Ranks that are in a step take part there. Then
 *  the program repeats all that it has done since the last finished step. */
TUTTI_API tutti_status tutti_trainer_recover(tutti_trainer* trainer);
/** Collective, between two steps, with recover: so many new processes (tutti_comm_grow) join the
 *  ranks that train, and get their state. A newcomer makes its communicator with the setting join,
 *  then calls tutti_parallelize with it, tutti_trainer_set_recovery and tutti_trainer_init_sync,
 *  which it repeats after PEER_LOST. The ranks keep their numbers; tutti_trainer_comm has the
 *  newcomers after them. A newcomer can tell its place in the training from the iteration counter.
 *  If the newcomers do not come (TIMEOUT), or declare another model, the call fails on all ranks,
 *  and the trainer goes on as it was. PEER_LOST: a rank was lost before the newcomers were in; the
 *  trainer goes on with those that are left. UNSUPPORTED: it was built for a single replica. */
TUTTI_API tutti_status tutti_trainer_admit(tutti_trainer* trainer, int newcomers);
/** The communicator of the ranks that train, for the program's own collectives between steps. The
 *  trainer owns it, and replaces it after a loss and in tutti_trainer_admit. NULL once the trainer
 *  has ended. */
TUTTI_API tutti_comm* tutti_trainer_comm(const tutti_trainer* trainer);
/** The number of losses after which this trainer has gone on; -1 for NULL. */
TUTTI_API int64_t tutti_trainer_recoveries(const tutti_trainer* trainer);
/** The bytes of one device that each step copies at its begin for a recovery: of the buffers that
 *  operations before the update write. 0 without recover. */
TUTTI_API size_t tutti_trainer_recovery_bytes(const tutti_trainer* trainer);

/* ---- looking ------------------------------------------------------------------------------ */

/** The number of buffers in the device's scope; -1 if there is no such device. */
TUTTI_API int tutti_trainer_buffer_count(const tutti_trainer* trainer, int device);
/** The index-th buffer, in the order of declaration. Set info->struct_size before. */
TUTTI_API tutti_status tutti_trainer_buffer_info(const tutti_trainer* trainer, int device,
                                                 int index, tutti_buffer_info* info);
/** By name, without the device's scope. "name_grad" is the gradient that the layer made. */
TUTTI_API tutti_status tutti_trainer_find(const tutti_trainer* trainer, int device,
                                          const char* name, tutti_buffer_info* info);
/** Between steps: copies a buffer to the host, or from it. bytes is its whole size. INVALID for
 *  buffers that share memory. */
TUTTI_API tutti_status tutti_trainer_read(tutti_trainer* trainer, int device, const char* name,
                                          void* host, size_t bytes);
/** As tutti_trainer_read, from the host to the device. */
TUTTI_API tutti_status tutti_trainer_write(tutti_trainer* trainer, int device, const char* name,
                                           const void* host, size_t bytes);

/* ---- checkpoints -------------------------------------------------------------------------- */

/** The number of a scope's buffers that make up a model's state: parameters, computed parameters,
 *  and the update builder's buffers, learning rate and iteration counter included. scope:
 *  "device_1", "" (the same as "device_0"), or a scope of the model in a device,
 *  "device_1/encoder" or "encoder". -1 if there is no such scope. */
TUTTI_API int tutti_trainer_param_count(const tutti_trainer* trainer, const char* scope);
/** The index-th buffer of the state, in the order of declaration, its name without the scope: for
 *  frameworks with their own formats. Set info->struct_size before. */
TUTTI_API tutti_status tutti_trainer_param(const tutti_trainer* trainer, const char* scope,
                                           int index, tutti_buffer_info* info);
/** Collective, between steps: saves the state (docs/how-to/checkpoints.md) with
 *  tutti_checkpoint_save: that of rank 0's device 0, and every shard once. */
TUTTI_API tutti_status tutti_trainer_save(tutti_trainer* trainer, const char* path);
/** Collective: restores the state on every replica with tutti_checkpoint_load, from any number of
 *  devices and ranks that saved it, and synchronises. Steps may follow. A refused file changes
 *  nothing; after a failure half-way, steps are refused until a load succeeds. opts NULL: no
 *  missing and no extra entries are allowed. */
TUTTI_API tutti_status tutti_trainer_load(tutti_trainer* trainer, const char* path,
                                          const tutti_checkpoint_opts* opts);
/** Adds the state to a list, for programs that save texts or more entries with it. The trainer must
 *  outlive the list's last save or load; after a load call tutti_trainer_sync. */
TUTTI_API tutti_status tutti_trainer_checkpoint(tutti_trainer* trainer,
                                                tutti_checkpoint* checkpoint);

/** This rank's counters since the trainer was made. */
typedef struct {
    size_t struct_size;
    int64_t steps;
    int64_t collectives;       /**< issued */
    uint64_t collective_bytes; /**< of their messages */
    size_t device_bytes;       /**< memory of one device's buffers: the largest */
    int buckets;
    int gradient_buffers; /**< of one device */
} tutti_trainer_counters;
/** Fills counters; set its struct_size before. */
TUTTI_API tutti_status tutti_trainer_count(const tutti_trainer* trainer,
                                           tutti_trainer_counters* counters);
/** Bytes of one parameter's gradients reduced so far; for a sparse parameter, of all its lists. */
TUTTI_API tutti_status tutti_trainer_reduced_bytes(const tutti_trainer* trainer,
                                                   const char* parameter, uint64_t* bytes);

#ifdef __cplusplus
}
#endif

#endif
