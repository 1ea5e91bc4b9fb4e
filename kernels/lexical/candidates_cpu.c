/* candidates_cpu.c -- see candidates.h. This twin defines the results. No program of a CPU calls it, because there a
 * search leaves its hits in memory of the process (indexer/retrieve/candidate_order.h). */
#include "kernels/device/device_internal.h"
#include "kernels/lexical/candidates.h"
#include <assert.h>
#include <string.h>

enum { SHARE = 32 /* candidates that a thread takes at a time */ };

struct candidates_task {
    const struct candidates *c;
    struct candidate_query query;
    float sum[CANDIDATES_MAX];
};

static void candidates_sums(void *context, int64_t begin, int64_t end, int worker) {
    struct candidates_task *t = context;
    const struct candidates *c = t->c;
    const int rows = c->of->chunk_rows;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int32_t ids[2 * CANDIDATES_ROWS_MAX];
        float features[CANDIDATE_FEATURES];
        if (c->chunk[i] < 0) continue;
        for (int j = 0; j < 2 * rows; j++)
            ids[j] = packed_id_of(c->of, c->chunk[i], j);
        candidate_features(features, &t->query, ids, rows, 2 * rows);
        features[CANDIDATE_SCORE] = c->score[i];
        features[CANDIDATE_COSINE] = c->landmark ? candidate_cosine(c->landmark[i], c->terms.landmark_by) : 0;
        t->sum[i] = candidate_sum(c->terms.weights, features);
    }
}

static void candidates_order(struct device *dev, int64_t *chunk, float *score, const struct candidates *c, int k) {
    struct candidates_task t = {.c = c, .query = {.vocab = c->terms.vocab, .words = device_scratch(dev, 0)}};
    struct candidate best[CANDIDATES_MAX];
    int n = 0;
    assert(c->n >= 1 && c->n <= CANDIDATES_MAX && k >= 1 && k <= c->n && c->of->chunk_rows <= CANDIDATES_ROWS_MAX);
    assert(c->terms.vocab <= DEVICE_SCRATCH_BYTES);
    memset(t.query.words, 0, (size_t)c->terms.vocab);
    candidate_query_set(&t.query, c->query, c->query_ids, c->terms.idf);
    threads_for(dev->threads, c->n, SHARE, candidates_sums, &t);
    for (int i = 0; i < c->n; i++)
        if (c->chunk[i] >= 0) best[n++] = (struct candidate){t.sum[i], i};
    candidates_sort(best, n);
    for (int i = 0; i < c->n; i++)
        if (c->chunk[i] < 0) best[n++].at = i;
    for (int i = 0; i < k; i++) {
        chunk[i] = c->chunk[best[i].at];
        score[i] = c->score[best[i].at];
    }
}

const struct candidates_ops candidates_cpu = {.order = candidates_order};
