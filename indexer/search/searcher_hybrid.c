/* searcher_hybrid.c -- the kind that merges a search by BM25 with one by landmarks.
 *
 * If the device has the postings and the landmarks, a search that ranks by the weighted sum and wants BM25 scores is
 * all on the device (device_hybrid.h). Otherwise this process merges. */
#include "base/memory.h"
#include "indexer/search/searcher_internal.h"
#include "store/lexical/hybrid_hits.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEARCHER_CANDIDATES_MIN = 64, SEARCHER_CANDIDATES_MAX = 1024 };
#define SEARCHER_RANK_CONSTANT 60.0f /* Cormack et al. 2009 */

/* ---- candidates ---- */

static int searcher_hybrid_candidates(const struct searcher *s, int k) {
    int64_t wanted = s->config.candidates > 0 ? s->config.candidates : 4 * (int64_t)k;
    if (s->config.candidates <= 0 && wanted < SEARCHER_CANDIDATES_MIN) wanted = SEARCHER_CANDIDATES_MIN;
    if (wanted > SEARCHER_CANDIDATES_MAX) wanted = SEARCHER_CANDIDATES_MAX;
    return wanted < k ? k : (int)wanted;
}

static float searcher_hybrid_weight(const struct searcher_lexical *x, const struct searcher_query *q) {
    return x->base.config.landmark_weight > 0 ? x->base.config.landmark_weight : q->landmark_weight;
}

/* Candidates by landmarks. A token memory, whose queries have a weight, loses nothing by few of them
 * (docs/research/token-memory.md, "Words and landmarks"). */
static int searcher_hybrid_landmarks(const struct searcher_lexical *x, const struct searcher_query *q) {
    const int depth = searcher_hybrid_candidates(&x->base, q->k);
    const bool few = x->base.config.candidates <= 0 && q->landmark_weight > 0;
    return few && depth > SEARCHER_CANDIDATES_MIN ? SEARCHER_CANDIDATES_MIN : depth;
}

/* ---- on the device ---- */

static struct device_hybrid_how searcher_hybrid_how(const struct searcher_lexical *x, const struct searcher_query *q) {
    return (struct device_hybrid_how){
        .words = searcher_lexical_how(x, searcher_hybrid_candidates(&x->base, q->k), q->exclude),
        .landmarks = searcher_hybrid_landmarks(x, q),
        .nprobe = q->nprobe > 0 ? q->nprobe : x->base.config.nprobe,
        .weight = searcher_hybrid_weight(x, q)};
}

static bool searcher_hybrid_takes(const struct searcher_lexical *x, const struct searcher_query *q) {
    return x->merged && q->bm25 && searcher_hybrid_weight(x, q) > 0 &&
           device_lexical_takes(searcher_lexical_on_device(x), searcher_hybrid_candidates(&x->base, q->k));
}

static bool searcher_hybrid_finds_on_device(const struct searcher *s, int k, float landmark_weight) {
    const struct searcher_query q = {.n = 1, .k = k, .bm25 = true, .landmark_weight = landmark_weight};
    return searcher_hybrid_takes((const struct searcher_lexical *)s, &q);
}

static enum status searcher_hybrid_queue_on_device(struct searcher *s, struct searcher_found out,
                                                   const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    const struct device_hybrid_how how = searcher_hybrid_how(x, q);
    s->part->counts.queries += q->n;
    return device_hybrid_queue(x->merged, out, q, &how);
}

static enum status searcher_hybrid_search_on_device(struct searcher_lexical *x, struct store_hit *hits,
                                                    const struct searcher_query *q) {
    const struct device_hybrid_how how = searcher_hybrid_how(x, q);
    x->base.part->counts.queries += q->n;
    return device_hybrid_search(x->merged, hits, q, &how);
}

/* ---- merged by this process ---- */

