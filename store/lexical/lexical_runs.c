/* lexical_runs.c -- see lexical_runs_internal.h.
 *
 * The keys are divided into buckets, which are equal ranges of keys. An occurrence is appended to its bucket: to its
 * last block of BLOCK records in memory. When memory is full, all blocks are written to the spool, bucket after bucket;
 * that is a run. Records of a bucket are in the order of chunks: those of the first run, of the second, ..., then those
 * in memory.
 *
 * At the end the buckets are read in order. One that fits in the memory for sorting is sorted by key, stably, in
 * passes over one digit each. In a bucket of one key nothing needs sorting, and its records are read as they are
 * needed. Any other bucket is divided again, by runs of its own (`inner`). Buckets of many records with few keys each
 * mostly stay in a processor's cache, in contrast to a sort of all records. */
#include "base/memory.h"
#include "store/lexical/lexical_format_internal.h"
#include "store/lexical/lexical_runs_internal.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCK = 128, /* records */
    SLAB_BLOCKS = 1024,
    BUCKETS_MAX = 512, /* of a range */
    NONE = -1,
    READ_RECORDS = 2048,
    INSERTION_MAX = 24,
    DIGITS_MAX = 1 << 11
};

struct block {
    int32_t next, n;         /* next: the bucket's next block; NONE: it is the last one */
    uint64_t records[BLOCK]; /* key << 24 | chunk */
};

struct bucket {
    int32_t first, last; /* blocks in memory; NONE: there are none */
    uint64_t n;          /* records, in runs and in memory */
};

struct bucket_range {
    uint64_t begin, end; /* keys */
    int shift, first, n; /* its buckets have 1 << shift keys each */
};

/* Reads the records of a bucket in order. */
struct bucket_reader {
    size_t bucket, run; /* run: the next run, or n_runs: blocks in memory follow */
    uint64_t at, end;   /* bytes of the spool that are to be read */
    int32_t block;
    const uint64_t *records;
    size_t used, filled;
};

struct runs {
    char folder[FILE_PATH_MAX];
    struct bucket_range ranges[RUNS_RANGES_MAX];
    int n_ranges;
    uint64_t max_ram;
    struct bucket *buckets;
    size_t n_buckets;
    struct block **slabs;
    size_t n_slabs, slabs_capacity;
    int32_t n_blocks, blocks_max;
    struct spool *spool;
    uint64_t *extents; /* [n_runs, n_buckets + 1]: where the records of each bucket begin in the spool */
    size_t n_runs, extents_capacity;

    /* reading */
    size_t next_bucket;
    struct bucket_reader reader;                                   /* of a bucket of one key */
    bool streams;                                                  /* the current bucket is read by `reader` */
    uint64_t *sorted, *spare;                                      /* the records of the current bucket */
    size_t sorted_capacity, spare_capacity, n_sorted, at, key_end; /* at .. key_end-1: those of the current key */
    uint64_t *read;                                                /* [READ_RECORDS] */
    uint8_t *packed;                                               /* [READ_RECORDS * 8] */
    uint64_t pending;                                              /* a record of `reader` that was read ahead */
    bool has_pending;
    struct runs *inner; /* of the current bucket, if it was divided again */
};

static struct block *block_of(const struct runs *r, int32_t i) {
    return &r->slabs[i / SLAB_BLOCKS][i % SLAB_BLOCKS];
}

static const struct bucket_range *range_of(const struct runs *r, size_t bucket) {
    const struct bucket_range *range = r->ranges;
    while ((size_t)(range->first + range->n) <= bucket)
        range++;
    return range;
}

/* The first key of a bucket, which its records in the spool lack, and the bytes of such a record. */
static uint64_t bucket_key(const struct runs *r, size_t bucket) {
    const struct bucket_range *range = range_of(r, bucket);
    return range->begin + ((uint64_t)(bucket - (size_t)range->first) << range->shift);
}

static int record_bytes(const struct runs *r, size_t bucket) {
    return (range_of(r, bucket)->shift + RUNS_CHUNK_BITS + 7) / 8;
}

