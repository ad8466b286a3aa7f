/**
 * @file checkpoint.h
 * @brief Checkpoints: a model's state in one file that any number of ranks and devices restores.
 *
 * The file has the safetensors layout, with a checksum of every entry in its metadata
 * (docs/how-to/checkpoints.md). It appears under its name whole or not at all. Link with
 * -ltutti_trainer.
 *
 * **Errors.** tutti_trainer_last_error() names the file, the entry, and what to do. With a
 * communicator every rank gets the same status and text.
 *
 * **Time.** The communicator's deadline (timeout_ms) is for all ranks to call save or load. What
 * these then take, on a slow disk or with a slow copy function, has none; a rank that dies ends it.
 *
 * **Threads.** A tutti_checkpoint belongs to one thread at a time.
 */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include "tutti/trainer_errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The state to save or to restore: names and where their values lie in memory. */
typedef struct tutti_checkpoint tutti_checkpoint;

/** Copies bytes between the host's memory and a device's: to is a device's when to_device is not 0,
 *  else from is. Returns 0, or anything else for failure. It must not throw. */
typedef int (*tutti_checkpoint_copy)(void* user, void* to, const void* from, size_t bytes,
                                     int to_device);

/** Strictness of a restore. Initialise with TUTTI_CHECKPOINT_OPTS_INIT. */
typedef struct {
    size_t struct_size; /**< sizeof(tutti_checkpoint_opts) */
    int allow_missing;  /**< entries that the file lacks keep the values they have */
    int allow_extra;    /**< the file may have entries that nobody asks for */
} tutti_checkpoint_opts;
#define TUTTI_CHECKPOINT_OPTS_INIT \
    { sizeof(tutti_checkpoint_opts), 0, 0 }

/** An empty list. */
TUTTI_API tutti_status tutti_checkpoint_create(tutti_checkpoint** checkpoint);
/** NULL is fine. */
TUTTI_API void tutti_checkpoint_destroy(tutti_checkpoint* checkpoint);

/** Adds a value of which every rank and device has a copy of its own: a parameter, a computed
 *  parameter, optimiser state, a counter. A name "device_N/x" is stored as "x": saved from the
 *  lowest N of rank 0, restored to every one. dims 0 is a single element (shape may be NULL). data
 *  stays the caller's and must live until the last save or load. INVALID for a name that is empty
 *  or was added before, and for what differs in shape or type from another device's. */
TUTTI_API tutti_status tutti_checkpoint_add(tutti_checkpoint* checkpoint, const char* name,
                                            void* data, tutti_dtype dtype, int dims,
                                            const int64_t* shape);
/** Adds a part of a value that is spread over ranks or devices: rows first_row … first_row+rows-1
 * of shape[0] lie at data, one after the other. shape is the whole value's, the same everywhere.
 * When saving, the parts of all ranks make up every row exactly once; when restoring, any rows are
 * fine, whoever wrote them. rows may be 0. */
TUTTI_API tutti_status tutti_checkpoint_add_shard(tutti_checkpoint* checkpoint, const char* name,
                                                  void* data, tutti_dtype dtype, int dims,
                                                  const int64_t* shape, int64_t first_row,
                                                  int64_t rows);
/** Keeps a text with the state ("epoch" → "12"); rank 0's is saved. INVALID for keys that begin
 * with "tutti." */
TUTTI_API tutti_status tutti_checkpoint_set_text(tutti_checkpoint* checkpoint, const char* key,
                                                 const char* text);
/** A text that was set, or that the last load found; NULL if there is none. Until the next set or
 *  load. */
TUTTI_API const char* tutti_checkpoint_text(const tutti_checkpoint* checkpoint, const char* key);
/** For values in memory that the host cannot touch. copy NULL: it can. */
TUTTI_API tutti_status tutti_checkpoint_set_copy(tutti_checkpoint* checkpoint,
                                                 tutti_checkpoint_copy copy, void* user);

/** Writes the state to path: to path.partial first, which is synced and renamed, so that a crash
 * leaves the old file or the new one. Collective over comm (NULL: this process alone), with no
 * messages under way; rank 0 writes. INVALID for parts that leave a row out or overlap, and ranks
 * whose entries differ; SYSTEM for what the file system refuses. After a failure path is as it was;
 * where a rank was lost meanwhile (PEER_LOST), it may be the new file, whole. */
TUTTI_API tutti_status tutti_checkpoint_save(tutti_checkpoint* checkpoint, tutti_comm* comm,
                                             const char* path);
/** Restores the state from path. Collective over comm; rank 0 reads, and nobody else needs the
 * file. The whole file is checked before the first value is touched. INVALID for a file that is
 * damaged, cut short, of another model, or written by a newer version. opts NULL: neither allowed.
 */
TUTTI_API tutti_status tutti_checkpoint_load(tutti_checkpoint* checkpoint, tutti_comm* comm,
                                             const char* path, const tutti_checkpoint_opts* opts);
/** The index-th entry that the last load did not find in the file (allow_missing), without its
 * scope; NULL past the last. */
TUTTI_API const char* tutti_checkpoint_missing(const tutti_checkpoint* checkpoint, int index);

#ifdef __cplusplus
}
#endif
#endif