static int searcher_by_id(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Computes BM25 of the chunks x->ids [n], in ascending order. The hits of the words have it. After them x has
 * memory for those that the words did not find. */
static enum status searcher_hybrid_words(struct searcher_lexical *x, int64_t n, const struct store_hit *words,
                                         int depth, const struct lexical_query *tokens) {
    const struct lexical_search how = searcher_lexical_how(x, depth, NULL);
    int64_t *rest = x->ids + n, others = 0;
    float *rest_scores = x->lexical_scores + n;
    for (int64_t j = 0; j < n; j++)
        x->lexical_scores[j] = NAN;
    for (int j = 0; j < depth && words[j].chunk >= 0; j++) {
        const int64_t *id = bsearch(&words[j].chunk, x->ids, (size_t)n, sizeof *id, searcher_by_id);
        if (id) x->lexical_scores[id - x->ids] = words[j].score;
    }
    for (int64_t j = 0; j < n; j++)
        if (isnan(x->lexical_scores[j])) rest[others++] = x->ids[j];
    TRY(lexical_score(x->index, rest_scores, rest, others, tokens, &how));
    for (int64_t j = 0, next = 0; j < n; j++)
        if (isnan(x->lexical_scores[j])) x->lexical_scores[j] = rest_scores[next++];
    return STATUS_OK;
}

/* Gives hits, which are among the chunks of searcher_hybrid_words, their BM25. */
static void searcher_hybrid_take_words(const struct searcher_lexical *x, int64_t n, struct store_hit *hits, int k) {
    for (int j = 0; j < k && hits[j].chunk >= 0; j++) {
        const int64_t *id = bsearch(&hits[j].chunk, x->ids, (size_t)n, sizeof *id, searcher_by_id);
        hits[j].score = x->lexical_scores[id - x->ids];
    }
}

/* Computes both scores of every candidate of one query, and the best k by their weighted sum. With bm25 hits have BM25
 * scores. */
static enum status searcher_hybrid_weighted(struct searcher_lexical *x, struct store_hit *hits,
                                            const struct searcher_query *q, int64_t i, const float *vector) {
    const int depth = searcher_hybrid_candidates(&x->base, q->k), landmarks = searcher_hybrid_landmarks(x, q);
    const struct store_hit *words = x->lexical_hits + i * depth;
    TRY(searcher_lexical_reserve(x, (int64_t)depth + 2 * landmarks));
    int64_t n = hybrid_candidates(x->ids, words, depth, x->landmark_hits + i * landmarks, landmarks);
    TRY(searcher_hybrid_words(x, n, words, depth, q->tokens + i));
    TRY(store_view_scores(x->base.config.view, x->landmark_scores, vector, x->ids, n));
    TRY(hybrid_weighted(hits, q->k, x->ids, x->lexical_scores, x->landmark_scores, n, searcher_hybrid_weight(x, q)));
    if (q->bm25) searcher_hybrid_take_words(x, n, hits, q->k);
    return STATUS_OK;
}

/* Replaces the scores of one query's hits by BM25 scores: 0 if only the landmark was found. `words` [depth]: the hits
 * of its words, which have these scores already. */
static enum status searcher_hybrid_bm25(struct searcher_lexical *x, struct store_hit *hits, int k,
                                        const struct lexical_query *tokens, const struct store_hit *words, int depth) {
    int64_t n = 0;
    TRY(searcher_lexical_reserve(x, 2 * (int64_t)k));
    for (; n < k && hits[n].chunk >= 0; n++)
        x->ids[n] = hits[n].chunk;
    qsort(x->ids, (size_t)n, sizeof *x->ids, searcher_by_id);
    TRY(searcher_hybrid_words(x, n, words, depth, tokens));
    searcher_hybrid_take_words(x, n, hits, k);
    return STATUS_OK;
}

static enum status searcher_hybrid_merge(struct searcher_lexical *x, struct store_hit *hits,
                                         const struct searcher_query *q) {
    int depth = searcher_hybrid_candidates(&x->base, q->k);
    const float *vectors;
    struct store_info info;
    store_view_info(x->base.config.view, &info);
    TRY(searcher_vectors(&x->base, &vectors, q));
    for (int64_t i = 0; i < q->n; i++) {
        struct store_hit *row = hits + i * q->k;
        if (searcher_hybrid_weight(x, q) > 0) {
            TRY(searcher_hybrid_weighted(x, row, q, i, vectors + i * info.fingerprint.dim));
            continue;
        }
        const struct store_hit *words = x->lexical_hits + i * depth;
        TRY(hybrid_reciprocal_rank(row, q->k, words, depth, x->landmark_hits + i * depth, depth, 1,
                                   SEARCHER_RANK_CONSTANT));
        if (q->bm25) TRY(searcher_hybrid_bm25(x, row, q->k, q->tokens + i, words, depth));
    }
    return q->bm25 ? STATUS_OK : searcher_lexical_rescore_all(x, hits, q);
}

static enum status searcher_hybrid_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    int depth = searcher_hybrid_candidates(s, q->k);
    const struct lexical_search how = searcher_lexical_how(x, depth, q->exclude);
    struct searcher_query wider = *q;
    if (searcher_hybrid_takes(x, q)) return searcher_hybrid_search_on_device(x, hits, q);
    size_t count = (size_t)q->n * (size_t)depth;
    wider.k = searcher_hybrid_landmarks(x, q);
    TRY(memory_grow(&x->lexical_hits, &x->lexical_hit_capacity, count));
    TRY(memory_grow(&x->landmark_hits, &x->landmark_hit_capacity, (size_t)q->n * (size_t)wider.k));
    TRY(searcher_search(s->part, x->landmark_hits, &wider));
    TRY(searcher_lexical_find(x, x->lexical_hits, q, &how));
    return searcher_hybrid_merge(x, hits, q);
}

