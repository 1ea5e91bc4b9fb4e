/* memory_source_search.c -- which chunks of the store a text reads: those that a search finds, in its order or in a
 * trained one, or random ones. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "base/rng.h"
#include "indexer/retrieve/memory_source_internal.h"
#include "indexer/retrieve/retriever.h"
#include "indexer/search/searcher_internal.h"
#include "kernels/memory/next_token.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum status memory_source_document(struct memory_source *m, struct store_range *out, int64_t document) {
    *out = (struct store_range){0};
    if (document < 0) return STATUS_OK;
    struct store_document d;
    TRY(store_view_document(m->config.view, &d, document));
    *out = (struct store_range){.begin = d.first_chunk, .end = d.first_chunk + d.chunks};
    return STATUS_OK;
}

int64_t memory_source_query(const struct memory_source *m, int64_t at) {
    return min_i64(at, m->config.look_back);
}

/* Sets the vectors of m->queries [n], if the searcher does not rank by words only. They are made unless they are given.
 */
static enum status source_vectors(struct memory_source *m, struct searcher_query *q, struct mat given, int64_t n) {
    const struct memory_finder *f = &m->config.finder;
    q->device_vectors = given;
    if (given.data || !searcher_ranks_vectors(f->searcher)) return STATUS_OK;
    TRY(memory_grow(&m->vectors, &m->vectors_capacity, (size_t)(n * m->dim)));
    q->vectors = m->vectors;
    return f->vectors(f->context, m->vectors, m->queries, n);
}

/* A searcher excludes one range. If the query has two that do not touch, the searcher gets the last one and returns
 * more hits, from which those in the first range are removed. */
struct source_scope {
    struct store_range out, drop;
    int k; /* number of hits to search for */
};
static struct source_scope source_scope(const struct memory_source *m, struct memory_scope scope) {
    struct store_range out = scope.exclude;
    if (out.begin >= out.end) out = (struct store_range){m->chunks, m->chunks};
    if (scope.end <= 0 || scope.end >= m->chunks) return (struct source_scope){out, {0}, m->found_k};
    const struct store_range rest = {scope.end, m->chunks};
    if (out.end < rest.begin) return (struct source_scope){rest, out, m->found_k + (int)(out.end - out.begin)};
    return (struct source_scope){{min_i64(out.begin, rest.begin), rest.end}, {0}, m->found_k};
}

/* Takes the best k hits of each search. */
static void source_keep(struct memory_source *m, int64_t *chunks, float *scores, int64_t n,
                        const struct source_scope *scope) {
    const int k = m->config.k;
    for (int64_t i = 0; i < n; i++) {
        int kept = 0;
        for (int j = 0; j < scope->k && kept < k; j++) {
            const struct store_hit hit = m->hits[i * scope->k + j];
            if (hit.chunk < 0 || (hit.chunk >= scope->drop.begin && hit.chunk < scope->drop.end)) continue;
            if (scores) scores[i * k + kept] = hit.score;
            chunks[i * k + kept++] = hit.chunk;
        }
        for (; kept < k; kept++) {
            if (scores) scores[i * k + kept] = 0;
            chunks[i * k + kept] = -1;
        }
    }
    m->stats.found += n;
}

/* The vectors of a search in memory of this process, for its order; NULL: it ranks by words alone. */
static enum status source_order_vectors(struct memory_source *m, const float **out, const struct searcher_query *q) {
    struct searcher *searcher = m->config.finder.searcher;
    *out = NULL;
    return searcher_ranks_vectors(searcher) ? searcher_vectors(searcher, out, q) : STATUS_OK;
}

/* A search for m->queries [n], without vectors. */
static struct searcher_query source_query(const struct memory_source *m, int64_t n, int k) {
    return (struct searcher_query){
        .n = n, .k = k, .tokens = m->queries, .bm25 = m->lexical, .landmark_weight = m->config.finder.landmark_weight};
}

