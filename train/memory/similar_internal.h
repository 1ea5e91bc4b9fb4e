/* similar_internal.h -- what similar.c (tables and batches), similar_search.c (search, file) and
 * similar_order.c (windows of a batch) share. */
#pragma once
#include "train/memory/similar.h"

enum { SIMILAR_SPARE = 4,                /* more than are used: some belong to a block's own documents */
       SIMILAR_MAX = 128,                /* passages of a block */
       SIMILAR_CHUNK_MAX = 64 };

/* The chunks of one text, and what each finds. */
struct similar_text {
    const struct batches *batches;
    int64_t chunks;
    int64_t *document_first;             /* [documents + 1]: the number of each document's first chunk, from 0 */
    int32_t first_document;
    int64_t documents;
    /* [chunks, each], [chunks, each_coming] chunks of the corpus, best first; -1: fewer; NULL: none */
    int32_t *found, *coming;
};

struct packing;
struct similar {
    struct similar_config config;
    struct model_config model;
    int each, each_coming;               /* found for a chunk; with the one that follows it, 0: not searched */
    struct batches_corpus corpus;        /* the text's chunks, then the pool's */
    struct batches_corpus valid_corpus;
    struct similar_text text, pool, valid;
    struct packing *packing;             /* similar_set_group; NULL: not set */
};
void similar_packing_free(struct packing *p);          /* NULL is fine */

/* Reads the file, or makes it. */
enum status similar_find(struct similar *n);
/* Where chunk c of the text begins, counted in its ids. */
int64_t similar_chunk_start(const struct similar *n, const struct similar_text *t, int64_t chunk);