static void searcher_hybrid_describe(const struct searcher *s, struct searcher_description *out, int k, int nprobe) {
    struct searcher_description lexical = {0};
    searcher_lexical_describe(s, &lexical, k, nprobe);
    *out = searcher_describe(s->part, searcher_hybrid_candidates(s, k), nprobe);
    char landmarks[sizeof out->text];
    snprintf(landmarks, sizeof landmarks, "%s", out->text);
    out->kind = "hybrid";
    out->device_bytes += lexical.device_bytes;
    snprintf(out->text, sizeof out->text, "hybrid of %.60s; %.300s", lexical.text, landmarks);
}

/* x->merged, if the device has all that it needs. */
static enum status searcher_hybrid_merge_on_device(struct searcher_lexical *x, const struct searcher_config *config) {
    struct device_hybrid_config how = {.device = config->device, .lexical = x->own ? x->own : config->lexical};
    const struct searcher *part = x->base.part;
    if (!how.lexical || !part->ops->lists) return STATUS_OK;
    enum status status = part->ops->lists(x->base.part, &how.landmarks);
    if (status == STATUS_OK) status = device_hybrid_create(&x->merged, &how);
    return searcher_may_fall_back(status) ? STATUS_OK : status;
}

static void searcher_hybrid_close(struct searcher *s) {
    device_hybrid_free(((struct searcher_lexical *)s)->merged);
    searcher_lexical_close(s);
}

enum status searcher_hybrid_open(struct searcher **out, const struct searcher_config *config) {
    static const struct searcher_ops ops = {.search = searcher_hybrid_search,
                                            .queue_on_device = searcher_hybrid_queue_on_device,
                                            .finds_on_device = searcher_hybrid_finds_on_device,
                                            .prepare = searcher_lexical_prepare,
                                            .describe = searcher_hybrid_describe,
                                            .close = searcher_hybrid_close,
                                            .tokens = SEARCHER_TOKENS};
    struct searcher_config landmarks = *config;
    struct searcher_lexical *x;
    landmarks.kind = SEARCHER_AUTO;
    TRY(searcher_lexical_create(&x, config, &ops));
    enum status status = searcher_open(&x->base.part, &landmarks);
    if (status == STATUS_OK) status = searcher_hybrid_merge_on_device(x, config);
    if (status == STATUS_OK)
        *out = &x->base;
    else
        searcher_close(&x->base);
    return status;
}