enum status runs_create(struct runs **out, const char *folder, uint64_t max_ram, const struct runs_range *ranges,
                        int n_ranges) {
    struct runs *r = NULL;
    TRY(memory_allocate_zero(&r, 1));
    assert(n_ranges <= RUNS_RANGES_MAX);
    snprintf(r->folder, sizeof r->folder, "%s", folder);
    r->max_ram = max_ram;
    r->n_ranges = n_ranges;
    /* half of the memory for blocks, and at most a quarter of that for blocks that are not full */
    const uint64_t blocks = max_ram / 2 / sizeof(struct block), most = blocks / 4 / (uint64_t)n_ranges;
    const uint64_t limit = most < 2 ? 2 : most < BUCKETS_MAX ? most : BUCKETS_MAX;
    for (int i = 0; i < n_ranges; i++) {
        struct bucket_range *range = &r->ranges[i];
        *range = (struct bucket_range){.begin = ranges[i].begin, .end = ranges[i].end, .first = (int)r->n_buckets};
        const uint64_t keys = range->end - range->begin;
        while (keys > 0 && ((keys - 1) >> range->shift) + 1 > limit)
            range->shift++;
        range->n = keys > 0 ? (int)(((keys - 1) >> range->shift) + 1) : 0;
        r->n_buckets += (size_t)range->n;
    }
    const uint64_t least = 2 * (uint64_t)r->n_buckets + 2;
    r->blocks_max = (int32_t)(blocks < least ? least : blocks < INT32_MAX ? blocks : INT32_MAX);
    enum status s = memory_allocate(&r->buckets, r->n_buckets + 1);
    for (size_t i = 0; s == STATUS_OK && i < r->n_buckets; i++)
        r->buckets[i] = (struct bucket){.first = NONE, .last = NONE};
    if (s != STATUS_OK)
        runs_free(r);
    else
        *out = r;
    return s;
}

static void free_blocks(struct runs *r) {
    for (size_t i = 0; i < r->n_slabs; i++)
        memory_free(r->slabs[i]);
    r->n_slabs = 0;
    r->n_blocks = 0;
}

void runs_free(struct runs *r) {
    if (!r) return;
    runs_free(r->inner);
    free_blocks(r);
    memory_free(r->slabs);
    spool_free(r->spool);
    memory_free(r->buckets);
    memory_free(r->extents);
    memory_free(r->sorted);
    memory_free(r->spare);
    memory_free(r->read);
    memory_free(r->packed);
    memory_free(r);
}

/* ---- collecting ---- */

static enum status write_records(struct runs *r, const struct block *block, uint64_t base, int bytes) {
    uint8_t packed[BLOCK * 8];
    uint8_t *at = packed;
    for (int i = 0; i < block->n; i++, at += bytes) {
        const uint64_t record = block->records[i] - (base << RUNS_CHUNK_BITS);
        for (int b = 0; b < bytes; b++)
            at[b] = (uint8_t)(record >> (8 * b));
    }
    return spool_write(r->spool, packed, (size_t)(at - packed));
}

/* Writes all blocks as a run. */
static enum status write_run(struct runs *r) {
    const size_t each = r->n_buckets + 1;
    if (!r->spool) TRY(spool_create(&r->spool, r->folder));
    TRY(memory_grow(&r->extents, &r->extents_capacity, (r->n_runs + 1) * each));
    uint64_t *extents = r->extents + r->n_runs * each;
    for (size_t i = 0; i < r->n_buckets; i++) {
        struct bucket *bucket = &r->buckets[i];
        const uint64_t base = bucket_key(r, i);
        const int bytes = record_bytes(r, i);
        extents[i] = spool_bytes(r->spool);
        for (int32_t b = bucket->first; b != NONE; b = block_of(r, b)->next)
            TRY(write_records(r, block_of(r, b), base, bytes));
        bucket->first = bucket->last = NONE;
    }
    extents[r->n_buckets] = spool_bytes(r->spool);
    r->n_runs++;
    r->n_blocks = 0;
    return STATUS_OK;
}

