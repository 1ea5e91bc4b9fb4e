/* retriever.c -- finds candidates in the own past and in the corpus, selects the best k, and writes their K and V into
 * slots.
 *
 * The results of a call must stay valid until the second call after it (decoder/retriever.h). So each group uses two
 * sets of rows in turn, and the slots of a set stay pinned until the set is used again. */
#include "indexer/retrieve/retriever.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "encoder/chunk_cache.h"
#include "indexer/retrieve/retriever_internal.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_QUERIES = 16, DEFAULT_CACHE = 1024 };

/* One set of result rows [max_queries * k]. */
struct found {
    int32_t *slot;
    float *weight, *score;
    int64_t *id;
    int8_t *source;
    int16_t *offset;
    int64_t n;
};
struct group_results {
    struct found set[2];
    int next;
};

struct chunk_retriever {
    struct retriever base;
    struct chunk_retriever_config config;
    int k;
    struct own_past own_past;
    struct corpus_side corpus;
    struct passages passages;  /* with an overlap */
    struct chunk_cache *cache; /* NULL for the decoder variant */
    int32_t own_source;        /* source of this text's chunks in the cache: a new number for each text */
    bool encoding; /* whether the encoder has begun a chunk; `begun` is the chunk's pinned slot of the cache, or -1 */
    int32_t begun;
    struct gca_pool pool; /* decoder variant: slots of this retriever, with one region for each set of rows */
    struct group_results results[MODEL_GROUPS_MAX];
    struct chunk_key *keys; /* [max_queries * k] */
    struct neighbour_candidate *lists;
    size_t list_capacity;
    int64_t *used, *before; /* [max_queries] */
    struct chunk_retriever_times times;
};

static struct chunk_retriever *retriever_of(const struct retriever *r) {
    return (struct chunk_retriever *)r;
}

/* Waits for the chunk that the encoder has begun. After that its slot is like any other. */
static void retriever_finish(struct chunk_retriever *r) {
    if (!r->encoding) return;
    encoder_finish(r->config.encoder);
    if (r->begun >= 0) chunk_cache_unpin(r->cache, &r->begun, 1);
    r->begun = -1;
    r->encoding = false;
}

/* Begins to encode a chunk that ended during decoding. Its landmark is needed when the next chunk ends, so a GPU
 * encodes it in the time in which it would wait for the next id (retriever_idle). The chunk will probably be retrieved,
 * and its K and V take little time in addition to the landmark, so they are written into the cache at once. */
static enum status retriever_begin(struct chunk_retriever *r, int64_t chunk, const int32_t *ids, struct mat hidden) {
    struct own_past_target states = {0};
    r->encoding = true;
    const struct chunk_key key = {r->own_source, chunk * r->config.model->chunk};
    if (r->cache && chunk_cache_put(r->cache, &r->begun, key) == STATUS_OK) {
        struct gca_pool pool = chunk_cache_pool(r->cache);
        states = (struct own_past_target){pool.keys, pool.values, &r->begun};
    }
    return own_past_begin(&r->own_past, chunk, ids, hidden, states);
}

static enum status retriever_append(struct retriever *base, int64_t first, const int32_t *ids, struct mat hidden,
                                    int64_t n) {
    struct chunk_retriever *r = retriever_of(base);
    if (r->config.corpus) corpus_side_append(&r->corpus, first, ids, n);
    if (!r->config.own_past) return STATUS_OK;
    double start = clock_seconds();
    retriever_finish(r);
    if (n == 1 && !r->config.device->shares_memory)
        TRY(retriever_begin(r, first, ids, hidden));
    else
        TRY(own_past_append(&r->own_past, first, ids, hidden, n));
    r->times.encode += clock_seconds() - start;
    return STATUS_OK;
}

static void retriever_idle(struct retriever *base) {
    struct chunk_retriever *r = retriever_of(base);
    double start = clock_seconds();
    if (!r->encoding) return;
    if (!encoder_advance(r->config.encoder)) retriever_finish(r);
    r->times.idle += clock_seconds() - start;
}

static enum status retriever_ids(struct chunk_retriever *r, int32_t *ids, bool corpus, int64_t chunk, int offset) {
    struct store_chunk at;
    if (corpus) return store_view_ids(r->config.corpus, &at, ids, chunk, offset);
    own_past_ids(&r->own_past, ids, chunk, offset);
    return STATUS_OK;
}

