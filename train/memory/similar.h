/* similar.h -- passages that BM25 finds in the training corpus, for each chunk of the text, before the first step.
 *
 * The corpus is the training text and the text of pool_data, cut into chunks document by document. Chunk i of a
 * document asks with its own ids and those of the chunk before it for what follows, as the token memory does when it
 * generates (docs/token-memory.md); its own document is left out. Results are kept in a file, since they depend on the
 * text alone. A block of a sequence gets those of the last chunk that ended at or before its first id. With `coming`
 * the chunk that follows that one asks as well: what it finds pays best, but only a teacher may know it. */
#pragma once
#include "base/progress.h"
#include "base/system/threads.h"
#include "train/step/batches.h"

struct similar_config {
    const struct batches *text, *pool, *valid;            /* borrowed; pool, valid: NULL if there are none */
    const struct model_config *model;    /* copied */
    int passages, coming, span;          /* of a block; more of a block, found with the chunk to come; chunks of each */
    const char *path;                    /* of the file */
    bool make;                           /* make the file if it is missing */
    const struct progress *progress;
    struct threads *threads;             /* may be NULL */
};

struct similar;
/* STATUS_MISMATCH, naming the file: it was made of other text or with another chunk. */
enum status similar_open(struct similar **out, const struct similar_config *config);
void similar_free(struct similar *n);               /* NULL is fine */

/* Numbers that a batch's passages take: ids, and documents. `blocks`: N*B. Of each block first `passages`, best first,
 * then `coming`, each in the first ones of its slots. No chunk is among both. */
size_t similar_ids(const struct similar *n, int64_t blocks);
size_t similar_documents(const struct similar *n, int64_t blocks);
/* Sets batch->passages and batch->passage_documents, which lie in the caller's arrays of those sizes. `valid`: the
 * batch is of the validation text. */
void similar_fill(const struct similar *n, struct batch *batch, int32_t *ids, int32_t *documents, bool valid);

/* A batches_arrange (context: struct similar): the windows of a group of `group` sequences of a batch are those that
 * find the most of one another's chunks. The first of a group is the next one of the random order. */
void similar_arrange(void *context, int64_t *order, int64_t windows, int64_t start, int64_t phase);
/* What similar_arrange needs: ids of a window, sequences of a group (above 1). */
enum status similar_set_group(struct similar *n, int64_t length, int group);
