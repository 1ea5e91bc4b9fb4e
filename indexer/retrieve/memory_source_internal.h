/* memory_source_internal.h -- the struct of a source, for the files memory_source*.c. */
#pragma once
#include "decoder/decoder_passages.h"
#include "indexer/retrieve/memory_source.h"
#include "indexer/retrieve/stored_passages.h"
#include "kernels/device/device_pair.h"

enum { MEMORY_FOUND_TURNS = 2 };
/* What a search found whose hits stay on the device. Passage j of the search is slot `slots[j]`. */
struct source_found {
    struct device_pair chunks;           /* [k] */
    float *scores;                       /* [k], memory of the device */
    struct memory_marks *marks;          /* [1], memory of the device */
    int64_t *row_begin; int32_t *slots;  /* [2], [k], memory of the device */
};
struct memory_source {
    struct memory_source_config config;
    struct decoder_passages *passages; /* NULL: keys come from the store */
    struct stored_passages *stored;    /* NULL: the decoder computes them */
    int64_t chunks, slots, used;       /* chunks: of the store; slots: of the pool; used: slots that are filled */
    int64_t length;                    /* ids of a passage */
    /* [(slots + MEMORY_FOUND_TURNS*k)*length, d]: the pool's, then those of struct source_found; the latter only if
     * the device has all keys */
    struct mat keys;
    int32_t *value; /* of the rows of keys, on the device */
    float *square;
    int64_t *slot_chunk;        /* [slots] */
    struct store_range *ranges; /* [slots]: chunks of the passages that are being read */
    int32_t *table;             /* [table_mask + 1]: a slot or FREE, with linear probing */
    uint64_t table_mask;
    int32_t *ids;    /* [slots*length]: of the passages that are being encoded */
    int32_t *values; /* [slots*length]: the same as `value`, on the host, of the first `known` slots */
    int64_t known;
    struct device_pair blocks; /* what ops read of a call: row_begin, then slots */
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
    struct source_found found[MEMORY_FOUND_TURNS];
    struct memory_source_stats stats;
};

/* The query of a text that ends before ids[at], by words alone. */
enum status memory_source_words(struct memory_source *m, struct searcher_query *out, const int32_t *ids, int64_t at);
/* memory_source_found.c */
enum status source_found_allocate(struct memory_source *m);
void source_found_free(struct memory_source *m);
