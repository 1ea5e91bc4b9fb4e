/* index_build_internal.h -- a store's landmarks into FAISS: trains a template, opens it, and fills it with rows. One
 * process that publishes an index does so, and each process that fills a part of one (store/index/parts/). */
#pragma once
#include "store/index/index_plan_internal.h"
#include "store/index/vectors_internal.h"
#include "store/shards/landmarks_internal.h"

struct index_build {
    const char *dir;                     /* of the store, for messages */
    const char *stopped;                 /* what follows from a stop, for its message */
    struct landmarks *landmarks;
    const struct store_publish *how;     /* seed, threads, progress, clustering */
};
/* STATUS_INTERRUPTED after a request to stop. */
enum status index_build_check_stop(const struct index_build *b);
/* Number of chunks of shards that are not dropped. */
int64_t index_build_live(const struct index_build *b);

/* Trains the index with a sample of all chunks: one row from each of plan->sample equal stretches. The rows are the
 * same for a seed. */
enum status index_build_train(const struct index_build *b, struct vectors *v, const struct index_plan *plan);
/* Reads a template, whose size, checksum and structure must be those recorded. `remedy`: for messages. */
enum status index_build_open_template(struct vectors **out, const char *path, struct stored_file recorded, int dim,
                                      const char *remedy);

/* Rows that FAISS gets in one call, where the list of a row can depend on the rows beside it (BLAS sums a block as its
 * size is, and processors of another kind sum it in another order). Such calls begin at multiples of this number,
 * whatever the range. So parts that begin at such a multiple get the lists that one process gets. */
int64_t index_build_block(int dim);
/* Adds the rows of chunks begin .. end-1, of which none may be dropped. `total`: chunks, for the progress. */
enum status index_build_fill(const struct index_build *b, struct vectors *v, int64_t begin, int64_t end,
                             int64_t total);

/* Size and checksum of a file. */
enum status stored_file_of(struct stored_file *out, const char *path);
