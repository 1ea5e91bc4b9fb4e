/* searcher_lexical.c -- the kinds that read the query's ids: only BM25, or BM25 merged with a search by landmarks.
 *
 * The scores of hits are those of their landmarks, because the model weights its neighbours by these, or BM25's if the
 * query requests them. Chunks that were dropped after the view was opened are left out. On a GPU the words are searched
 * in a copy of the postings (device_lexical.h). */
#include "base/memory.h"
#include "indexer/search/searcher_internal.h"
#include "store/lexical/hybrid.h"
#include "store/lexical/lexical_lists.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEARCHER_CANDIDATES_MIN = 64, SEARCHER_CANDIDATES_MAX = 1024 };
#define SEARCHER_RANK_CONSTANT 60.0f /* Cormack et al. 2009 */

/* ---- the lexical index, of both kinds ---- */

struct searcher_lexical {
    struct searcher base;
    const struct lexical *index; /* the view's */
    struct device_lexical *own;  /* the copy on the device; NULL: config.lexical, or none */
    struct lexical_cache *cache; /* of searches on the CPU */
    uint64_t device_bytes;
    struct lexical_info info;
    int64_t *ids; /* the chunks of one query, with their scores */
    float *landmark_scores, *lexical_scores;
    size_t id_capacity, landmark_capacity, lexical_capacity;
    struct store_hit *lexical_hits, *landmark_hits; /* HYBRID: [n, candidates] */
    size_t lexical_hit_capacity, landmark_hit_capacity;
};

static void searcher_lexical_close(struct searcher *s) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    device_lexical_free(x->own);
    lexical_cache_free(x->cache);
    memory_free(x->ids);
    memory_free(x->landmark_scores);
    memory_free(x->lexical_scores);
    memory_free(x->lexical_hits);
    memory_free(x->landmark_hits);
    memory_free(x);
}

/* Copies the index to the device. If it does not fit, x->base.fallback states why. */
static enum status searcher_lexical_copy(struct searcher_lexical *x, const struct searcher_config *config) {
    const struct device_lexical_config how = {.device = config->device,
                                              .index = x->index,
                                              .absent = store_view_dropped(config->view),
                                              .reserve = config->reserve};
    const uint64_t bytes = device_lexical_bytes(&how);
    char reason[1200];
    enum status status = config->lexical ? STATUS_OK : device_lexical_create(&x->own, &how);
    if (status == STATUS_OK) x->device_bytes = bytes;
    if (!searcher_may_fall_back(status)) return status;
    snprintf(reason, sizeof reason, "the lexical index of %.2f GiB cannot be searched on the device: %s",
             (double)bytes / (1 << 30), status_message());
    return memory_copy_string(&x->base.fallback, reason);
}

static enum status searcher_lexical_create(struct searcher_lexical **out, const struct searcher_config *config,
                                           const struct searcher_ops *ops) {
    const struct lexical *index;
    struct searcher_lexical *x;
    enum status status = STATUS_OK;
    TRY(store_view_lexical(&index, config->view));
    TRY(memory_allocate_zero(&x, 1));
    x->base.ops = ops;
    x->index = index;
    lexical_info(index, &x->info);
    if (config->lexical || !config->device->shares_memory) status = searcher_lexical_copy(x, config);
    if (status == STATUS_OK) status = lexical_cache_create(&x->cache);
    if (status == STATUS_OK)
        *out = x;
    else
        searcher_close(&x->base);
    return status;
}

static struct device_lexical *searcher_lexical_on_device(const struct searcher_lexical *x) {
    return x->own ? x->own : x->base.config.lexical;
}

static enum status searcher_lexical_find(struct searcher_lexical *x, struct store_hit *hits,
                                         const struct searcher_query *q, const struct lexical_search *how) {
    struct device_lexical *copy = searcher_lexical_on_device(x);
    if (copy) return device_lexical_search(copy, hits, q->tokens, q->n, how);
    return lexical_search(x->index, hits, q->tokens, q->n, how);
}

static struct lexical_search searcher_lexical_how(const struct searcher_lexical *x, int k,
                                                  const struct store_range *exclude) {
    const struct searcher_config *c = &x->base.config;
    return (struct lexical_search){.k = k,
                                   .pair_weight = LEXICAL_PAIR_WEIGHT,
                                   .exclude = exclude,
                                   .absent = store_view_dropped(c->view),
                                   .threads = c->device->threads,
                                   .cache = x->cache};
}

static enum status searcher_lexical_reserve(struct searcher_lexical *x, int64_t n) {
    TRY(memory_grow(&x->ids, &x->id_capacity, (size_t)n));
    TRY(memory_grow(&x->landmark_scores, &x->landmark_capacity, (size_t)n));
    return memory_grow(&x->lexical_scores, &x->lexical_capacity, (size_t)n);
}

/* Replaces the scores of one query's hits by those of their landmarks. Chunks without a landmark are removed. */
static enum status searcher_lexical_rescore(struct searcher_lexical *x, struct store_hit *hits, int k,
                                            const float *vector) {
    int64_t n = 0, kept = 0;
    TRY(searcher_lexical_reserve(x, k));
    while (n < k && hits[n].chunk >= 0) {
        x->ids[n] = hits[n].chunk;
        n++;
    }
    TRY(store_view_scores(x->base.config.view, x->landmark_scores, vector, x->ids, n));
    for (int64_t i = 0; i < n; i++)
        if (x->landmark_scores[i] > -INFINITY)
            hits[kept++] = (struct store_hit){.chunk = x->ids[i], .score = x->landmark_scores[i]};
    for (; kept < k; kept++)
        hits[kept] = (struct store_hit){.chunk = -1, .score = -INFINITY};
    return STATUS_OK;
}

