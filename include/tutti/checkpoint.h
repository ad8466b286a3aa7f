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
 * **Time.** All ranks must call save or load within the communicator's deadline (timeout_ms). The
 * disk and the copy function may then take any time; if a rank dies, the call fails.
 *
 * **Threads.** A tutti_checkpoint belongs to one thread at a time.
 */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include "tutti/trainer_errors.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The state to save or to restore: names and the addresses of their values. */
typedef struct tutti_checkpoint tutti_checkpoint;

/** Copies bytes between host and device memory: if to_device is not 0, to is device memory, else
 *  from is. Returns 0, or anything else for failure. It must not throw. */
typedef int (*tutti_checkpoint_copy)(void* user, void* to, const void* from, size_t bytes,
                                     int to_device);

/** Strictness of a restore. Initialise with TUTTI_CHECKPOINT_OPTS_INIT. */
typedef struct {
    size_t struct_size; /**< sizeof(tutti_checkpoint_opts) */
    int allow_missing;  /**< entries that the file lacks keep the values they have */
    int allow_extra;    /**< the file may have entries that are not in the list */
} tutti_checkpoint_opts;
#define TUTTI_CHECKPOINT_OPTS_INIT \
    { sizeof(tutti_checkpoint_opts), 0, 0 }

/** An empty list. */
TUTTI_API tutti_status tutti_checkpoint_create(tutti_checkpoint** checkpoint);
/** NULL is fine. */
TUTTI_API void tutti_checkpoint_destroy(tutti_checkpoint* checkpoint);

/** Adds a value that every rank and device has a copy of: a parameter, a computed
 *  parameter, optimiser state, a counter. A name "device_N/x" is stored as "x": saved from the
 *  lowest N of rank 0, restored to every device. dims 0 is a single element (shape may be NULL).
 *  data stays the caller's and must live until the last save or load. INVALID for a name that is
 *  empty or was added before, and if shape or type differ from another device's. */
TUTTI_API tutti_status tutti_checkpoint_add(tutti_checkpoint* checkpoint, const char* name,
                                            void* data, tutti_dtype dtype, int dims,
                                            const int64_t* shape);
/** Adds a part of a value that is spread over ranks or devices: rows first_row … first_row+rows-1
 * of shape[0] lie at data, one after the other. shape is the whole value's, the same everywhere.
 * When saving, the parts of all ranks cover every row exactly once; when restoring, a rank may ask
 * for any rows, whichever rank saved them. rows may be 0. */
TUTTI_API tutti_status tutti_checkpoint_add_shard(tutti_checkpoint* checkpoint, const char* name,
                                                  void* data, tutti_dtype dtype, int dims,
                                                  const int64_t* shape, int64_t first_row,
                                                  int64_t rows);
/** Keeps a text with the state ("epoch" → "12"); rank 0's text is saved. INVALID for keys that
 * begin with "tutti." */
TUTTI_API tutti_status tutti_checkpoint_set_text(tutti_checkpoint* checkpoint, const char* key,
                                                 const char* text);
/** A text that was set, or that the last load found; NULL if there is none. Valid until the next
 *  set or load. */
TUTTI_API const char* tutti_checkpoint_text(const tutti_checkpoint* checkpoint, const char* key);
/** Sets the copy function for values in memory that the host cannot access. copy NULL: it can. */
TUTTI_API tutti_status tutti_checkpoint_set_copy(tutti_checkpoint* checkpoint,
                                                 tutti_checkpoint_copy copy, void* user);

/** Writes the state to path.partial, syncs it and renames it to path, so that a crash leaves the
 * old file or the new one. Collective over comm (NULL: this process alone), with no messages
 * pending; rank 0 writes. INVALID if parts omit a row or overlap, or if entries differ between
 * ranks; SYSTEM for an error of the file system. After a failure path is unchanged; after
 * PEER_LOST it may also be the complete new file. */
TUTTI_API tutti_status tutti_checkpoint_save(tutti_checkpoint* checkpoint, tutti_comm* comm,
                                             const char* path);
/** Restores the state from path. Collective over comm; only rank 0 reads the file. It checks the
 * whole file before the first value changes. INVALID for a file that is damaged, truncated, of
 * another model, or written by a newer version. opts NULL: no missing and no extra entries.
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
