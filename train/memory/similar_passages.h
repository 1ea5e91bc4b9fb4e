/* similar_passages.h -- finds similar passages of the training corpus by BM25 for every chunk of the text, before the
 * first step.
 *
 * The corpus is the training text and the text of pool_data, cut into chunks document by document. The query of chunk i
 * is the chunk itself and the chunk before it, as when the token memory generates (docs/token-memory.md). The chunk's
 * own document is excluded. A file keeps the results, because they depend on the text alone. A block of a sequence gets
 * the passages of the last chunk that ended at or before the block's first id.
 *
 * With `coming` there is a second search, whose query is the chunk after that one. It finds better passages, but uses
 * text that is not yet known when generating: only a teacher may read its results. One thread at a time. */
#pragma once
#include "base/progress.h"
#include "base/system/threads.h"
#include "train/step/batches.h"

struct similar_config {
    const struct batches *text, *pool, *valid;            /* borrowed; pool, valid: NULL if there are none */
    const struct model_config *model;    /* copied */
    int passages, coming, span;          /* of a block; of a block, found by the second search; chunks of a passage */
    const char *path;                    /* of the file with the results */
    bool make;                           /* make the file if it is missing */
    const struct progress *progress;
    struct threads *threads;             /* may be NULL */
};

struct similar;
/* Reads the file of results, or makes it. STATUS_MISMATCH, naming the file: it was made from other text or with another
 * chunk size. STATUS_INTERRUPTED: `progress` requested a stop. */
enum status similar_open(struct similar **out, const struct similar_config *config);
void similar_free(struct similar *n);               /* NULL is fine */

/* Sizes of the arrays of similar_fill for `blocks` (N*B) blocks: ids, and documents. A block has `passages` slots for
 * the first search and then `coming` slots for the second. Each part is filled from its first slot on, best first. No
 * chunk is in both parts. */
size_t similar_ids(const struct similar *n, int64_t blocks);
size_t similar_documents(const struct similar *n, int64_t blocks);
/* Sets batch->passages and batch->passage_documents to the caller's arrays of those sizes. `valid`: the batch is of the
 * validation text. */
void similar_fill(const struct similar *n, struct batch *batch, int32_t *ids, int32_t *documents, bool valid);

/* A batches_arrange function (context: struct similar). It puts similar windows into one group of sequences of a batch.
 * The first window of a group is the next unused one of the random order; the others are the unused windows in which
 * most of the search results of its chunks lie. */
void similar_arrange(void *context, int64_t *order, int64_t windows, int64_t start, int64_t phase);
/* Prepares similar_arrange. length: ids of a window; group: sequences of a group, at least 2. */
enum status similar_set_group(struct similar *n, int64_t length, int group);
