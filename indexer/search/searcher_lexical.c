/* searcher_lexical.c -- the kind that ranks by BM25 alone, and what it shares with searcher_hybrid.c.
 *
 * The scores of hits are those of their landmarks, because the model weights its neighbours by these, or BM25's if the
 * query requests them. Chunks that were dropped after the view was opened are left out. On a GPU the words are searched
 * in a copy of the postings (device_lexical.h). */
#include "base/memory.h"
#include "indexer/search/searcher_internal.h"
#include "store/lexical/lexical_lists.h"
#include <math.h>
#include <stdio.h>

void searcher_lexical_close(struct searcher *s) {
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

enum status searcher_lexical_create(struct searcher_lexical **out, const struct searcher_config *config,
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

struct device_lexical *searcher_lexical_on_device(const struct searcher_lexical *x) {
    return x->own ? x->own : x->base.config.lexical;
}

enum status searcher_lexical_find(struct searcher_lexical *x, struct store_hit *hits, const struct searcher_query *q,
                                  const struct lexical_search *how) {
    struct device_lexical *copy = searcher_lexical_on_device(x);
    if (copy) return device_lexical_search(copy, hits, q->tokens, q->n, how);
    return lexical_search(x->index, hits, q->tokens, q->n, how);
}

struct lexical_search searcher_lexical_how(const struct searcher_lexical *x, int k, const struct store_range *exclude) {
    const struct searcher_config *c = &x->base.config;
    return (struct lexical_search){.k = k,
                                   .pair_weight = LEXICAL_PAIR_WEIGHT,
                                   .exclude = exclude,
                                   .absent = store_view_dropped(c->view),
                                   .threads = c->device->threads,
                                   .cache = x->cache};
}

enum status searcher_lexical_reserve(struct searcher_lexical *x, int64_t n) {
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

enum status searcher_lexical_rescore_all(struct searcher_lexical *x, struct store_hit *hits,
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

static bool searcher_lexical_finds_on_device(const struct searcher *s, int k, float landmark_weight) {
    (void)landmark_weight;
    const struct device_lexical *copy = searcher_lexical_on_device((const struct searcher_lexical *)s);
    return copy && device_lexical_takes(copy, k);
}

static enum status searcher_lexical_queue_on_device(struct searcher *s, struct searcher_found out,
                                                    const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    const struct lexical_search how = searcher_lexical_how(x, q->k, q->exclude);
    return device_lexical_queue_into(searcher_lexical_on_device(x), out.chunk, out.score, q->tokens, 1, &how, NULL);
}

static enum status searcher_lexical_collect(struct searcher *s, struct store_hit *hits) {
    return device_lexical_collect(searcher_lexical_on_device((struct searcher_lexical *)s), hits);
}

void searcher_lexical_prepare(struct searcher *s, const struct searcher_query *q) {
    struct searcher_lexical *x = (struct searcher_lexical *)s;
    struct device_lexical *copy = searcher_lexical_on_device(x);
    const struct lexical_search how = searcher_lexical_how(x, q->k, q->exclude);
    if (copy) device_lexical_prepare(copy, q->tokens, &how);
}

void searcher_lexical_describe(const struct searcher *s, struct searcher_description *out, int k, int nprobe) {
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