static enum status add_block(struct runs *r, size_t number) {
    if (r->n_blocks == r->blocks_max) TRY(write_run(r));
    if ((size_t)(r->n_blocks / SLAB_BLOCKS) == r->n_slabs) {
        TRY(memory_grow(&r->slabs, &r->slabs_capacity, r->n_slabs + 1));
        TRY(memory_allocate(&r->slabs[r->n_slabs], SLAB_BLOCKS));
        r->n_slabs++;
    }
    struct bucket *bucket = &r->buckets[number];
    const int32_t block = r->n_blocks++;
    block_of(r, block)->next = NONE;
    block_of(r, block)->n = 0;
    if (bucket->last == NONE)
        bucket->first = block;
    else
        block_of(r, bucket->last)->next = block;
    bucket->last = block;
    return STATUS_OK;
}

static enum status add_record(struct runs *r, uint64_t key, uint32_t chunk) {
    const struct bucket_range *range = r->ranges;
    while (key >= range->end)
        range++;
    assert(range < r->ranges + r->n_ranges && key >= range->begin);
    const size_t number = (size_t)range->first + (size_t)((key - range->begin) >> range->shift);
    struct bucket *bucket = &r->buckets[number];
    if (bucket->last == NONE || block_of(r, bucket->last)->n == BLOCK) TRY(add_block(r, number));
    struct block *block = block_of(r, bucket->last);
    block->records[block->n++] = key << RUNS_CHUNK_BITS | chunk;
    bucket->n++;
    return STATUS_OK;
}

enum status runs_add(struct runs *r, const uint64_t *keys, int n, uint32_t chunk) {
    assert(chunk < 1u << RUNS_CHUNK_BITS);
    for (int i = 0; i < n; i++)
        TRY(add_record(r, keys[i], chunk));
    return STATUS_OK;
}

/* ---- reading a bucket ---- */

static void reader_begin(const struct runs *r, struct bucket_reader *b, size_t bucket) {
    *b = (struct bucket_reader){.bucket = bucket, .block = r->buckets[bucket].first};
}

/* Gives the next records of the bucket, *n of them; 0: there are no more. They are valid until the next call. */
static enum status reader_next(struct runs *r, struct bucket_reader *b, const uint64_t **records, size_t *n) {
    const size_t bytes = (size_t)record_bytes(r, b->bucket);
    while (b->at == b->end && b->run < r->n_runs) {
        const uint64_t *extents = r->extents + b->run++ * (r->n_buckets + 1) + b->bucket;
        b->at = extents[0];
        b->end = extents[1];
    }
    if (b->at < b->end) {
        const uint64_t left = (b->end - b->at) / bytes, base = bucket_key(r, b->bucket) << RUNS_CHUNK_BITS;
        *n = left < READ_RECORDS ? (size_t)left : READ_RECORDS;
        TRY(spool_read(r->spool, r->packed, *n * bytes, b->at));
        b->at += *n * bytes;
        for (size_t i = 0; i < *n; i++) {
            uint64_t record = 0;
            for (size_t k = 0; k < bytes; k++)
                record |= (uint64_t)r->packed[i * bytes + k] << (8 * k);
            r->read[i] = base + record;
        }
        *records = r->read;
        return STATUS_OK;
    }
    *n = 0;
    if (b->block == NONE) return STATUS_OK;
    const struct block *block = block_of(r, b->block);
    *records = block->records;
    *n = (size_t)block->n;
    b->block = block->next;
    return STATUS_OK;
}

/* ---- sorting a bucket ---- */

static void insertion_sort(uint64_t *x, size_t n) {
    for (size_t i = 1; i < n; i++) {
        const uint64_t value = x[i];
        size_t at = i;
        for (; at > 0 && x[at - 1] >> RUNS_CHUNK_BITS > value >> RUNS_CHUNK_BITS; at--)
            x[at] = x[at - 1];
        x[at] = value;
    }
}

