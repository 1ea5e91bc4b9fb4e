/* retriever_corpus.c -- finds candidates in a store: the nearest chunks or random ones, except those that are excluded.
 *
 * Random chunks depend only on seed, group and chunk number, and not on how a text is divided into calls. */
#include "base/memory.h"
#include "base/minmax.h"
#include "base/rng.h"
#include "indexer/retrieve/retriever_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static enum status corpus_allocate(struct corpus_side *c, int64_t max_queries, int k) {
    const struct chunk_retriever_config *config = &c->config;
    size_t dim = (size_t)config->model->hidden, n = (size_t)max_queries;
    TRY(memory_allocate(&c->hits, n * (size_t)k));
    TRY(memory_allocate(&c->exclude, n));
    TRY(memory_allocate(&c->landmark, dim));
    TRY(memory_allocate(&c->chunk_ids, (size_t)config->model->chunk));
    if ((config->random || config->continuation > 0) && !config->device->shares_memory)
        TRY(memory_allocate(&c->queries, n * dim));
    int tokens = config->random ? 0 : searcher_tokens(config->searcher);
    if (config->external) {
        TRY(memory_allocate(&c->before, n));
        TRY(corpus_external_open(&c->external, config, max_queries, k));
    }
    if (tokens == 0 && !config->external) return STATUS_OK;
    c->tail_capacity = tokens + max_queries * config->model->chunk;
    TRY(memory_allocate(&c->tail, (size_t)c->tail_capacity));
    return tokens > 0 ? memory_allocate(&c->tokens, n) : STATUS_OK;
}

enum status corpus_side_open(struct corpus_side *c, const struct chunk_retriever_config *config, int64_t max_queries,
                             int k) {
    struct store_info info;
    store_view_info(config->corpus, &info);
    *c = (struct corpus_side){.view = config->corpus, .config = *config};
    c->chunks = info.chunks - info.dropped_chunks;
    return corpus_allocate(c, max_queries, k);
}

void corpus_side_close(struct corpus_side *c) {
    memory_free(c->hits);
    memory_free(c->exclude);
    memory_free(c->landmark);
    memory_free(c->chunk_ids);
    memory_free(c->queries);
    memory_free(c->tail);
    memory_free(c->tokens);
    memory_free(c->before);
    if (c->config.external) corpus_external_close(&c->external, c->config.device);
    *c = (struct corpus_side){0};
}

/* Keeps the ids that the queries of one call need, also if several calls passed them. Chunk 0 begins another text. */
void corpus_side_append(struct corpus_side *c, int64_t first, const int32_t *ids, int64_t n) {
    int64_t chunk = c->config.model->chunk, count = n * chunk;
    if (!c->tail) return;
    c->external.n = 0;
    if (c->tail_end != first * chunk) c->tail_count = 0;
    c->tail_end = (first + n) * chunk;
    if (count > c->tail_capacity) {
        ids += count - c->tail_capacity;
        count = c->tail_capacity;
    }
    int64_t kept = c->tail_capacity - count < c->tail_count ? c->tail_capacity - count : c->tail_count;
    memmove(c->tail, c->tail + c->tail_count - kept, (size_t)kept * sizeof *c->tail);
    memcpy(c->tail + kept, ids, (size_t)count * sizeof *ids);
    c->tail_count = kept + count;
}

/* Returns the last ids up to the end of chunk t. */
static struct lexical_query corpus_tokens(const struct corpus_side *c, int64_t t) {
    int64_t tail_begin = c->tail_end - c->tail_count, end = (t + 1) * c->config.model->chunk;
    int64_t most = searcher_tokens(c->config.searcher);
    int64_t begin = end - (c->config.query_ids > 0 ? min_i64(most, c->config.query_ids) : most);
    if (end > c->tail_end) end = c->tail_end;
    if (begin < tail_begin) begin = tail_begin;
    if (begin >= end) return (struct lexical_query){0};
    return (struct lexical_query){.ids = c->tail + (begin - tail_begin), .n = (int)(end - begin)};
}

void corpus_side_exclude(struct corpus_side *c, int64_t document, int64_t from) {
    c->config.exclude_document = document;
    c->config.exclude_from = from;
    c->document_known = false;
}

/* Returns the chunks that the query of own chunk t must not find: the whole document, or those near the same
 * position in it. */
