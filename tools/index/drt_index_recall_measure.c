/* drt_index_recall_measure.c -- see drt_index_recall.h. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "tools/index/drt_index_recall.h"
#include "tools/shared/progress_line.h"
#include <math.h>
#include <stdlib.h>

static enum status pick_queries(struct recall *r, uint64_t seed, int64_t exclude) {
    struct rng rng = rng_make(seed, 0);
    struct store_dropped dropped = store_view_dropped(r->store.view);
    int64_t chunks = r->store.info.chunks - r->store.info.dropped_chunks;
    if (chunks == 0)
        return fail(STATUS_INVALID, "%s: all of its chunks were dropped or deleted: there is nothing to measure",
                    store_view_path(r->store.view));
    for (int64_t i = 0; i < r->n; i++) {
        struct store_chunk c;
        struct store_document d;
        int64_t chunk = store_dropped_nth(dropped, (int64_t)rng_below(&rng, (uint64_t)chunks));
        TRY(store_view_chunk(r->store.view, &c, r->ids, chunk));
        TRY(store_view_document(r->store.view, &d, c.document));
        TRY(store_view_landmark(r->store.view, r->queries + i * r->store.info.fingerprint.dim, chunk));
        r->exclude[i] = exclude_range(exclude, &d, c.in_document);
    }
    return STATUS_OK;
}

enum status recall_prepare(struct recall *r, uint64_t seed, int64_t exclude) {
    size_t n = (size_t)r->n, k = (size_t)r->k;
    TRY(memory_allocate(&r->queries, n * (size_t)r->store.info.fingerprint.dim));
    TRY(memory_allocate(&r->exclude, n));
    TRY(memory_allocate(&r->exact, n * k));
    TRY(memory_allocate(&r->found, n * k));
    TRY(memory_allocate(&r->took, n));
    TRY(memory_allocate(&r->ids, (size_t)r->store.info.fingerprint.chunk_tokens));
    return pick_queries(r, seed, exclude);
}

void recall_free(struct recall *r) {
    memory_free(r->ids);
    memory_free(r->took);
    memory_free(r->found);
    memory_free(r->exact);
    memory_free(r->exclude);
    memory_free(r->queries);
}

static int recall_order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum status recall_search(struct recall *r, struct store_hit *hits, struct searcher *searcher, int nprobe,
                          struct recall_times *ms) {
    double start = clock_seconds();
    for (int64_t i = 0; i < r->n; i++) {
        double begin = clock_seconds();
        const struct searcher_query query = {.n = 1,
                                             .k = (int)r->k,
                                             .nprobe = nprobe,
                                             .vectors = r->queries + i * r->store.info.fingerprint.dim,
                                             .exclude = r->exclude + i};
        TRY(searcher_search(searcher, hits + i * r->k, &query));
        r->took[i] = (clock_seconds() - begin) * 1000;
    }
    ms->mean = (clock_seconds() - start) * 1000 / (double)r->n;
    qsort(r->took, (size_t)r->n, sizeof *r->took, recall_order);
    ms->p50 = r->took[(r->n - 1) / 2];
    ms->p99 = r->took[(r->n - 1) * 99 / 100];
    return STATUS_OK;
}

/* Computes for one query the number of exact hits that were found, their share of the softmax over the exact scores,
 * and the mean score lost at each rank. */
static void index_recall_measure_compare(struct recall_figures *f, const struct store_hit *exact,
                                         const struct store_hit *found, int64_t k) {
    double total = 0, kept = 0, gap = 0;
    int64_t wanted = 0, hit = 0, both = 0;
    for (int64_t i = 0; i < k && exact[i].chunk >= 0; i++) {
        double weight = exp((double)exact[i].score - (double)exact[0].score);
        bool again = false;
        for (int64_t j = 0; j < k; j++)
            again |= found[j].chunk == exact[i].chunk;
        total += weight;
        kept += again ? weight : 0;
        hit += again;
        wanted++;
        if (found[i].chunk < 0) continue;
        gap += (double)exact[i].score - (double)found[i].score;
        both++;
    }
    f->recall += wanted > 0 ? (double)hit / (double)wanted : 1;
    f->mass += total > 0 ? kept / total : 1;
    f->gap += both > 0 ? gap / (double)both : 0;
}

struct recall_figures recall_compare(const struct recall *r) {
    struct recall_figures f = {0};
    for (int64_t i = 0; i < r->n; i++)
        index_recall_measure_compare(&f, r->exact + i * r->k, r->found + i * r->k, r->k);
    f.recall /= (double)r->n;
    f.mass /= (double)r->n;
    f.gap /= (double)r->n;
    return f;
}
