/* retriever.h -- retrieves neighbours from the text's own past, from the corpus, or the best k of both (model.md §8).
 *
 * The own past is stored on the device as each chunk's tokens and landmark. A retrieved chunk is encoded again, unless
 * a cache still has its K and V. With the decoder variant K and V are kept instead, because they depend on the chunk's
 * context. The corpus is a store view. A searcher finds chunks, whose ids are read from the store and encoded again.
 * One softmax covers the best k. A retriever is for one running text at a time; chunk_retriever_reset begins another
 * one. For one thread at a time. */
#pragma once
#include "base/rng.h"
#include "decoder/retriever.h"
#include "encoder/encoder.h"
#include "indexer/build/external_encoder.h"
#include "indexer/search/searcher.h"

enum { CONTINUATION_MAX = 64 };
struct chunk_retriever_config {
    struct device *device;
    const struct model_config *model;
    struct encoder *encoder;
    bool own_past;                       /* retrieve from the text's own past */
    struct store_view *corpus;           /* NULL: none */
    /* searches the corpus; borrowed; several retrievers may use it; NULL: random chunks only */
    struct searcher *searcher;
    /* Needed if the corpus' landmarks are not this model's. It finds the chunks, and `encoder` makes the landmarks that
     * score them. Borrowed; NULL: the landmarks are this model's. */
    struct external_encoder *external;
    /* corpus: retrieves uniformly random chunks instead of the nearest; their scores are computed as usual */
    bool random;
    uint64_t seed;                       /* for `random` */
    int topk;                            /* 0: the model's */
    /* corpus: up to so many chunks that follow a found chunk in its document are retrieved with it, within topk (RETRO,
     * Borgeaud et al. 2022, reads a neighbour and its continuation); they are scored as if found; 0: none */
    int continuation;
    /* A continuation begins so many ids before the end of what it continues, so that a statement of up to overlap + 1
     * ids that begins in the found chunk is read whole. The own past is then continued, too. The encoder makes the
     * landmarks of such passages. Of chunks that landmarks found and of their continuations the best are read, after a
     * search by words the best hits and theirs. 0: continuations are the next chunks of the store */
    int overlap;
    int query_ids;                       /* corpus, searchers of words: the query is the last so many ids; 0: all */
    int64_t max_queries;                 /* chunks of one decoder pass; 0: 16 */
    int64_t cache_chunks;                /* capacity of the cache; 0: as many as needed, at least 1024 */
    int64_t exclude_document;            /* corpus: chunks of this document are never retrieved; -1: no document */
    /* with exclude_document: excludes only chunks at most this far from the query's own chunk; -1: all */
    int64_t exclude_window;
    /* with exclude_window: the document's chunk with which the running text begins */
    int64_t exclude_from;
};
enum status chunk_retriever_create(struct retriever **out, const struct chunk_retriever_config *config);
/* Begins a new running text, with its own exclude_document and exclude_from. The cache keeps the corpus' chunks. */
void chunk_retriever_reset(struct retriever *r, int64_t exclude_document, int64_t exclude_from);

/* Seconds, measured on the host. On a GPU, encode and idle (chunks encoded during decoding) only issue work, and search
 * waits for all work issued before it. */
struct chunk_retriever_times {
    double search, read, encode, idle;
    int64_t queries, cache_hits, cache_misses;
};
struct chunk_retriever_times chunk_retriever_times(const struct retriever *r);
/* Returns the bytes of the running text's own past, on the host and on the device: landmarks, ids, and with the decoder
 * variant K and V. Memory that is reserved for later chunks is not counted. */
int64_t chunk_retriever_past_bytes(const struct retriever *r);

/* Draws k distinct chunks of a store into chunks [k], or all if it has no more. None is in `skip` (begin == end: none).
 * `existing`: number of chunks of the view that are not dropped. Returns the number of chunks drawn. */
int64_t random_chunks(int64_t *chunks, struct rng *rng, struct store_dropped dropped, int64_t existing,
                      struct store_range skip, int64_t k);