/* Searches for m->queries [n]: m->hits [n, scope->k], as found. *q: the search. */
static enum status source_hits(struct memory_source *m, struct searcher_query *q, struct mat vectors, int64_t n,
                               const struct source_scope *scope) {
    TRY(memory_grow(&m->hits, &m->hits_capacity, (size_t)(n * scope->k)));
    TRY(memory_grow(&m->exclude, &m->exclude_capacity, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        m->exclude[i] = scope->out;
    *q = source_query(m, n, scope->k);
    if (scope->out.begin < scope->out.end) q->exclude = m->exclude;
    TRY(source_vectors(m, q, vectors, n));
    return searcher_search(m->config.finder.searcher, m->hits, q);
}

static enum status source_search(struct memory_source *m, int64_t *chunks, float *scores, struct mat vectors, int64_t n,
                                 struct memory_scope wanted) {
    const struct source_scope scope = source_scope(m, wanted);
    struct searcher_query q;
    TRY(source_hits(m, &q, vectors, n, &scope));
    const float *of = NULL;
    if (m->order) TRY(source_order_vectors(m, &of, &q));
    for (int64_t i = 0; m->order && i < n; i++) {
        candidate_order_query(m->order, m->queries + i, of ? of + i * m->dim : NULL);
        TRY(candidate_order_sort(m->order, m->hits + i * q.k, q.k));
    }
    source_keep(m, chunks, scores, n, &scope);
    return STATUS_OK;
}

/* Sets m->queries [n] to the texts that end before ids[at[i]]. */
static enum status source_texts(struct memory_source *m, const int32_t *ids, const int64_t *at, int64_t n) {
    assert(m->config.finder.searcher);
    TRY(memory_grow(&m->queries, &m->queries_capacity, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        int64_t length = memory_source_query(m, at[i]);
        m->queries[i] = (struct lexical_query){.ids = ids + at[i] - length, .n = (int)length};
    }
    return STATUS_OK;
}

enum status memory_source_find(struct memory_source *m, int64_t *chunks, float *scores, const int32_t *ids,
                               const int64_t *at, struct mat vectors, int64_t n, struct memory_scope scope) {
    double start = clock_seconds();
    TRY(source_texts(m, ids, at, n));
    TRY(source_search(m, chunks, scores, vectors, n, scope));
    m->stats.find_seconds += clock_seconds() - start;
    return STATUS_OK;
}

int memory_source_candidates(const struct memory_source *m) {
    return m->order ? m->found_k : 0;
}

enum status memory_source_find_candidates(struct memory_source *m, struct store_hit *hits, float *features,
                                          const int32_t *ids, int64_t at, struct mat vector, struct store_range out) {
    const struct source_scope scope = source_scope(m, (struct memory_scope){.exclude = out});
    struct searcher_query q;
    const float *of;
    assert(m->order);
    TRY(source_texts(m, ids, &at, 1));
    TRY(source_hits(m, &q, vector, 1, &scope));
    TRY(source_order_vectors(m, &of, &q));
    candidate_order_query(m->order, m->queries, of);
    memcpy(hits, m->hits, (size_t)m->found_k * sizeof *hits);
    return candidate_order_features(m->order, features, hits, m->found_k);
}

enum status memory_source_words(struct memory_source *m, struct searcher_query *out, const int32_t *ids, int64_t at) {
    TRY(source_texts(m, ids, &at, 1));
    *out = source_query(m, 1, m->found_k);
    return STATUS_OK;
}

enum status memory_source_queue(struct memory_source *m, bool *queued, const int32_t *ids, int64_t at) {
    const double start = clock_seconds();
    struct searcher_query q;
    *queued = false;
    if (!m->lexical) return STATUS_OK;
    TRY(memory_source_words(m, &q, ids, at));
    TRY(searcher_queue(m->config.finder.searcher, queued, &q));
    if (*queued && m->order) candidate_order_query(m->order, m->queries, NULL);
    m->stats.find_seconds += clock_seconds() - start;
    return STATUS_OK;
}

enum status memory_source_collect(struct memory_source *m, int64_t *chunks, float *scores) {
    const double start = clock_seconds();
    const struct source_scope all = {.k = m->found_k};
    TRY(memory_grow(&m->hits, &m->hits_capacity, (size_t)all.k));
    TRY(searcher_collect(m->config.finder.searcher, m->hits));
    if (m->order) TRY(candidate_order_sort(m->order, m->hits, all.k));
    source_keep(m, chunks, scores, 1, &all);
    m->stats.find_seconds += clock_seconds() - start;
    return STATUS_OK;
}

enum status memory_source_prepare(struct memory_source *m, const int32_t *ids, int64_t at) {
    struct searcher_query q;
    if (!m->lexical) return STATUS_OK;
    TRY(memory_source_words(m, &q, ids, at));
    searcher_prepare(m->config.finder.searcher, &q);
    return STATUS_OK;
}

enum status memory_source_find_ahead(struct memory_source *m, int64_t *chunks, float *scores, const int32_t *ids,
                                     int64_t length, const int64_t *at, int64_t n, struct memory_scope scope) {
    assert(m->config.finder.searcher);
    TRY(memory_grow(&m->queries, &m->queries_capacity, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        int64_t ahead = min_i64(length - at[i], m->config.model->chunk);
        m->queries[i] = (struct lexical_query){.ids = ids + at[i], .n = (int)max_i64(ahead, 0)};
    }
    return source_search(m, chunks, scores, (struct mat){0}, n, scope);
}

enum status memory_source_score(struct memory_source *m, float *scores, const int64_t *chunks, const int32_t *ids,
                                const int64_t *at, struct mat vectors, int64_t n) {
    const struct lexical_search how = {.pair_weight = LEXICAL_PAIR_WEIGHT};
    const int64_t k = m->config.k;
    const float *of = NULL; /* the vectors, in memory of this process */
    TRY(source_texts(m, ids, at, n));
    if (!m->lexical) {
        struct searcher_query q = {.n = n};
        TRY(source_vectors(m, &q, vectors, n));
        TRY(searcher_vectors(m->config.finder.searcher, &of, &q));
    }
    for (int64_t i = 0; i < n; i++) {
        float *row = scores + i * k;
        if (m->lexical)
            TRY(lexical_score(m->lexical, row, chunks + i * k, k, m->queries + i, &how));
        else
            TRY(store_view_scores(m->config.view, row, of + i * m->dim, chunks + i * k, k));
        for (int64_t j = 0; j < k; j++)
            if (!isfinite(row[j])) row[j] = 0;
    }
    return STATUS_OK;
}

struct memory_marks memory_source_marks(const struct memory_source *m, const int64_t *chunks, const float *scores,
                                        int64_t query_tokens) {
    const float tokens = m->lexical ? (float)max_i64(query_tokens, 1) : 1;
    return memory_marks_of(chunks, scores, m->config.k, tokens);
}

enum status memory_source_draw(struct memory_source *m, int64_t *chunks, const int64_t *at, int64_t n,
                               struct store_range exclude, uint64_t seed) {
    const struct store_dropped dropped = store_view_dropped(m->config.view);
    const int64_t existing = store_dropped_rank(dropped, m->chunks), k = m->config.k;
    for (int64_t i = 0; i < n; i++) {
        struct rng rng = rng_make(seed, (uint64_t)at[i]);
        int64_t *row = chunks + i * k;
        for (int64_t j = random_chunks(row, &rng, dropped, existing, exclude, k); j < k; j++)
            row[j] = -1;
    }
    return STATUS_OK;
}
