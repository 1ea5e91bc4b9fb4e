/* memory_source_internal.h -- the struct of a source, for the files memory_source*.c. */
#pragma once
#include "decoder/decoder_passages.h"
#include "indexer/retrieve/candidate_order.h"
#include "indexer/retrieve/memory_source.h"
#include "indexer/retrieve/stored_passages.h"
#include "kernels/device/device_pair.h"

enum { MEMORY_FOUND_TURNS = 2 };
/* What a search found whose hits stay on the device. */
struct source_found {
    struct device_pair chunks;           /* [k] */
    float *scores;                       /* [k], memory of the device */
    struct memory_marks *marks;          /* [1], memory of the device */
    int64_t *row_begin;                  /* [2], memory of the device */
    struct packed_passages passages;     /* [k], memory of the device */
};
/* What a search with an order found on the device, before the order. Memory of the device; NULL: the host orders. */
struct source_ordered {
    float *idf;                          /* [vocab] */
    int64_t *chunk;                      /* [found_k], as the two below */
    float *score, *landmark;
};
struct memory_source {
    struct memory_source_config config;
    struct decoder_passages *passages; /* NULL: keys come from the store */
    struct stored_passages *stored;    /* NULL: the decoder computes them */
    const struct packed_chunks *packed; /* slots are rows of these, and there is no pool; NULL: of the pool */
    int64_t chunks, slots, used;       /* chunks: of the store; slots: of the pool; used: slots that are filled */
    int64_t length;                    /* ids of a passage */
    /* [slots*length] on the device: keys with squares, or packed codes [slots*length, d] with scales; values */
    struct mat keys;
    float *square, *scale;
    int8_t *code; /* NULL: keys are numbers */
    int32_t *value;
    int64_t *slot_chunk;        /* [slots] */
    struct store_range *ranges; /* [slots]: chunks of the passages that are being read */
    int32_t *table;             /* [table_mask + 1]: a slot or FREE, with linear probing */
    uint64_t table_mask;
    int32_t *ids;    /* [slots*length]: of the passages that are being encoded; packed: [length] */
    int32_t *values; /* [slots*length]: the same as `value`, on the host */
    struct device_pair blocks; /* what ops read of a call: row_begin, then slots; packed: chunks, slots, entries */
    int32_t *sent;             /* values that the device still copies, of device_allocate_host */
    size_t blocks_bytes, sent_capacity;
    const int32_t *slot_host; /* slots of the last load, on the host */
    struct store_hit *hits;
    struct lexical_query *queries;
    float *vectors; /* of queries */
    struct store_range *exclude;
    size_t hits_capacity, queries_capacity, vectors_capacity, exclude_capacity;
    const struct lexical *lexical; /* NULL: the searcher ranks by landmarks only */
    int dim;                       /* of the store's landmarks */
    struct candidate_order *order; /* NULL: as found */
    int found_k;                   /* hits of a search: k, or more with an order */
    struct source_found found[MEMORY_FOUND_TURNS];
    struct source_ordered ordered;
    struct memory_source_stats stats;
};

/* The query of a text that ends before ids[at], by words alone. */
enum status memory_source_words(struct memory_source *m, struct searcher_query *out, const int32_t *ids, int64_t at);
/* Slots of the passages of blocks * k chunks; row_begin [blocks + 1]: memory of the device. */
struct memory_slots memory_source_packed(const struct memory_source *m, struct packed_passages of,
                                         const int64_t *row_begin, int blocks, int64_t block_rows);
/* memory_source_found.c */
enum status source_found_allocate(struct memory_source *m);
void source_found_free(struct memory_source *m);
enum status source_ordered_allocate(struct memory_source *m);
