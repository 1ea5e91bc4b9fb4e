/* buckets_internal.h -- divides the pairs of adjacent ids into buckets, ranges of pairs that about equally many tokens
 * have.
 *
 * A pair (id, next) is the number id << next_bits | next here. The `next` of a chunk's last token is the vocabulary, so
 * every token of a chunk is in exactly one bucket, which has it both as a token and as a pair. A bucket has all pairs
 * of some ids. A frequent id is divided into several buckets by `next`. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum {
    BUCKETS_CHUNK_BITS = 13,             /* of a record's chunk, counted from the first of its portion */
    BUCKETS_MAX = 2048,                  /* wanted; a plan has up to three times as many */
    BUCKETS_DIVIDED_MAX = 64,            /* of one id */
};
struct bucket {
    uint64_t begin, end;                 /* pairs */
    int bytes;                           /* of a record: the pair less `begin`, then the chunk in the low bits */
    int divided; /* buckets of the one id, this first one included; 1: it has whole ids; 0: a later one of an id */
};
struct buckets {
    int64_t vocab;
    int next_bits, n;
    struct bucket *list;                 /* [n], ascending */
    uint32_t *of;                        /* [vocab]: the first bucket of an id | its number of buckets << 16 */
    uint8_t *quantile;                   /* [vocab + 1]: of an id as `next`, ascending */
};
/* From the frequencies of some ids; `wanted`: at most BUCKETS_MAX. */
enum status buckets_create(struct buckets **out, int64_t vocab, const int32_t *ids, size_t n_ids, int wanted);
void buckets_free(struct buckets *b);                     /* NULL is fine */

static inline uint32_t bucket_of(const struct buckets *b, int32_t id, int32_t next) {
    const uint32_t of = b->of[id];
    return (of & UINT16_MAX) + (b->quantile[next] * (of >> 16) >> 8);
}
static inline uint64_t bucket_pair(const struct buckets *b, int32_t id, int32_t next) {
    return (uint64_t)id << b->next_bits | (uint32_t)next;
}
static inline int32_t bucket_id(const struct buckets *b, uint64_t pair) { return (int32_t)(pair >> b->next_bits); }
static inline int32_t bucket_next(const struct buckets *b, uint64_t pair) {
    return (int32_t)(pair & ((UINT64_C(1) << b->next_bits) - 1));
}
/* bits of the numbers 0 .. n - 1 */
static inline int bucket_bits(uint64_t n) { return n > 1 ? 64 - __builtin_clzll(n - 1) : 0; }
