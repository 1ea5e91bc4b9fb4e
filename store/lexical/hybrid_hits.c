/* hybrid_hits.c -- see hybrid_hits.h. */
#include "store/lexical/hybrid_hits.h"
#include "base/memory.h"
#include "base/top_list.h"
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

static enum status best_open(struct top_list *best, int k) {
    *best = (struct top_list){.k = k};
    TRY(memory_allocate(&best->id, (size_t)k));
    const enum status status = memory_allocate(&best->score, (size_t)k);
    if (status == STATUS_OK)
        top_list_clear(*best);
    else
        memory_free(best->id);
    return status;
}
/* Writes hits[k], the best by score, ties by smaller id, and frees the list. */
static void best_take(struct store_hit *hits, struct top_list best) {
    top_list_sort(best);
    for (int i = 0; i < best.k; i++)
        hits[i] = (struct store_hit){best.id[i], best.score[i]};
    memory_free(best.id);
    memory_free(best.score);
}

enum status hybrid_weighted(struct store_hit *hits, int k, const int64_t *ids, const float *a, const float *b,
                            int64_t n, float weight) {
    struct top_list best;
    TRY(best_open(&best, k));
    for (int64_t i = 0; i < n; i++)
        top_list_offer(best, a[i] + weight * b[i], ids[i]);
    best_take(hits, best);
    return STATUS_OK;
}

static int by_chunk(const void *a, const void *b) {
    const struct store_hit *x = a, *y = b;
    return (x->chunk > y->chunk) - (x->chunk < y->chunk);
}

enum status hybrid_reciprocal_rank(struct store_hit *hits, int k, const struct store_hit *a, int64_t n_a,
                                   const struct store_hit *b, int64_t n_b, float weight, float constant) {
    struct store_hit *all;
    int64_t n = 0, kept = 0;
    TRY(memory_allocate(&all, (size_t)(n_a + n_b)));
    for (int64_t i = 0; i < n_a; i++)
        if (a[i].chunk >= 0) all[n++] = (struct store_hit){a[i].chunk, 1 / (constant + (float)(i + 1))};
    for (int64_t i = 0; i < n_b; i++)
        if (b[i].chunk >= 0) all[n++] = (struct store_hit){b[i].chunk, weight / (constant + (float)(i + 1))};
    qsort(all, (size_t)n, sizeof *all, by_chunk);
    for (int64_t i = 0; i < n; i++) {
        if (kept > 0 && all[kept - 1].chunk == all[i].chunk)
            all[kept - 1].score += all[i].score;
        else
            all[kept++] = all[i];
    }
    struct top_list best;
    const enum status status = best_open(&best, k);
    for (int64_t i = 0; status == STATUS_OK && i < kept; i++)
        top_list_offer(best, all[i].score, all[i].chunk);
    if (status == STATUS_OK) best_take(hits, best);
    memory_free(all);
    return status;
}