/* Sorts r->sorted by the lowest `bits` bits of the key, the lowest digit first. All other bits are equal, or ascend. */
static void radix_sort(struct runs *r, int bits) {
    const int digit = r->n_sorted < 4096 ? 8 : 11, passes = (bits + digit - 1) / digit;
    const size_t digits = (size_t)1 << digit;
    const uint64_t base = bucket_key(r, r->next_bucket - 1) << RUNS_CHUNK_BITS;
    size_t counts[DIGITS_MAX];
    for (int pass = 0; pass < passes; pass++) {
        const int shift = RUNS_CHUNK_BITS + pass * digit;
        memset(counts, 0, digits * sizeof *counts);
        for (size_t i = 0; i < r->n_sorted; i++)
            counts[(r->sorted[i] - base) >> shift & (digits - 1)]++;
        for (size_t d = 0, sum = 0; d < digits; d++) {
            const size_t n = counts[d];
            counts[d] = sum;
            sum += n;
        }
        for (size_t i = 0; i < r->n_sorted; i++)
            r->spare[counts[(r->sorted[i] - base) >> shift & (digits - 1)]++] = r->sorted[i];
        uint64_t *swap = r->sorted;
        r->sorted = r->spare;
        r->spare = swap;
        const size_t capacity = r->sorted_capacity;
        r->sorted_capacity = r->spare_capacity;
        r->spare_capacity = capacity;
    }
}

static enum status sort_bucket(struct runs *r, size_t bucket) {
    struct bucket_reader reader;
    const size_t n = (size_t)r->buckets[bucket].n;
    TRY(memory_grow(&r->sorted, &r->sorted_capacity, n));
    reader_begin(r, &reader, bucket);
    for (r->n_sorted = 0;;) {
        const uint64_t *records;
        size_t some;
        TRY(reader_next(r, &reader, &records, &some));
        if (some == 0) break;
        memcpy(r->sorted + r->n_sorted, records, some * sizeof *records);
        r->n_sorted += some;
    }
    assert(r->n_sorted == n);
    r->at = r->key_end = 0;
    const int bits = range_of(r, bucket)->shift;
    if (n <= INSERTION_MAX) {
        insertion_sort(r->sorted, n);
    } else if (bits > 0) {
        TRY(memory_grow(&r->spare, &r->spare_capacity, n));
        radix_sort(r, bits);
    }
    return STATUS_OK;
}

/* Adds the records of a bucket to runs of its own, with half of the memory. */
static enum status divide_bucket(struct runs *r, size_t bucket) {
    struct bucket_reader reader;
    const struct bucket_range *of = range_of(r, bucket);
    struct runs_range range = {bucket_key(r, bucket), bucket_key(r, bucket) + (UINT64_C(1) << of->shift)};
    if (range.end > of->end) range.end = of->end;
    TRY(runs_create(&r->inner, r->folder, r->max_ram / 2, &range, 1));
    reader_begin(r, &reader, bucket);
    for (;;) {
        const uint64_t *records;
        size_t n;
        TRY(reader_next(r, &reader, &records, &n));
        if (n == 0) break;
        for (size_t i = 0; i < n; i++)
            TRY(add_record(r->inner, records[i] >> RUNS_CHUNK_BITS, (uint32_t)records[i] & RUNS_CHUNK_MASK));
    }
    return runs_finish(r->inner);
}

/* ---- keys ---- */

enum status runs_finish(struct runs *r) {
    /* if records are in the spool, the memory of the blocks is for sorting and for further runs */
    if (r->n_runs > 0) TRY(write_run(r));
    if (r->n_runs > 0) free_blocks(r);
    TRY(memory_allocate(&r->read, READ_RECORDS));
    return memory_allocate(&r->packed, READ_RECORDS * 8);
}

static enum status next_streamed(struct runs *r, uint64_t *record, bool *more) {
    *more = true;
    if (r->has_pending) {
        r->has_pending = false;
        *record = r->pending;
        return STATUS_OK;
    }
    if (r->reader.used == r->reader.filled) {
        TRY(reader_next(r, &r->reader, &r->reader.records, &r->reader.filled));
        r->reader.used = 0;
    }
    *more = r->reader.filled > 0;
    if (*more) *record = r->reader.records[r->reader.used++];
    return STATUS_OK;
}

