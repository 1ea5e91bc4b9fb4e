/* buckets.c -- see buckets_internal.h. */
#include "base/memory.h"
#include "store/lexical/build/buckets_internal.h"
#include <assert.h>

enum { RECORD_BYTES_MIN = 4 }; /* two words of four bytes, which may overlap, write a record */

static void add_bucket(struct buckets *b, uint64_t begin, uint64_t end, int divided) {
    const int bits = bucket_bits(end - begin) + BUCKETS_CHUNK_BITS, bytes = (bits + 7) / 8;
    b->list[b->n++] = (struct bucket){begin, end, bytes < RECORD_BYTES_MIN ? RECORD_BYTES_MIN : bytes, divided};
}

/* The ids begin .. end - 1 in one bucket. */
static void add_ids(struct buckets *b, int64_t begin, int64_t end) {
    if (begin == end) return;
    for (int64_t id = begin; id < end; id++)
        b->of[id] = (uint32_t)b->n | UINT32_C(1) << 16;
    add_bucket(b, (uint64_t)begin << b->next_bits, (uint64_t)end << b->next_bits, 1);
}

static void add_divided(struct buckets *b, int64_t id, int n) {
    const uint64_t first = (uint64_t)id << b->next_bits, all = UINT64_C(1) << b->next_bits;
    b->of[id] = (uint32_t)b->n | (uint32_t)n << 16;
    uint64_t begin = 0;
    for (int i = 0; i < n; i++) {
        uint64_t end = begin;
        while (end <= (uint64_t)b->vocab && (b->quantile[end] * n >> 8) <= i)
            end++;
        if (i + 1 == n) end = all;
        add_bucket(b, first + begin, first + end, i == 0 ? n : 0);
        begin = end;
    }
}

static void set_quantiles(struct buckets *b, const uint32_t *counts, uint64_t all) {
    uint64_t before = 0;
    for (int64_t id = 0; id < b->vocab; id++) {
        b->quantile[id] = (uint8_t)(all > 0 ? before * 255 / all : 0);
        before += counts[id];
    }
    b->quantile[b->vocab] = 255;
}

static void buckets_divide(struct buckets *b, const uint32_t *counts, uint64_t all, int wanted) {
    const uint64_t each = all / (uint64_t)wanted + 1;
    int64_t begin = 0;
    uint64_t seen = 0;
    for (int64_t id = 0; id < b->vocab; id++) {
        if (counts[id] > 2 * each) {
            const uint64_t parts = counts[id] / each;
            add_ids(b, begin, id);
            add_divided(b, id, parts < BUCKETS_DIVIDED_MAX ? (int)parts : BUCKETS_DIVIDED_MAX);
        } else if ((seen += counts[id]) >= each) {
            add_ids(b, begin, id + 1);
        } else {
            continue;
        }
        begin = id + 1;
        seen = 0;
    }
    add_ids(b, begin, b->vocab);
}

enum status buckets_create(struct buckets **out, int64_t vocab, const int32_t *ids, size_t n_ids, int wanted) {
    struct buckets *b = NULL;
    uint32_t *counts = NULL;
    enum status s;
    assert(wanted >= 1 && wanted <= BUCKETS_MAX && n_ids < UINT32_MAX);
    TRY(memory_allocate_zero(&b, 1));
    b->vocab = vocab;
    b->next_bits = bucket_bits((uint64_t)vocab + 1);
    TRY_GOTO(s, memory_allocate_zero(&counts, (size_t)vocab), out);
    TRY_GOTO(s, memory_allocate(&b->of, (size_t)vocab), out);
    TRY_GOTO(s, memory_allocate(&b->quantile, (size_t)vocab + 1), out);
    TRY_GOTO(s, memory_allocate(&b->list, 3 * (size_t)wanted + 2), out);
    for (size_t i = 0; i < n_ids; i++)
        counts[ids[i]]++;
    set_quantiles(b, counts, n_ids);
    buckets_divide(b, counts, n_ids, wanted);
    *out = b;
out:
    memory_free(counts);
    if (s != STATUS_OK) buckets_free(b);
    return s;
}

void buckets_free(struct buckets *b) {
    if (!b) return;
    memory_free(b->list);
    memory_free(b->of);
    memory_free(b->quantile);
    memory_free(b);
}
