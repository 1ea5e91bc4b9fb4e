/* retriever.h -- the product's retriever: own past, corpus, or the best k of both (model.md §8).
 *
 * The own past keeps each chunk's tokens and landmark only and encodes again what it retrieves, with a cache in
 * front (encoder_input tokens; the decoder variant keeps K and V, for its chunks depend on their context). It lies
 * on the device. The corpus is a store view: a searcher finds chunks, their ids are read from the store and
 * encoded again. One softmax over the best k. Made for one running text; chunk_retriever_reset starts another. */
#pragma once
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
    /* of the corpus; borrowed, several retrievers may share it. NULL: random only */
    struct searcher *searcher;
    /* Of the corpus' landmarks, where they are not this model's: it finds the chunks, and they are scored with
     * landmarks that `encoder` makes of them. Borrowed; NULL: the landmarks are this model's. */
    struct external_encoder *external;
    bool random;                         /* corpus: uniformly random chunks instead of the nearest (scores stay real) */
    uint64_t seed;                       /* of random */
    int topk;                            /* 0: the model's */
    int64_t max_queries;                 /* chunks of one decoder pass; 0: 16 */
    int64_t cache_chunks;                /* encoded chunks kept; 0: as many as needed and at least 1024 */
    int64_t exclude_document;            /* corpus: this document's chunks are never retrieved; -1: none */
    /* with exclude_document: only chunks within this many of the query's own; -1: all */
    int64_t exclude_window;
    /* with exclude_window: the running text begins in this chunk of the document */
    int64_t exclude_from;
};
enum status chunk_retriever_create(struct retriever **out, const struct chunk_retriever_config *config);
/* A new running text, with exclude_document and exclude_from of its own; the cache stays for the corpus. */
void chunk_retriever_reset(struct retriever *r, int64_t exclude_document, int64_t exclude_from);

/* Seconds of this process: on a GPU work is only issued by encode and idle (chunks encoded beside decoding), and
 * search waits for all that was issued before it. */
struct chunk_retriever_times {
    double search, read, encode, idle;
    int64_t queries, cache_hits, cache_misses;
};
struct chunk_retriever_times chunk_retriever_times(const struct retriever *r);