/* Reads a bucket of one key from its beginning: first to count the chunks, then for its postings. */
static enum status stream_bucket(struct runs *r, size_t bucket, uint64_t *key, int64_t *n) {
    uint64_t record, before = UINT64_MAX;
    bool more;
    reader_begin(r, &r->reader, bucket);
    for (*n = 0;; before = record) {
        TRY(next_streamed(r, &record, &more));
        if (!more) break;
        *n += record != before;
    }
    *key = before >> RUNS_CHUNK_BITS;
    reader_begin(r, &r->reader, bucket);
    r->streams = true;
    return STATUS_OK;
}

static void take_key(struct runs *r, uint64_t *key, int64_t *n) {
    *key = r->sorted[r->at] >> RUNS_CHUNK_BITS;
    *n = 0;
    for (r->key_end = r->at; r->key_end < r->n_sorted && r->sorted[r->key_end] >> RUNS_CHUNK_BITS == *key; r->key_end++)
        *n += r->key_end == r->at || r->sorted[r->key_end] != r->sorted[r->key_end - 1];
}

/* Opens the next bucket that has records. A bucket of one key gives that key at once. */
static enum status next_bucket(struct runs *r, bool *streamed, uint64_t *key, int64_t *n) {
    while (r->next_bucket < r->n_buckets && r->buckets[r->next_bucket].n == 0)
        r->next_bucket++;
    *streamed = false;
    if (r->next_bucket == r->n_buckets) return STATUS_OK;
    const size_t bucket = r->next_bucket++;
    /* two arrays, in a quarter of the memory */
    if (r->buckets[bucket].n <= r->max_ram / 4 / 2 / sizeof *r->sorted || r->buckets[bucket].n <= INSERTION_MAX)
        return sort_bucket(r, bucket);
    if (range_of(r, bucket)->shift > 0) return divide_bucket(r, bucket);
    *streamed = true;
    return stream_bucket(r, bucket, key, n);
}

enum status runs_next_key(struct runs *r, bool *more, uint64_t *key, int64_t *n) {
    r->streams = r->has_pending = false;
    r->at = r->key_end;
    *more = true;
    for (;;) {
        bool streamed;
        if (r->inner) {
            TRY(runs_next_key(r->inner, more, key, n));
            if (*more) return STATUS_OK;
            runs_free(r->inner);
            r->inner = NULL;
        } else if (r->at < r->n_sorted) {
            take_key(r, key, n);
            *more = true;
            return STATUS_OK;
        }
        const bool last = r->next_bucket >= r->n_buckets;
        TRY(next_bucket(r, &streamed, key, n));
        *more = streamed || r->inner || r->at < r->n_sorted;
        if (streamed || (!*more && last)) return STATUS_OK;
    }
}

static enum status stream_postings(struct runs *r, uint32_t *chunks, uint8_t *codes, int capacity, int *n) {
    uint64_t record;
    bool more;
    for (*n = 0; *n < capacity; ++*n) {
        int64_t same = 1;
        TRY(next_streamed(r, &record, &more));
        if (!more) break;
        for (;; same++) {
            TRY(next_streamed(r, &r->pending, &more));
            if (more && r->pending == record) continue;
            r->has_pending = more;
            break;
        }
        chunks[*n] = (uint32_t)record & RUNS_CHUNK_MASK;
        codes[*n] = (uint8_t)lexical_code(same);
    }
    return STATUS_OK;
}

enum status runs_next_postings(struct runs *r, uint32_t *chunks, uint8_t *codes, int capacity, int *n) {
    if (r->inner) return runs_next_postings(r->inner, chunks, codes, capacity, n);
    if (r->streams) return stream_postings(r, chunks, codes, capacity, n);
    for (*n = 0; *n < capacity && r->at < r->key_end; ++*n) {
        const size_t begin = r->at;
        while (r->at < r->key_end && r->sorted[r->at] == r->sorted[begin])
            r->at++;
        chunks[*n] = (uint32_t)r->sorted[begin] & RUNS_CHUNK_MASK;
        codes[*n] = (uint8_t)lexical_code((int64_t)(r->at - begin));
    }
    return STATUS_OK;
}
