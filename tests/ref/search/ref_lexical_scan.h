/* ref_lexical_scan.h -- segments of random lists, encoded bit by bit by the rules of kernels/lexical/lexical_scan.h,
 * and the best chunks by sums over plain arrays: the right results are known to the last bit. For the tests of both
 * twins. */
#pragma once
#include "base/rng.h"
#include "kernels/lexical/lexical_scan.h"
#include "tests/test.h"
#include <math.h>
#include <stdlib.h>

/* A list before it is encoded. */
struct lexical_scan_list_case { uint8_t *codes; int64_t segment; bool dense; };     /* codes: code + 1 of each chunk */
struct lexical_scan_case {
    struct lexical_scan scan;            /* in memory of this process */
    uint8_t *postings;
    size_t bytes;                        /* with the pad */
    struct lexical_scan_segment *segments;
    struct lexical_scan_list *lists;     /* copies of `stored`, with the weights of a query */
    struct lexical_scan_part *parts;
    struct lexical_scan_query *queries;
    uint8_t *absent;
    int64_t n_lists;
    int64_t *origin;                     /* [n_lists] of `stored` */
    struct lexical_scan_list_case *stored;
    struct lexical_scan_list *encoded;   /* the same, with their bytes */
    int64_t n_stored;
};

/* What a search may leave out once it knows a sum that k chunks reach. RANDOM: random lists and weights of the size of
 * BM25's. Other kinds have equal weights, so sums are equal, too. EQUAL: random lists. SAME: every list has every
 * chunk, so nothing can be left out. RISING, FALLING: a chunk has more lists than those before it, or fewer, so all
 * windows have chunks that no window before excludes, or only the first windows have hits. */
enum lexical_scan_kind {
    LEXICAL_SCAN_RANDOM, LEXICAL_SCAN_EQUAL, LEXICAL_SCAN_SAME, LEXICAL_SCAN_RISING, LEXICAL_SCAN_FALLING,
    LEXICAL_SCAN_KINDS,
};
/* `each` lists for each segment, of which a query has about half. */
struct lexical_scan_case lexical_scan_case_make(struct rng *rng, const int32_t *chunks, int64_t segments, int64_t each,
                                                int64_t queries, enum lexical_scan_kind kind);
void lexical_scan_case_free(struct lexical_scan_case *c);

struct lexical_scan_hit { int64_t sum, chunk; };
static inline int lexical_scan_rank(const void *a, const void *b) {
    const struct lexical_scan_hit *x = a, *y = b;
    if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
    return x->chunk < y->chunk ? -1 : 1;
}

/* A chunk's sum in a query. */
static inline int64_t lexical_scan_case_sum(const struct lexical_scan_case *c, int64_t q, int64_t segment,
                                            int64_t chunk) {
    const struct lexical_scan_part *part = &c->parts[q * c->scan.n_segments + segment];
    int64_t sum = 0;
    for (int64_t l = part->first; l < part->first + part->sparse + part->dense; l++) {
        int code = c->stored[c->origin[l]].codes[chunk];
        if (code) sum += c->lists[l].weight[code - 1];
    }
    return sum;
}

/* Chunks of each segment and of none [n_queries * n]; their scores are `right`. */
static inline void lexical_scan_case_given(const struct lexical_scan_case *c, struct rng *rng, int64_t *chunk,
                                           float *right, int n) {
    const struct lexical_scan *s = &c->scan;
    for (int64_t i = 0; i < s->n_queries * n; i++) {
        const int64_t segment = (int64_t)rng_below(rng, (uint64_t)s->n_segments), q = i / n;
        const struct lexical_scan_segment *in = &c->segments[segment];
        const int64_t of = in->chunks > 0 ? (int64_t)rng_below(rng, (uint64_t)in->chunks) : 0;
        const bool none = i % 17 == 5 || in->chunks == 0;
        chunk[i] = none ? (i % 2 ? -1 : INT64_C(1) << 40) : in->first_chunk + of;
        right[i] = none ? 0 : (float)lexical_scan_case_sum(c, q, segment, of) * c->queries[q].unit;
    }
}

/* Checks that index, score [n * k] are what the header promises. */
static inline void lexical_scan_case_check(const struct lexical_scan_case *c, const int64_t *index, const float *score,
                                           bool absent, int k) {
    const struct lexical_scan *s = &c->scan;
    struct lexical_scan_hit *all = calloc((size_t)(s->windows * LEXICAL_SCAN_WINDOW), sizeof *all);
    for (int64_t q = 0; q < s->n_queries; q++) {
        int64_t n = 0;
        for (int64_t segment = 0; segment < s->n_segments; segment++) {
            const struct lexical_scan_segment *in = &c->segments[segment];
            for (int64_t i = 0; i < in->chunks; i++) {
                int64_t id = in->first_chunk + i, bit = (int64_t)in->first_window * LEXICAL_SCAN_WINDOW + i;
                int64_t sum = lexical_scan_case_sum(c, q, segment, i);
                if (id >= c->queries[q].hole[0] && id < c->queries[q].hole[1]) continue;
                if (absent && c->absent[bit / 8] >> (bit % 8) & 1) continue;
                if (sum > 0) all[n++] = (struct lexical_scan_hit){sum, id};
            }
        }
        qsort(all, (size_t)n, sizeof *all, lexical_scan_rank);
        for (int i = 0; i < k; i++) {
            CHECK_EQ(index[q * k + i], i < n ? all[i].chunk : -1);
            CHECK(score[q * k + i] == (i < n ? (float)all[i].sum * c->queries[q].unit : -INFINITY));
        }
    }
    free(all);
}