static enum status searcher_lexical_rescore_all(struct searcher_lexical *x, struct store_hit *hits,
                                                const struct searcher_query *q) {
    const float *vectors;
    struct store_info info;
    store_view_info(x->base.config.view, &info);
    TRY(searcher_vectors(&x->base, &vectors, q));
    for (int64_t i = 0; i < q->n; i++)
        TRY(searcher_lexical_rescore(x, hits + i * q->k, q->k, vectors + i * info.fingerprint.dim));
    return STATUS_OK;
}

/* ---- BM25 ---- */

static enum status searcher_lexical_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    const struct lexical_search how = searcher_lexical_how(x, q->k, q->exclude);
    TRY(searcher_lexical_find(x, hits, q, &how));
    return q->bm25 ? STATUS_OK : searcher_lexical_rescore_all(x, hits, q);
}

static enum status searcher_lexical_queue(struct searcher *s, bool *queued, const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    struct device_lexical *copy = searcher_lexical_on_device(x);
    const struct lexical_search how = searcher_lexical_how(x, q->k, q->exclude);
    *queued = false;
    return copy && q->bm25 ? device_lexical_queue(copy, queued, q->tokens, &how) : STATUS_OK;
}

static bool searcher_lexical_finds_on_device(const struct searcher *s, int k) {
    const struct device_lexical *copy = searcher_lexical_on_device((const struct searcher_lexical *)s);
    return copy && device_lexical_takes(copy, k);
}

static enum status searcher_lexical_queue_on_device(struct searcher *s, struct searcher_found out,
                                                    const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    const struct lexical_search how = searcher_lexical_how(x, q->k, q->exclude);
    return device_lexical_queue_into(searcher_lexical_on_device(x), out.chunk, out.score, q->tokens, &how);
}

static enum status searcher_lexical_collect(struct searcher *s, struct store_hit *hits) {
    return device_lexical_collect(searcher_lexical_on_device((struct searcher_lexical *)s), hits);
}

static void searcher_lexical_prepare(struct searcher *s, const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    struct device_lexical *copy = searcher_lexical_on_device(x);
    const struct lexical_search how = searcher_lexical_how(x, q->k, q->exclude);
    if (copy) device_lexical_prepare(copy, q->tokens, &how);
}

static void searcher_lexical_describe(const struct searcher *s, struct searcher_description *out, int k, int nprobe) {
    const struct searcher_lexical *x = (const struct searcher_lexical *)s;
    (void)k, (void)nprobe;
    out->kind = "lexical";
    out->exact = true;
    out->device_bytes = x->device_bytes;
    snprintf(out->text, sizeof out->text, "lexical, %lld segment%s%s", (long long)x->info.segments,
             x->info.segments == 1 ? "" : "s", x->device_bytes > 0 ? ", BM25 on the GPU" : "");
}

enum status searcher_lexical_open(struct searcher **out, const struct searcher_config *config) {
    static const struct searcher_ops ops = {.search = searcher_lexical_search,
                                            .queue = searcher_lexical_queue,
                                            .queue_on_device = searcher_lexical_queue_on_device,
                                            .finds_on_device = searcher_lexical_finds_on_device,
                                            .collect = searcher_lexical_collect,
                                            .prepare = searcher_lexical_prepare,
                                            .describe = searcher_lexical_describe,
                                            .close = searcher_lexical_close,
                                            .tokens = SEARCHER_TOKENS,
                                            .words_alone = true};
    struct searcher_lexical *x;
    TRY(searcher_lexical_create(&x, config, &ops));
    *out = &x->base;
    return STATUS_OK;
}

/* ---- merged with a search by landmarks ---- */

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
 * (docs/research/token-memory.md, "Words and landmarks"), and a GPU finds 32 in a pass. */
static int searcher_hybrid_landmarks(const struct searcher_lexical *x, const struct searcher_query *q) {
    const int depth = searcher_hybrid_candidates(&x->base, q->k);
    const bool few = x->base.config.candidates <= 0 && q->landmark_weight > 0;
    return few && depth > SEARCHER_CANDIDATES_MIN ? SEARCHER_CANDIDATES_MIN : depth;
}

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
    hybrid_weighted(hits, q->k, x->ids, x->lexical_scores, x->landmark_scores, n, searcher_hybrid_weight(x, q));
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
        hybrid_reciprocal_rank(row, q->k, words, depth, x->landmark_hits + i * depth, depth, 1, SEARCHER_RANK_CONSTANT);
        if (q->bm25) TRY(searcher_hybrid_bm25(x, row, q->k, q->tokens + i, words, depth));
    }
    return q->bm25 ? STATUS_OK : searcher_lexical_rescore_all(x, hits, q);
}

static enum status searcher_hybrid_search(struct searcher *s, struct store_hit *hits, const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    int depth = searcher_hybrid_candidates(s, q->k);
    const struct lexical_search how = searcher_lexical_how(x, depth, q->exclude);
    struct searcher_query wider = *q;
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

enum status searcher_hybrid_open(struct searcher **out, const struct searcher_config *config) {
    static const struct searcher_ops ops = {.search = searcher_hybrid_search,
                                            .describe = searcher_hybrid_describe,
                                            .close = searcher_lexical_close,
                                            .tokens = SEARCHER_TOKENS};
    struct searcher_config landmarks = *config;
    struct searcher_lexical *x;
    landmarks.kind = SEARCHER_AUTO;
    TRY(searcher_lexical_create(&x, config, &ops));
    enum status status = searcher_open(&x->base.part, &landmarks);
    if (status == STATUS_OK)
        *out = &x->base;
    else
        searcher_close(&x->base);
    return status;
}