/* Gets the ids of chunks that are not in the cache. */
static enum status retriever_tokens_of(void *context, int32_t *ids, const struct chunk_key *keys, int64_t n) {
    struct chunk_retriever *r = context;
    int chunk = r->config.model->chunk;
    for (int64_t i = 0; i < n; i++)
        TRY(retriever_ids(r, ids + i * chunk, keys[i].source == NEIGHBOUR_CORPUS, keys[i].id / chunk,
                          (int)(keys[i].id % chunk)));
    return STATUS_OK;
}

/* The key of a neighbour is the position of its first id in its source: chunk * ids of a chunk + offset. */
static enum status retriever_slots_from_cache(struct chunk_retriever *r, struct found *f, int64_t n) {
    for (int64_t i = 0; i < n * r->k; i++) {
        const bool corpus = f->source[i] == NEIGHBOUR_CORPUS;
        r->keys[i] = (struct chunk_key){.source = corpus ? NEIGHBOUR_CORPUS : r->own_source,
                                        .id = f->id[i] < 0 ? -1 : f->id[i] * r->config.model->chunk + f->offset[i]};
    }
    TRY(chunk_cache_get(r->cache, f->slot, r->keys, n * r->k, retriever_tokens_of, r));
    f->n = n; /* from here on the slots are pinned */
    return STATUS_OK;
}

/* Decoder variant: copies each retrieved chunk once into the region of this set of rows. */
static void retriever_slots_from_own(struct chunk_retriever *r, struct found *f, int region, int64_t n) {
    int64_t rows = r->own_past.slot_rows;
    int32_t base = (int32_t)(region * r->base.max_queries * r->k), used = base;
    for (int64_t i = 0; i < n * r->k; i++) {
        f->slot[i] = -1;
        if (f->id[i] < 0) continue;
        for (int64_t j = 0; j < i && f->slot[i] < 0; j++)
            if (f->id[j] == f->id[i]) f->slot[i] = f->slot[j];
        if (f->slot[i] >= 0) continue;
        f->slot[i] = used++;
        const struct own_past_states *from = &r->own_past.states[f->id[i] / OWN_PAST_STATES];
        int64_t to_row = f->slot[i] * rows, from_row = f->id[i] % OWN_PAST_STATES * rows;
        device_copy_rows(r->config.device, mat_rows(r->pool.keys, to_row, rows), mat_rows(from->keys, from_row, rows));
        device_copy_rows(r->config.device, mat_rows(r->pool.values, to_row, rows),
                         mat_rows(from->values, from_row, rows));
    }
    f->n = n;
}

static void retriever_release(struct chunk_retriever *r, struct found *f) {
    if (r->cache && f->n > 0) chunk_cache_unpin(r->cache, f->slot, f->n * r->k);
    f->n = 0;
}

/* Adds the continuations of the own past, whose candidates begin at entry before[i] of list i, and scores all passages.
 */
static enum status retriever_continue(struct chunk_retriever *r, const int64_t *before, int64_t stride, int64_t first,
                                      struct mat queries, int64_t n) {
    for (int64_t i = 0; i < n && r->config.own_past; i++) {
        int64_t own_past = r->used[i] - before[i];
        passages_of_own_past(r->lists + i * stride + before[i], &own_past, r->k, first + i, &r->config);
        r->used[i] = before[i] + own_past;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < r->used[i]; j++) {
            struct neighbour_candidate *one = &r->lists[i * stride + j];
            if (!isnan(one->score)) continue;
            TRY(retriever_ids(r, passages_add(&r->passages, one, i), one->source == NEIGHBOUR_CORPUS, one->id,
                              one->offset));
        }
    return passages_score(&r->passages, mat_rows(queries, 0, n));
}

static enum status retriever_search(struct chunk_retriever *r, struct found *f, int group, int64_t first,
                                    struct mat queries, int64_t n) {
    const int64_t most = r->config.overlap > 0 ? PASSAGES_PER_HIT * r->k : r->k; /* of the corpus */
    int64_t stride = most + (r->config.own_past ? max_i64(own_past_candidates_max(&r->own_past, r->k), most) : 0);
    TRY(memory_grow(&r->lists, &r->list_capacity, (size_t)(stride * r->base.max_queries)));
    memset(r->used, 0, (size_t)n * sizeof *r->used);
    if (r->config.own_past) TRY(own_past_search(&r->own_past, first, queries, r->k));
    struct corpus_lists lists = {.lists = r->lists, .used = r->used, .stride = stride};
    if (r->config.corpus) TRY(corpus_side_search(&r->corpus, lists, group, first, queries, n, r->k));
    memcpy(r->before, r->used, (size_t)n * sizeof *r->used);
    if (r->config.own_past) own_past_found(&r->own_past, r->lists, r->used, stride, first, n, r->k);
    if (r->config.overlap > 0) TRY(retriever_continue(r, r->before, stride, first, queries, n));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * r->k;
        struct neighbour_row row = {.id = f->id + at,
                                    .score = f->score + at,
                                    .weight = f->weight + at,
                                    .source = f->source + at,
                                    .offset = f->offset + at};
        neighbours_select(&row, r->k, r->lists + i * stride, r->used[i]);
    }
    return STATUS_OK;
}

