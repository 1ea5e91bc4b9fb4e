/* similar_passages_internal.h -- shared by similar_passages.c (tables and batches), similar_search.c (search, file) and
 * similar_order.c (order of windows). */
#pragma once
#include "train/memory/similar_passages.h"

/* results searched beyond those that are used: some may belong to a block's own documents */
enum { SIMILAR_SPARE = 4,
       SIMILAR_MAX = 128,                /* passages of a block */
       SIMILAR_CHUNK_MAX = 64 };

/* The chunks of one text, and their search results. */
struct similar_text {
    const struct batches *batches;
    int64_t chunks;
    int64_t *document_first;             /* [documents + 1]: the number of each document's first chunk, from 0 */
    int32_t first_document;
    int64_t documents;
    /* [chunks, each], [chunks, each_coming]: chunks of the corpus, best first; -1: fewer were found. NULL: not
     * searched */
    int32_t *found, *coming;
};

struct packing;
struct similar {
    struct similar_config config;
    struct model_config model;
    int each, each_coming;               /* results of a chunk's first search; of its second, 0: not searched */
    struct batches_corpus corpus;        /* the text's chunks, then the pool's */
    struct batches_corpus valid_corpus;
    struct similar_text text, pool, valid;
    struct packing *packing;             /* NULL: similar_set_group was not called */
};
void similar_packing_free(struct packing *p);          /* NULL is fine */

/* Reads the file of results, or makes it. */
enum status similar_find(struct similar *n);
/* Position of the first id of chunk c in the text. */
int64_t similar_chunk_start(const struct similar *n, const struct similar_text *t, int64_t chunk);
