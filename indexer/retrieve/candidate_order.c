/* candidate_order.c -- see candidate_order.h. */
#include "indexer/retrieve/candidate_order.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "indexer/landmarks/word_counts.h"
#include <math.h>
#include <string.h>

enum { PER_THREAD = 32 }; /* candidates that are worth a thread */

struct candidate_order {
    struct store_view *view;
    struct threads *threads;
    struct order_weights order;
    int chunk, dim; /* ids of a chunk; numbers of a landmark, 0: none */
    int cosine_of;  /* numbers of a landmark that a cosine reads */
    const float *idf;
    struct candidate_query query;
    float *vector; /* [dim], of the query, 0 from cosine_of on */
    bool has_vector;
    /* of the hits that are being ordered */
    int64_t *chunks;
    int32_t *ids; /* [n, 2 * chunk] */
    float *features, *cosines;
    struct candidate *sums;
    struct store_hit *hits;
    size_t chunk_capacity, id_capacity, feature_capacity, cosine_capacity, sum_capacity, hit_capacity;
};

enum status candidate_idf_make(float **out, struct store_view *view) {
    int64_t chunks;
    return word_counts_idf(out, &chunks, view, CANDIDATE_SAMPLE, NULL);
}

/* ---- start and end ---- */

static enum status order_start(struct candidate_order *o) {
    struct store_info info;
    store_view_info(o->view, &info);
    o->chunk = info.fingerprint.chunk_tokens;
    o->dim = info.fingerprint.dim;
    o->query.vocab = info.fingerprint.vocab_size;
    TRY(memory_allocate_zero(&o->vector, (size_t)o->dim + 1));
    return memory_allocate_zero(&o->query.words, (size_t)o->query.vocab);
}

enum status candidate_order_create(struct candidate_order **out, struct store_view *view,
                                   const struct order_weights *order, const float *idf, int cosine_of,
                                   struct threads *threads) {
    struct candidate_order *o = NULL;
    TRY(memory_allocate_zero(&o, 1));
    o->view = view;
    o->threads = threads;
    o->order = *order;
    o->idf = idf;
    o->cosine_of = cosine_of;
    const enum status s = order_start(o);
    if (s == STATUS_OK)
        *out = o;
    else
        candidate_order_free(o);
    return s;
}

void candidate_order_free(struct candidate_order *o) {
    if (!o) return;
    void *memory[] = {o->query.words, o->vector, o->chunks, o->ids, o->features, o->cosines, o->sums, o->hits, o};
    for (size_t i = 0; i < ARRAY_LEN(memory); i++)
        memory_free(memory[i]);
}

struct candidate_terms candidate_order_terms(const struct candidate_order *o) {
    return (struct candidate_terms){
        .weights = o->order.weights, .idf = o->idf, .vocab = o->query.vocab, .landmark_by = sqrtf((float)o->dim)};
}

/* ---- a query ---- */

void candidate_order_query(struct candidate_order *o, const struct lexical_query *tokens, const float *vector) {
    candidate_query_set(&o->query, tokens->ids, tokens->n, o->idf);
    o->has_vector = vector != NULL;
    if (vector) memcpy(o->vector, vector, (size_t)min_i64(o->cosine_of, o->dim) * sizeof *vector);
}

/* Cosines of the chunks that were found, 0 for others. */
static enum status cosines_make(struct candidate_order *o, int n) {
    memset(o->cosines, 0, (size_t)n * sizeof *o->cosines);
    if (!o->has_vector) return STATUS_OK;
    TRY(store_view_scores(o->view, o->cosines, o->vector, o->chunks, n));
    for (int i = 0; i < n; i++)
        o->cosines[i] = candidate_cosine(o->cosines[i], sqrtf((float)o->dim));
    return STATUS_OK;
}

struct features_of {
    const struct candidate_order *o;
    float *features;
    const struct store_hit *hits;
};
static void features_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct features_of *c = context;
    const struct candidate_order *o = c->o;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *to = c->features + i * CANDIDATE_FEATURES;
        if (c->hits[i].chunk < 0) {
            memset(to, 0, CANDIDATE_FEATURES * sizeof *to);
            continue;
        }
        candidate_features(to, &o->query, o->ids + i * 2 * o->chunk, o->chunk, 2 * o->chunk);
        to[CANDIDATE_SCORE] = c->hits[i].score;
        to[CANDIDATE_COSINE] = o->cosines[i];
    }
}

enum status candidate_order_features(struct candidate_order *o, float *features, const struct store_hit *hits, int n) {
    const size_t ids = (size_t)n * 2 * (size_t)o->chunk;
    TRY(memory_grow(&o->chunks, &o->chunk_capacity, (size_t)n));
    TRY(memory_grow(&o->cosines, &o->cosine_capacity, (size_t)n));
    TRY(memory_grow(&o->ids, &o->id_capacity, ids));
    for (int i = 0; i < n; i++)
        o->chunks[i] = hits[i].chunk;
    TRY(store_view_passages(o->view, o->ids, 2 * o->chunk, o->chunks, n));
    TRY(cosines_make(o, n));
    struct features_of c = {o, features, hits};
    threads_for(o->threads, n, PER_THREAD, features_body, &c);
    return STATUS_OK;
}

/* ---- the order ---- */

enum status candidate_order_sort(struct candidate_order *o, struct store_hit *hits, int n) {
    while (n > 0 && hits[n - 1].chunk < 0)
        n--;
    if (n <= 0) return STATUS_OK;
    TRY(memory_grow(&o->features, &o->feature_capacity, (size_t)n * CANDIDATE_FEATURES));
    TRY(memory_grow(&o->sums, &o->sum_capacity, (size_t)n));
    TRY(memory_grow(&o->hits, &o->hit_capacity, (size_t)n));
    TRY(candidate_order_features(o, o->features, hits, n));
    for (int i = 0; i < n; i++)
        o->sums[i] = (struct candidate){candidate_sum(o->order.weights, o->features + i * CANDIDATE_FEATURES), i};
    candidates_sort(o->sums, n);
    memcpy(o->hits, hits, (size_t)n * sizeof *hits);
    for (int i = 0; i < n; i++)
        hits[i] = o->hits[o->sums[i].at];
    return STATUS_OK;
}