static struct store_range corpus_excluded(const struct corpus_side *c, int64_t t) {
    struct store_range r = c->document;
    int64_t window = c->config.exclude_window;
    if (window < 0 || r.begin == r.end) return r;
    t += c->config.exclude_from;
    int64_t begin = r.begin + t - window, end = r.begin + t + window + 1;
    if (begin > r.begin) r.begin = begin < r.end ? begin : r.end;
    if (end < r.end) r.end = end > r.begin ? end : r.begin;
    return r;
}

static enum status corpus_find_document(struct corpus_side *c) {
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

/* Floyd's algorithm: k draws for any size of the corpus. */
int64_t random_chunks(int64_t *chunks, struct rng *rng, struct store_dropped dropped, int64_t existing,
                      struct store_range skip, int64_t k) {
    /* ranks among the chunks that exist */
    const int64_t before = store_dropped_rank(dropped, skip.begin),
                  skipped = store_dropped_rank(dropped, skip.end) - before;
    const int64_t available = existing - skipped, n = available < k ? available : k;
    for (int64_t i = 0; i < n; i++) {
        int64_t limit = available - n + i, pick = (int64_t)rng_below(rng, (uint64_t)limit + 1);
        for (int64_t j = 0; j < i; j++)
            if (chunks[j] == pick) {
                pick = limit;
                break;
            }
        chunks[i] = pick;
    }
    for (int64_t i = 0; i < n; i++)
        chunks[i] = store_dropped_nth(dropped, chunks[i] < before ? chunks[i] : chunks[i] + skipped);
    return n;
}

static enum status corpus_random_candidates(struct corpus_side *c, struct neighbour_candidate *list, int64_t *used,
                                            int group, int64_t t, const float *query, int k) {
    struct store_range skip = corpus_excluded(c, t);
    struct rng rng = rng_make(c->config.seed, (uint64_t)t * MODEL_GROUPS_MAX + (uint64_t)group);
    int dim = c->config.model->hidden;
    int64_t picks[CHUNK_RETRIEVER_TOPK_MAX];
    int64_t n = random_chunks(picks, &rng, store_view_dropped(c->view), c->chunks, skip, k);
    for (int64_t i = 0; i < n; i++) {
        int64_t chunk = picks[i];
        double dot = 0;
        if (!c->config.external) TRY(store_view_landmark(c->view, c->landmark, chunk));
        for (int j = 0; j < dim && !c->config.external; j++)
            dot += (double)query[j] * (double)c->landmark[j];
        list[(*used)++] =
            (struct neighbour_candidate){.score = (float)(dot / sqrt(dim)), .source = NEIGHBOUR_CORPUS, .id = chunk};
    }
    return STATUS_OK;
}

/* Returns the queries in host memory: [n, d]. */
static const float *corpus_queries(struct corpus_side *c, struct mat queries, int64_t n) {
    if (!c->queries) return queries.data;
    device_download(c->config.device, c->queries, queries.data, mat_bytes(mat_rows(queries, 0, n)));
    return c->queries;
}

static enum status corpus_random(struct corpus_side *c, struct corpus_lists to, int group, int64_t first,
                                 struct mat queries, int64_t n, int k) {
    const float *rows = corpus_queries(c, queries, n);
    for (int64_t i = 0; i < n; i++)
        TRY(corpus_random_candidates(c, to.lists + i * to.stride, &to.used[i], group, first + i,
                                     rows + i * c->config.model->hidden, k));
    return STATUS_OK;
}

/* *end: the first id, counted from the store's first chunk, that cannot continue `chunk`: of another document, or
 * excluded. */
static enum status corpus_continues(struct corpus_side *c, int64_t *end, int64_t chunk, struct store_range exclude) {
    const int64_t chunk_ids = c->config.model->chunk;
    struct store_chunk at;
    struct store_document d;
    TRY(store_view_chunk(c->view, &at, c->chunk_ids, chunk));
    TRY(store_view_document(c->view, &d, at.document));
    *end = d.first_chunk * chunk_ids + d.tokens;
    if (exclude.begin < exclude.end && exclude.begin > chunk) *end = min_i64(*end, exclude.begin * chunk_ids);
    return STATUS_OK;
}

/* Adds a found chunk and its continuation. Each part of it has an id that the part before it lacks; with an overlap it
 * ends before the excluded chunks. */
static enum status corpus_continue(struct corpus_side *c, struct neighbour_candidate *list, int *n, int most,
                                   struct store_hit hit, struct store_range exclude) {
    const int64_t chunk_ids = c->config.model->chunk, step = chunk_ids - c->config.overlap;
    const int64_t first = hit.chunk * chunk_ids;
    struct neighbour_candidate one = {.score = hit.score, .source = NEIGHBOUR_CORPUS, .id = hit.chunk};
    int64_t end;
    TRY(corpus_continues(c, &end, hit.chunk, exclude));
    *n = passages_put(list, *n, most, one);
    for (int64_t i = 1; i <= c->config.continuation && first + i * step + c->config.overlap < end; i++) {
        one.id = hit.chunk + i * step / chunk_ids;
        one.offset = (int16_t)(i * step % chunk_ids);
        one.score = NAN;
        const bool excluded =
            exclude.begin < exclude.end && exclude.begin > hit.chunk && one.id + (one.offset > 0) >= exclude.begin;
        if (!excluded) *n = passages_put(list, *n, most, one);
    }
    return STATUS_OK;
}

/* Adds the best hits, each followed by its continuation, to one query's list. Without an overlap the store has the
 * continuation's landmarks, by which it is scored; otherwise its score is NaN for the moment. */
static enum status corpus_continued(struct corpus_side *c, struct neighbour_candidate *list, int64_t *used,
                                    const struct store_hit *hits, const float *query, struct store_range exclude,
                                    int k) {
    int64_t chunks[CHUNK_RETRIEVER_TOPK_MAX] = {0};
    float scores[CHUNK_RETRIEVER_TOPK_MAX] = {0};
    /* a search by words ranks chunks better than their scores do: the best hits must be read */
    const bool ranked = c->config.overlap == 0 || c->tokens || c->config.external;
    const int most = ranked ? k : PASSAGES_PER_HIT * k;
    int n = 0;
    for (int i = 0; i < k && hits[i].chunk >= 0 && n < most; i++)
        TRY(corpus_continue(c, list, &n, most, hits[i], exclude));
    *used += n;
    if (c->config.external || c->config.overlap > 0) return STATUS_OK;
    for (int i = 0; i < n; i++)
        chunks[i] = list[i].id;
    TRY(store_view_scores(c->view, scores, query, chunks, n));
    for (int i = 0; i < n; i++)
        list[i].score = scores[i];
    return STATUS_OK;
}

static enum status corpus_nearest(struct corpus_side *c, struct corpus_lists to, int64_t first, struct mat queries,
                                  int64_t n, int k) {
    if (c->config.external) TRY(corpus_external_vectors(c, first, n));
    for (int64_t i = 0; i < n; i++) {
        c->exclude[i] = corpus_excluded(c, first + i);
        if (c->tokens) c->tokens[i] = corpus_tokens(c, first + i);
    }
    const struct searcher_query query = {.n = n,
                                         .k = k,
                                         .vectors = c->config.external ? c->external.vectors : NULL,
                                         .device_vectors = c->config.external ? (struct mat){0} : queries,
                                         .tokens = c->tokens,
                                         .exclude = c->document.begin < c->document.end ? c->exclude : NULL};
    TRY(searcher_search(c->config.searcher, c->hits, &query));
    const float *rows = c->config.continuation > 0 ? corpus_queries(c, queries, n) : NULL;
    for (int64_t i = 0; i < n && rows; i++)
        TRY(corpus_continued(c, to.lists + i * to.stride + to.used[i], &to.used[i], c->hits + i * k,
                             rows + i * c->config.model->hidden, c->exclude[i], k));
    for (int64_t i = 0; i < n && !rows; i++)
        for (int64_t j = i * k; j < (i + 1) * k && c->hits[j].chunk >= 0; j++)
            to.lists[i * to.stride + to.used[i]++] = (struct neighbour_candidate){
                .score = c->hits[j].score, .source = NEIGHBOUR_CORPUS, .id = c->hits[j].chunk};
    return STATUS_OK;
}

enum status corpus_side_search(struct corpus_side *c, struct corpus_lists to, int group, int64_t first,
                               struct mat queries, int64_t n, int k) {
    assert(queries.type == DTYPE_F32 && queries.stride == queries.cols);
    TRY(corpus_find_document(c));
    if (c->config.external) memcpy(c->before, to.used, (size_t)n * sizeof *c->before);
    if (c->config.random)
        TRY(corpus_random(c, to, group, first, queries, n, k));
    else
        TRY(corpus_nearest(c, to, first, queries, n, k));
    return c->config.external ? corpus_external_score(c, to, c->before, queries, n) : STATUS_OK;
}