static enum status retriever_retrieve(struct retriever *base, struct neighbours *out, int group, int64_t first,
                                      struct mat queries, int64_t n) {
    struct chunk_retriever *r = retriever_of(base);
    assert(group >= 0 && group < r->config.model->groups && n >= 1 && n <= base->max_queries);
    struct group_results *results = &r->results[group];
    int which = results->next;
    struct found *f = &results->set[which];
    retriever_release(r, f);
    double start = clock_seconds();
    TRY(retriever_search(r, f, group, first, queries, n));
    r->times.search += clock_seconds() - start;
    r->times.queries += n;
    if (r->cache)
        TRY(retriever_slots_from_cache(r, f, n));
    else
        retriever_slots_from_own(r, f, group * 2 + which, n);
    results->next = !which;
    *out = (struct neighbours){.pool = r->cache ? chunk_cache_pool(r->cache) : r->pool,
                               .n = n,
                               .k = r->k,
                               .slot = f->slot,
                               .weight = f->weight,
                               .score = f->score,
                               .id = f->id,
                               .source = f->source,
                               .offset = f->offset};
    return STATUS_OK;
}

static void retriever_destroy(struct retriever *base) {
    if (!base) return;
    struct chunk_retriever *r = retriever_of(base);
    retriever_finish(r); /* the encoder is borrowed, and must not write into this memory later */
    for (int g = 0; g < MODEL_GROUPS_MAX; g++)
        for (int i = 0; i < 2; i++) {
            struct found *f = &r->results[g].set[i];
            memory_free(f->slot);
            memory_free(f->weight);
            memory_free(f->score);
            memory_free(f->id);
            memory_free(f->source);
            memory_free(f->offset);
        }
    chunk_cache_free(r->cache);
    own_past_close(&r->own_past);
    corpus_side_close(&r->corpus);
    device_release(r->config.device, r->pool.keys.data);
    device_release(r->config.device, r->pool.values.data);
    memory_free(r->keys);
    memory_free(r->lists);
    memory_free(r->used);
    memory_free(r->before);
    passages_close(&r->passages);
    memory_free(r);
}

static enum status retriever_create_results(struct chunk_retriever *r) {
    size_t count = (size_t)r->base.max_queries * (size_t)r->k;
    for (int g = 0; g < r->config.model->groups; g++)
        for (int i = 0; i < 2; i++) {
            struct found *f = &r->results[g].set[i];
            TRY(memory_allocate(&f->slot, count));
            TRY(memory_allocate(&f->weight, count));
            TRY(memory_allocate(&f->score, count));
            TRY(memory_allocate(&f->id, count));
            TRY(memory_allocate(&f->source, count));
            TRY(memory_allocate(&f->offset, count));
        }
    TRY(memory_allocate(&r->keys, count));
    TRY(memory_allocate(&r->before, (size_t)r->base.max_queries));
    return memory_allocate(&r->used, (size_t)r->base.max_queries);
}

/* Allocates enough slots to pin all valid results at the same time. */
static enum status retriever_create_slots(struct chunk_retriever *r) {
    const struct model_config *model = r->config.model;
    int64_t needed = 2 * (int64_t)model->groups * r->base.max_queries * r->k, wanted = r->config.cache_chunks;
    if (model->encoder_input == ENCODER_INPUT_TOKENS) {
        if (wanted <= 0) wanted = DEFAULT_CACHE;
        if (!r->config.device->shares_memory) needed++; /* for the chunk of retriever_begin */
        return chunk_cache_create(&r->cache, r->config.device, model, r->config.encoder,
                                  wanted > needed ? wanted : needed);
    }
    int64_t rows = needed * r->own_past.slot_rows;
    struct mat empty = mat_dense(NULL, encoder_type(r->config.encoder), rows, model->hidden);
    size_t bytes = (size_t)(rows * model->hidden * dtype_bytes(empty.type));
    r->pool = (struct gca_pool){.keys = empty,
                                .values = empty,
                                .slot_rows = r->own_past.slot_rows,
                                .live_rows = model->chunk,
                                .off_by_one = model->softmax_off_by_one};
    TRY(device_allocate(r->config.device, &r->pool.keys.data, bytes));
    return device_allocate(r->config.device, &r->pool.values.data, bytes);
}

