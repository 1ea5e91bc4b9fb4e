/* hybrid_hits.c -- see hybrid_hits.h. Lists have some hundreds of hits, so insertion into the sorted result is fast
 * enough. */
#include "store/lexical/hybrid_hits.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static int by_id(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t hybrid_candidates(int64_t *ids, const struct store_hit *a, int64_t n_a, const struct store_hit *b,
                          int64_t n_b) {
    int64_t n = 0, kept = 0;
    for (int64_t i = 0; i < n_a; i++)
        if (a[i].chunk >= 0) ids[n++] = a[i].chunk;
    for (int64_t i = 0; i < n_b; i++)
        if (b[i].chunk >= 0) ids[n++] = b[i].chunk;
    qsort(ids, (size_t)n, sizeof *ids, by_id);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || ids[kept - 1] != ids[i]) ids[kept++] = ids[i];
    return kept;
}

static bool hit_is_worse(struct store_hit a, struct store_hit b) {
    return a.score < b.score || (a.score == b.score && a.chunk > b.chunk);
}

/* Inserts into hits[*n], best first, at most k. */
static void hits_insert(struct store_hit *hits, int *n, int k, struct store_hit hit) {
    if (isnan(hit.score) || (*n == k && !hit_is_worse(hits[k - 1], hit))) return;
    int i = *n < k ? (*n)++ : k - 1;
    for (; i > 0 && hit_is_worse(hits[i - 1], hit); i--)
        hits[i] = hits[i - 1];
    hits[i] = hit;
}

static void fill_rest(struct store_hit *hits, int n, int k) {
    for (; n < k; n++)
        hits[n] = (struct store_hit){-1, -INFINITY};
}

void hybrid_weighted(struct store_hit *hits, int k, const int64_t *ids, const float *a, const float *b, int64_t n,
                     float weight) {
    int filled = 0;
    for (int64_t i = 0; i < n; i++)
        hits_insert(hits, &filled, k, (struct store_hit){ids[i], a[i] + weight * b[i]});
    fill_rest(hits, filled, k);
}

static int64_t rank_of(const struct store_hit *list, int64_t n, int64_t chunk) {
    for (int64_t i = 0; i < n; i++)
        if (list[i].chunk == chunk) return i + 1;
    return 0;
}

void hybrid_reciprocal_rank(struct store_hit *hits, int k, const struct store_hit *a, int64_t n_a,
                            const struct store_hit *b, int64_t n_b, float weight, float constant) {
    int filled = 0;
    for (int64_t i = 0; i < n_a; i++) {
        if (a[i].chunk < 0) continue;
        int64_t other = rank_of(b, n_b, a[i].chunk);
        float score = 1 / (constant + (float)(i + 1)) + (other ? weight / (constant + (float)other) : 0);
        hits_insert(hits, &filled, k, (struct store_hit){a[i].chunk, score});
    }
    for (int64_t i = 0; i < n_b; i++)
        if (b[i].chunk >= 0 && rank_of(a, n_a, b[i].chunk) == 0)
            hits_insert(hits, &filled, k, (struct store_hit){b[i].chunk, weight / (constant + (float)(i + 1))});
    fill_rest(hits, filled, k);
}
