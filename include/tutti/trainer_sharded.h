/**
 * @file trainer_sharded.h
 * @brief A fully-connected layer with softmax cross-entropy whose classes are spread over the
 * ranks.
 *
 * For more classes than one device's memory holds: a rank has 1/n of the weight, and of the logits.
 * docs/reference/parallel.md is the guide. Link with -ltutti_trainer.
 *
 * **Errors.** tutti_trainer_last_error() is this thread's last failure in words.
 */
#ifndef TUTTI_TRAINER_SHARDED_H
#define TUTTI_TRAINER_SHARDED_H

#include "tutti/trainer_errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Maps labels to a shard's own classes. A shard has (classes + shards - 1) / shards classes (the
 * last shards fewer). A label of this shard becomes its index there, any other becomes ignore. in
 * and out may be the same. INVALID for a label that is neither a class nor ignore. */
TUTTI_API tutti_status tutti_shard_index(const int64_t* labels, size_t count, int64_t classes,
                                         int shards, int shard, int64_t ignore, int64_t* out);
/** The first class of a shard and how many it has: (classes + shards - 1) / shards, the last shards
 * fewer or none. */
TUTTI_API tutti_status tutti_shard_range(int64_t classes, int shards, int shard, int64_t* first,
                                         int64_t* count);

/** The arithmetic: float32, row-major, in the memory of the layer's buffers. float* and const
 * float* parameters are memory of alloc's kind, like x, weight and gradients; max, sums, values,
 * factors and columns are in host memory. */
typedef struct {
    size_t struct_size;
    void* user;
    /** Memory for features and logits; NULL on failure. */
    void* (*alloc)(void* user, size_t bytes);
    void (*free)(void* user, void* data);
    /** count elements of the same kind of memory. */
    tutti_status (*copy)(void* user, float* to, const float* from, size_t count);
    /** c (m × n) = op(a) · op(b) + beta · c; op(a) is m × k, op(b) k × n; transpose_a and
     * transpose_b: stored transposed. The program's own, usually a BLAS. */
    tutti_status (*gemm)(void* user, int transpose_a, int transpose_b, size_t m, size_t n, size_t k,
                         const float* a, const float* b, float beta, float* c);
    /** Adds bias (cols) to each row. */
    tutti_status (*add_bias)(void* user, float* logits, size_t rows, size_t cols,
                             const float* bias);
    /** The largest of each row; minus infinity where cols is 0. */
    tutti_status (*row_max)(void* user, const float* logits, size_t rows, size_t cols, float* max);
    /** values[r] = logits[r][columns[r]]; 0 where columns[r] < 0. */
    tutti_status (*pick)(void* user, const float* logits, size_t rows, size_t cols,
                         const int64_t* columns, double* values);
    /** logits[r][c] = exp(logits[r][c] - max[r]); sums[r] = their sum. */
    tutti_status (*exponentials)(void* user, float* logits, size_t rows, size_t cols,
                                 const float* max, double* sums);
    /** logits[r][c] *= factors[r]; then logits[r][columns[r]] -= less where columns[r] >= 0. */
    tutti_status (*gradient)(void* user, float* logits, size_t rows, size_t cols,
                             const double* factors, const int64_t* columns, double less);
    /** sums[c] = Σ logits[r][c]. */
    tutti_status (*column_sums)(void* user, const float* logits, size_t rows, size_t cols,
                                float* sums);
    /** Copies count elements of alloc's memory to the host's, and back. NULL: libtutti takes
     *  addresses of alloc's memory itself. Both or neither. */
    tutti_status (*to_host)(void* user, float* host, const float* from, size_t count);
    tutti_status (*from_host)(void* user, float* to, const float* host, size_t count);
} tutti_fc_math;
/** For host memory. gemm is NULL: copy the table and set the program's own. */
TUTTI_API const tutti_fc_math* tutti_fc_math_host(void);

typedef struct tutti_sharded_fc tutti_sharded_fc; /**< this rank's part of the layer */

/** Start from TUTTI_SHARDED_FC_SPEC_INIT. */
typedef struct {
    size_t struct_size;
    tutti_comm*
        comm; /**< one rank a shard; NULL: one shard. The program must not use it during a call. */
    int64_t classes;
    size_t features;
    int64_t ignore;            /**< the label of samples that do not count */
    const tutti_fc_math* math; /**< copied; complete */
} tutti_sharded_fc_spec;
#define TUTTI_SHARDED_FC_SPEC_INIT \
    { sizeof(tutti_sharded_fc_spec), NULL, 0, 0, -1, NULL }

/** Every rank makes the same layer. The program owns its weight: rows × features, for the classes
 *  of tutti_shard_range. It is a `distributed` parameter, which tutti does not synchronise. */
TUTTI_API tutti_status tutti_sharded_fc_create(const tutti_sharded_fc_spec* spec,
                                               tutti_sharded_fc** layer);
/** Destroy it before its communicator. NULL is fine. */
TUTTI_API void tutti_sharded_fc_destroy(tutti_sharded_fc* layer);
/** Collective: x (batch × features) and labels (host memory) of this rank's samples; batches may
 *  differ between ranks, and be 0. *loss is the mean of all ranks' samples that are not ignored,
 * the same bits on every rank; 0 if there are none. bias (of this shard's classes) may be NULL.
 * INVALID on every rank, with the rank at fault, for a label that is no class. */
TUTTI_API tutti_status tutti_sharded_fc_forward(tutti_sharded_fc* layer, const float* x,
                                                const int64_t* labels, size_t batch,
                                                const float* weight, const float* bias,
                                                double* loss);
/** Collective, once after a forward: gradients of loss_scale · loss. dx (this rank's samples),
 * dweight and dbias (this shard; dbias NULL without bias) are complete: do not reduce them. All are
 * overwritten. */
TUTTI_API tutti_status tutti_sharded_fc_backward(tutti_sharded_fc* layer, double loss_scale,
                                                 const float* weight, float* dx, float* dweight,
                                                 float* dbias);

#ifdef __cplusplus
}
#endif
#endif