static enum status retriever_create_parts(struct chunk_retriever *r) {
    if (r->config.own_past) TRY(own_past_open(&r->own_past, &r->config, r->base.max_queries, r->k));
    if (r->config.corpus) TRY(corpus_side_open(&r->corpus, &r->config, r->base.max_queries, r->k));
    if (r->config.overlap > 0)
        TRY(passages_open(&r->passages, &r->config, 2 * PASSAGES_PER_HIT * r->base.max_queries * r->k));
    TRY(retriever_create_results(r));
    return retriever_create_slots(r);
}

static enum status retriever_check_config(const struct chunk_retriever_config *c, int k) {
    const struct model_config *model = c->model;
    if (model->base_lm || model->groups == 0)
        return fail(STATUS_UNSUPPORTED,
                    "retrieval: the model has no retrieval groups; use a DRT model or no retrieval");
    if (k < 1 || k > CHUNK_RETRIEVER_TOPK_MAX)
        return fail(STATUS_INVALID, "retrieval: %d neighbours; give 1 to %d", k, CHUNK_RETRIEVER_TOPK_MAX);
    if (!c->own_past && !c->corpus)
        return fail(STATUS_INVALID, "retrieval: neither own past nor corpus; choose one or both");
    if (c->overlap < 0 || c->overlap >= model->chunk || (c->overlap > 0 && c->continuation == 0))
        return fail(STATUS_INVALID,
                    "retrieval: an overlap of %d ids; give 0 to %d, and with an overlap a continuation of at least 1",
                    c->overlap, model->chunk - 1);
    if (c->overlap > 0 && model->encoder_input == ENCODER_INPUT_HIDDEN)
        return fail(STATUS_UNSUPPORTED,
                    "retrieval: this model encodes hidden states, which only whole chunks have; leave "
                    "out the overlap");
    assert(c->query_ids >= 0);
    assert(!c->corpus || c->random || c->searcher);
    if (c->random && !c->corpus) return fail(STATUS_INVALID, "random retrieval: needs a corpus");
    if (c->corpus && model->encoder_input == ENCODER_INPUT_HIDDEN)
        return fail(STATUS_UNSUPPORTED, "corpus retrieval: this model encodes hidden states, which depend on a chunk's "
                                        "context; use a model with encoder_input \"tokens\"");
    return STATUS_OK;
}

enum status chunk_retriever_create(struct retriever **out, const struct chunk_retriever_config *config) {
    int k = config->topk > 0 ? config->topk : config->model->topk;
    TRY(retriever_check_config(config, k));
    struct chunk_retriever *r;
    TRY(memory_allocate_zero(&r, 1));
    r->config = *config;
    r->k = k;
    r->begun = -1;
    r->base = (struct retriever){.append = retriever_append,
                                 .retrieve = retriever_retrieve,
                                 .idle = retriever_idle,
                                 .free = retriever_destroy,
                                 .max_queries = config->max_queries > 0 ? config->max_queries : DEFAULT_QUERIES};
    enum status status = retriever_create_parts(r);
    if (status != STATUS_OK) {
        retriever_destroy(&r->base);
        return status;
    }
    *out = &r->base;
    return STATUS_OK;
}

void chunk_retriever_reset(struct retriever *base, int64_t exclude_document, int64_t exclude_from) {
    struct chunk_retriever *r = retriever_of(base);
    retriever_finish(r);
    for (int g = 0; g < r->config.model->groups; g++)
        for (int i = 0; i < 2; i++)
            retriever_release(r, &r->results[g].set[i]);
    if (r->config.own_past) own_past_clear(&r->own_past);
    if (r->config.corpus) corpus_side_exclude(&r->corpus, exclude_document, exclude_from);
    r->own_source = r->own_source <= NEIGHBOUR_CORPUS ? NEIGHBOUR_CORPUS + 1 : r->own_source + 1;
}

struct chunk_retriever_times chunk_retriever_times(const struct retriever *base) {
    const struct chunk_retriever *r = retriever_of(base);
    struct chunk_retriever_times times = r->times;
    if (!r->cache) return times;
    struct chunk_cache_stats stats = chunk_cache_stats(r->cache);
    times.read += stats.read_seconds;
    times.encode += stats.encode_seconds;
    times.cache_hits = stats.hits;
    times.cache_misses = stats.misses;
    return times;
}

int64_t chunk_retriever_past_bytes(const struct retriever *base) {
    const struct chunk_retriever *r = retriever_of(base);
    return r->config.own_past ? own_past_bytes(&r->own_past) : 0;
}
