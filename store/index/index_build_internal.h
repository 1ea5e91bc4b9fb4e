/* index_build_internal.h -- makes FAISS indexes of a store's landmarks: trains a template, opens it, and fills it with
 * rows. Used by a process that publishes an index, and by processes that fill parts of one (store/index/parts/). */
#pragma once
#include "store/index/index_plan_internal.h"
#include "store/index/vectors_internal.h"
#include "store/shards/landmarks_internal.h"

struct index_build {
    const char *dir;                     /* of the store, for messages */
    const char *stopped;                 /* what the user can do after a stop, for its message */
    struct landmarks *landmarks;
    const struct store_publish *how;     /* seed, threads, progress, clustering */
};
/* Returns STATUS_INTERRUPTED if a stop was requested. */
enum status index_build_check_stop(const struct index_build *b);
/* Number of chunks of shards that are not dropped. */
int64_t index_build_live(const struct index_build *b);

/* Trains the index with a sample of all chunks: one row from each of plan->sample equal ranges. The same seed gives the
 * same rows. */
enum status index_build_train(const struct index_build *b, struct vectors *v, const struct index_plan *plan);
/* Reads a template. STATUS_CORRUPT: its size, checksum or structure is not the recorded one. `remedy`: for messages. */
enum status index_build_open_template(struct vectors **out, const char *path, struct stored_file recorded, int dim,
                                      const char *remedy);

/* Returns the number of rows of one call to FAISS for indexes in which a row's list can depend on the other rows of the
 * call: BLAS sums in an order that depends on the size of a block and on the processor. Calls begin at multiples of
 * this number, whatever the range. So parts that begin at such a multiple get the same lists as in one process. */
int64_t index_build_block(int dim);
/* Adds the rows of chunks begin .. end-1, none of which may be dropped. `total`: number of chunks, for the progress. */
enum status index_build_fill(const struct index_build *b, struct vectors *v, int64_t begin, int64_t end,
                             int64_t total);

/* Computes the size and the checksum of a file. */
enum status stored_file_of(struct stored_file *out, const char *path);
