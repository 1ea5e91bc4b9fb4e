/* retriever.h -- retrieves neighbours from the own past, from the corpus, or the best k of both (model.md §8).
 *
 * The own past is stored on the device as each chunk's tokens and landmark. A retrieved chunk is encoded again, unless
 * a cache still has its K and V. With the decoder variant K and V are kept instead, because they depend on the chunk's
 * context. The corpus is a store view: a searcher finds chunks, whose ids are read from the store and encoded again.
 * One softmax covers the best k. A retriever serves one running text; chunk_retriever_reset starts another. One thread
 * at a time. */
#pragma once
#include "base/rng.h"
#include "decoder/retriever.h"
#include "encoder/encoder.h"
#include "indexer/build/external_encoder.h"
#include "indexer/search/searcher.h"

struct chunk_retriever_config {
    struct device *device;
    const struct model_config *model;
    struct encoder *encoder;
    bool self;                           /* own past */
    struct store_view *corpus;           /* NULL: none */
    /* of the corpus; borrowed; retrievers may share it. NULL: random chunks only */
    struct searcher *searcher;
    /* Needed if the corpus' landmarks are not this model's: it finds the chunks, and `encoder` makes the landmarks that
     * score them. Borrowed; NULL: the landmarks are this model's. */
    struct external_encoder *external;
    /* corpus: uniformly random chunks instead of the nearest; their scores are computed as usual */
    bool random;
    uint64_t seed;                       /* of random */
    int topk;                            /* 0: the model's */
    int64_t max_queries;                 /* chunks of one decoder pass; 0: 16 */
    int64_t cache_chunks;                /* capacity of the cache; 0: as many as needed, at least 1024 */
    int64_t exclude_document;            /* corpus: chunks of this document are never retrieved; -1: no document */
    /* with exclude_document: excludes only chunks within this distance of the query's own; -1: all */
    int64_t exclude_window;
    /* with exclude_window: the chunk of the document with which the running text begins */
    int64_t exclude_from;
};
enum status chunk_retriever_create(struct retriever **out, const struct chunk_retriever_config *config);
/* Starts a new running text, with its own exclude_document and exclude_from. The cache keeps the corpus' chunks. */
void chunk_retriever_reset(struct retriever *r, int64_t exclude_document, int64_t exclude_from);

/* Seconds on the host. On a GPU encode and idle (chunks encoded while decoding) only issue work, and search waits for
 * all work issued before it. */
struct chunk_retriever_times {
    double search, read, encode, idle;
    int64_t queries, cache_hits, cache_misses;
};
struct chunk_retriever_times chunk_retriever_times(const struct retriever *r);
/* Bytes that the running text's own past occupies, on the host and on the device: landmarks, ids, and with the decoder
 * variant K and V. Memory that is reserved for later chunks does not count. */
int64_t chunk_retriever_past_bytes(const struct retriever *r);

/* Draws k distinct chunks of a store, or all if it has no more, outside of `skip` (begin == end: none). `existing`: all
 * chunks of the view that are not dropped. Returns their number; chunks [k]. */
int64_t random_chunks(int64_t *chunks, struct rng *rng, struct store_dropped dropped, int64_t existing,
                      struct store_range skip, int64_t k);
