/* retriever_corpus.c -- candidates from a store: the nearest chunks, or random ones, less what is excluded.
 *
 * Random picks depend on seed, group and chunk number only: however a text is cut into calls, it meets the same ones.
 */
#include "base/memory.h"
#include "base/rng.h"
#include "indexer/retriever_internal.h"
#include <math.h>

enum status corpus_side_open(struct corpus_side *c, const struct chunk_retriever_config *config, int64_t max_queries,
                             int k) {
    *c = (struct corpus_side){.view = config->corpus, .config = *config};
    struct store_info info;
    store_view_info(config->corpus, &info);
    c->chunks = info.chunks - info.dropped_chunks;
    void *memory;
    TRY(memory_allocate_bytes(&memory, (size_t)(max_queries * k), sizeof *c->hits));
    c->hits = memory;
    TRY(memory_allocate_bytes(&memory, (size_t)max_queries, sizeof *c->exclude));
    c->exclude = memory;
    TRY(memory_allocate_bytes(&memory, (size_t)config->model->hidden, sizeof *c->landmark));
    c->landmark = memory;
    return STATUS_OK;
}

void corpus_side_close(struct corpus_side *c) {
    memory_free(c->hits);
    memory_free(c->exclude);
    memory_free(c->landmark);
    *c = (struct corpus_side){0};
}

void corpus_side_exclude(struct corpus_side *c, int64_t document, int64_t from) {
    c->config.exclude_document = document;
    c->config.exclude_from = from;
    c->document_known = false;
}

/* What the query of own chunk t must not see: all of the document, or the chunks around the same place in it. */
static struct store_range excluded(const struct corpus_side *c, int64_t t) {
    struct store_range r = c->document;
    int64_t window = c->config.exclude_window;
    if (window < 0 || r.begin == r.end) return r;
    t += c->config.exclude_from;
    int64_t begin = r.begin + t - window, end = r.begin + t + window + 1;
    if (begin > r.begin) r.begin = begin < r.end ? begin : r.end;
    if (end < r.end) r.end = end > r.begin ? end : r.begin;
    return r;
}

static enum status look_up_document(struct corpus_side *c) {
    if (c->document_known) return STATUS_OK;
    c->document = (struct store_range){0};
    if (c->config.exclude_document >= 0) {
        struct store_document d;
        TRY(store_view_document(c->view, &d, c->config.exclude_document));
        c->document = (struct store_range){.begin = d.first_chunk, .end = d.first_chunk + d.chunks};
    }
    c->document_known = true;
    return STATUS_OK;
}

/* k distinct numbers below `available` (all of them when there are no more), by Floyd's algorithm: k draws, whatever
 * the size of the corpus. */
static int64_t draw_distinct(int64_t *picks, struct rng *rng, int64_t available, int64_t k) {
    int64_t n = available < k ? available : k;
    for (int64_t i = 0; i < n; i++) {
        int64_t limit = available - n + i, pick = (int64_t)rng_below(rng, (uint64_t)limit + 1);
        for (int64_t j = 0; j < i; j++)
            if (picks[j] == pick) {
                pick = limit;
                break;
            }
        picks[i] = pick;
    }
    return n;
}

static enum status random_candidates(struct corpus_side *c, struct neighbour_candidate *list, int64_t *used, int group,
                                     int64_t t, const float *query, int k) {
    struct store_range hole = excluded(c, t);
    struct rng rng = rng_make(c->config.seed, (uint64_t)t * MODEL_GROUPS_MAX + (uint64_t)group);
    int dim = c->config.model->hidden;
    int64_t picks[CHUNK_RETRIEVER_TOPK_MAX];
    struct store_dropped dropped = store_view_dropped(c->view);
    int64_t before = store_dropped_rank(dropped, hole.begin), length = store_dropped_rank(dropped, hole.end) - before;
    int64_t n = draw_distinct(picks, &rng, c->chunks - length, k);
    for (int64_t i = 0; i < n; i++) {
        int64_t chunk = store_dropped_nth(dropped, picks[i] < before ? picks[i] : picks[i] + length);
        TRY(store_view_landmark(c->view, c->landmark, chunk));
        double dot = 0;
        for (int j = 0; j < dim; j++)
            dot += (double)query[j] * (double)c->landmark[j];
        list[(*used)++] =
            (struct neighbour_candidate){.score = (float)(dot / sqrt(dim)), .source = NEIGHBOUR_CORPUS, .id = chunk};
    }
    return STATUS_OK;
}

/* Of the store's own index: what it did not find, an exact search finds. */
static enum status find_missing(struct corpus_side *c, struct store_search how, const float *here, int64_t n) {
    const struct store_range *exclude = how.exclude;
    how.exact = true;
    for (int64_t i = 0; i < n; i++) {
        how.exclude = exclude ? exclude + i : NULL;
        struct store_hit *hits = c->hits + i * how.k;
        if (store_view_missing(c->view, hits, how.k, how.exclude) == 0) continue;
        c->missing++;
        if (c->config.exact_fallback)
            TRY(store_view_search(c->view, hits, here + i * c->config.model->hidden, 1, &how));
    }
    return STATUS_OK;
}

static enum status nearest(struct corpus_side *c, struct mat queries, const float *here, int64_t n, int k,
                           const struct store_range *exclude) {
    if (c->config.lists)
        return list_index_search(c->config.lists, c->hits, mat_rows(queries, 0, n), k, c->config.nprobe, exclude);
    if (c->config.flat) return flat_index_search(c->config.flat, c->hits, mat_rows(queries, 0, n), k, exclude);
    const struct store_search how = {.k = k,
                                     .exact = c->config.exact,
                                     .nprobe = c->config.nprobe,
                                     .candidates = c->config.candidates,
                                     .exclude = exclude,
                                     .threads = c->config.device->threads};
    TRY(store_view_search(c->view, c->hits, here, n, &how));
    return find_missing(c, how, here, n);
}

enum status corpus_side_search(struct corpus_side *c, struct neighbour_candidate *lists, int64_t *used, int64_t stride,
                               int group, int64_t first, struct mat queries, const float *here, int64_t n, int k) {
    TRY(look_up_document(c));
    if (c->config.random) {
        for (int64_t i = 0; i < n; i++)
            TRY(random_candidates(c, lists + i * stride, &used[i], group, first + i, here + i * c->config.model->hidden,
                                  k));
        return STATUS_OK;
    }
    for (int64_t i = 0; i < n; i++)
        c->exclude[i] = excluded(c, first + i);
    TRY(nearest(c, queries, here, n, k, c->document.begin < c->document.end ? c->exclude : NULL));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i * k; j < (i + 1) * k && c->hits[j].chunk >= 0; j++)
            lists[i * stride + used[i]++] = (struct neighbour_candidate){
                .score = c->hits[j].score, .source = NEIGHBOUR_CORPUS, .id = c->hits[j].chunk};
    return STATUS_OK;
}
