/* library_search.c -- searchers: queries of vectors, texts and ids. */
#include "base/memory.h"
#include "library/library_internal.h"
#include "session/corpus_search.h"
#include "session/text_query.h"
#include <math.h>
#include <string.h>

enum { K_DEFAULT = 10, K_MAX = 1 << 20 };

struct drt_searcher *library_searcher_use(struct drt_searcher *s) {
    if (s) atomic_fetch_add(&s->users, 1);
    return s;
}

void library_searcher_release(struct drt_searcher *s) {
    if (!s || atomic_fetch_sub(&s->users, 1) > 1) return;
    if (s->states) {
        library_lock(&s->model->lock);
        state_landmarks_free(s->states);
        library_unlock(&s->model->lock);
    }
    searcher_close(s->searcher);
    slices_close(s->slices);
    device_group_close(&s->group);
    device_close(s->device);
    library_store_release(s->store);
    library_model_release(s->model);
    pthread_mutex_destroy(&s->lock);
    memory_free(s);
}

/* Locks what a search uses: the model's device or this searcher's, and the view. */
static void library_searcher_lock(struct drt_searcher *s) {
    library_lock(s->model ? &s->model->lock : &s->lock);
    library_lock(&s->store->lock);
}

static void library_searcher_unlock(struct drt_searcher *s) {
    library_unlock(&s->store->lock);
    library_unlock(s->model ? &s->model->lock : &s->lock);
}

static enum status library_searcher_prepare(struct drt_searcher *s, const struct drt_searcher_config *c) {
    static const enum searcher_kind kinds[] = {SEARCHER_AUTO, SEARCHER_LEXICAL, SEARCHER_HYBRID};
    s->words = s->store->info.landmarks == STORE_LANDMARKS_NONE;
    if (s->model) TRY(engine_check_store(&s->model->engine, s->store->path, &s->store->info, s->words));
    if (s->words && !s->model)
        return fail(STATUS_UNSUPPORTED,
                    "%s: has no landmarks: a searcher by words needs a model, for the ids of its "
                    "texts",
                    s->store->path);
    if (!s->model) TRY(device_open(&s->device, "cpu", c->threads));
    const struct slices_remote workers = {c->workers, c->worker_key, c->worker_timeout};
    struct searcher_config config = {.kind = s->words && c->kind == DRT_SEARCH_AUTO ? SEARCHER_LEXICAL : kinds[c->kind],
                                     .device = s->model ? s->model->engine.device : s->device,
                                     .view = s->store->view,
                                     .exact = c->exact || s->store->info.segments == 0,
                                     .exact_fallback = c->exact_fallback,
                                     .nprobe = c->nprobe,
                                     .candidates = c->candidates,
                                     .landmark_weight = c->landmark_weight};
    library_searcher_lock(s);
    enum status status = c->workers ? slices_connect(&s->slices, s->store->view, &workers) : STATUS_OK;
    config.slices = s->slices;
    const struct device_choice devices = {.devices = c->devices};
    if (status == STATUS_OK) status = device_choose_group(&s->group, config.device, &devices);
    config.group = s->group.n > 1 ? &s->group : NULL;
    if (status == STATUS_OK) status = corpus_search_open(&s->searcher, &config, NULL);
    library_searcher_unlock(s);
    return status;
}

static enum status library_searcher_check(const struct drt_searcher_config *c, const struct drt_model *model) {
    if ((unsigned)c->kind > DRT_SEARCH_HYBRID)
        return fail(STATUS_INVALID, "kind %d of a searcher: there is none", (int)c->kind);
    if (c->nprobe < 0 || c->candidates < 0)
        return fail(STATUS_INVALID, "nprobe %d and candidates %d: must not be negative", c->nprobe, c->candidates);
    if (c->threads < 0 || c->threads > THREADS_MAX)
        return fail(STATUS_INVALID, "threads %d: must be 0 to %d", c->threads, THREADS_MAX);
    if (!(c->landmark_weight >= 0) || !isfinite(c->landmark_weight))
        return fail(STATUS_INVALID, "landmark_weight %g: must not be negative", (double)c->landmark_weight);
    if (c->worker_timeout < 0)
        return fail(STATUS_INVALID, "worker_timeout %d: must not be negative", c->worker_timeout);
    if (c->devices < -1) return fail(STATUS_INVALID, "devices %d: must be -1, 0 or more", c->devices);
    if (c->devices && (c->workers || !model))
        return fail(STATUS_INVALID, "devices %d: GPUs search where there is a model and there are no workers",
                    c->devices);
    if (c->workers && c->kind == DRT_SEARCH_LEXICAL)
        return fail(STATUS_INVALID, "a lexical search is made by this process: leave workers NULL");
    if (c->kind != DRT_SEARCH_AUTO && !model)
        return fail(STATUS_INVALID, "a lexical or hybrid search needs a model, for the ids of its texts");
    return STATUS_OK;
}

enum drt_status drt_searcher_open(struct drt_searcher **out, struct drt_store *store, struct drt_model *model,
                                  const struct drt_searcher_config *config) {
    struct drt_searcher_config c;
    struct drt_searcher *s = NULL;
    LIBRARY_NEEDS(out);
    LIBRARY_NEEDS(store);
    LIBRARY_TRY(library_take(&c, sizeof c, config, "struct drt_searcher_config"));
    LIBRARY_TRY(library_searcher_check(&c, model));
    LIBRARY_TRY(memory_allocate_zero(&s, 1));
    s->users = 1;
    s->store = library_store_use(store);
    s->model = library_model_use(model);
    pthread_mutex_init(&s->lock, NULL);
    enum status status = library_searcher_prepare(s, &c);
    if (status != STATUS_OK) {
        library_searcher_release(s);
        return (enum drt_status)status;
    }
    *out = s;
    return DRT_OK;
}

void drt_searcher_close(struct drt_searcher *searcher) {
    library_searcher_release(searcher);
}

enum drt_status drt_searcher_info(struct drt_searcher *searcher, struct drt_searcher_info *out) {
    LIBRARY_NEEDS(searcher);
    LIBRARY_NEEDS(out);
    library_searcher_lock(searcher);
    const struct searcher_description d = searcher_describe(searcher->searcher, K_DEFAULT, 0);
    const struct searcher_counts counts = searcher_counts(searcher->searcher);
    library_searcher_unlock(searcher);
    struct drt_searcher_info info = {.exact = d.exact,
                                     .visited = d.visited,
                                     .lists = d.lists,
                                     .device_bytes = d.device_bytes,
                                     .queries = counts.queries,
                                     .missing = counts.missing};
    snprintf(info.kind, sizeof info.kind, "%s", d.kind);
    snprintf(info.text, sizeof info.text, "%s", d.text);
    return (enum drt_status)library_fill(out, &info, sizeof info, "struct drt_searcher_info");
}

/* ---- searching ---------------------------------------------------------------------------------------------- */

/* Queries in the searcher's format. Vectors are borrowed or owned, everything else is owned. */
struct library_queries {
    int64_t n;
    int k, nprobe;
    const float *vectors;
    float *made;
    struct lexical_query *tokens;
    int32_t *tails; /* [n, SEARCHER_TOKENS] */
    struct store_range *exclude;
    struct store_hit *hits;
};

static void library_queries_free(struct library_queries *q) {
    memory_free(q->made);
    memory_free(q->tokens);
    memory_free(q->tails);
    memory_free(q->exclude);
    memory_free(q->hits);
}

static enum status library_queries_begin(struct library_queries *q, const struct drt_searcher *s, int64_t n,
                                         const struct drt_search *how) {
    struct drt_search h;
    *q = (struct library_queries){.n = n};
    TRY(library_take(&h, sizeof h, how, "struct drt_search"));
    if (h.k < 0 || h.k > K_MAX) return fail(STATUS_INVALID, "k %d: must be 0 to %d", h.k, K_MAX);
    if (h.nprobe < 0) return fail(STATUS_INVALID, "nprobe %d: must not be negative", h.nprobe);
    q->k = h.k ? h.k : K_DEFAULT;
    q->nprobe = h.nprobe;
    TRY(memory_allocate(&q->hits, (size_t)n * (size_t)q->k));
    if (!h.exclude) return STATUS_OK;
    TRY(memory_allocate(&q->exclude, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        const struct drt_range r = h.exclude[i];
        if (r.begin > r.end || (r.begin < r.end && (r.begin < 0 || r.end > s->store->info.chunks)))
            return fail(STATUS_INVALID, "exclude[%lld]: %lld to %lld is no range of the store's %lld chunks",
                        (long long)i, (long long)r.begin, (long long)r.end, (long long)s->store->info.chunks);
        q->exclude[i] = (struct store_range){r.begin, r.end};
    }
    return STATUS_OK;
}

static enum status library_queries_run(struct library_queries *q, struct drt_searcher *s, struct drt_hit *hits) {
    const struct searcher_query query = {.n = q->n,
                                         .k = q->k,
                                         .nprobe = q->nprobe,
                                         .vectors = q->vectors,
                                         .tokens = q->tokens,
                                         .exclude = q->exclude,
                                         .bm25 = s->words};
    library_searcher_lock(s);
    enum status status = searcher_search(s->searcher, q->hits, &query);
    library_searcher_unlock(s);
    for (int64_t i = 0; status == STATUS_OK && i < q->n * q->k; i++)
        hits[i] = (struct drt_hit){.chunk = q->hits[i].chunk, .score = q->hits[i].score};
    return status;
}

static enum status library_search_vectors(struct drt_searcher *s, struct drt_hit *hits, const float *vectors, int64_t n,
                                          const struct drt_search *how) {
    struct library_queries q;
    const int64_t dim = s->store->info.fingerprint.dim;
    if (searcher_tokens(s->searcher) > 0)
        return fail(STATUS_INVALID, "a lexical or hybrid search takes texts or ids, not vectors");
    for (int64_t i = 0; i < n * dim; i++)
        if (!(fabsf(vectors[i]) <= STORE_QUERY_MAX))
            return fail(STATUS_INVALID, "vector %lld has a component that is no finite number of at most %g",
                        (long long)(i / dim), (double)STORE_QUERY_MAX);
    enum status status = library_queries_begin(&q, s, n, how);
    q.vectors = vectors;
    if (status == STATUS_OK) status = library_queries_run(&q, s, hits);
    library_queries_free(&q);
    return status;
}

enum drt_status drt_search_vectors(struct drt_searcher *searcher, struct drt_hit *hits, const float *vectors, int64_t n,
                                   const struct drt_search *how) {
    LIBRARY_NEEDS(searcher);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK((hits && vectors) || n == 0, "%s: hits or vectors is NULL", __func__);
    if (n == 0) return DRT_OK;
    return (enum drt_status)library_search_vectors(searcher, hits, vectors, n, how);
}

/* Makes the query vector of a text. The model must be locked. */
static enum status library_query_vector(struct drt_searcher *s, float *out, const int32_t *ids, int64_t n) {
    const struct engine *e = &s->model->engine;
    const struct model_config *c = &e->model.config;
    if (c->base_lm && !s->states) TRY(state_landmarks_create(&s->states, e->device, e->decoder, c, e->model.params));
    const struct text_query_model model = {e->device, e->decoder, c, s->states};
    return text_query(out, &model, ids, n);
}

/* Adds a query: its vector, and its last ids if the searcher reads them. */
static enum status library_query_add(struct library_queries *q, struct drt_searcher *s, int64_t i, const int32_t *ids,
                                     int64_t n) {
    const struct engine *e = &s->model->engine;
    if (n == 0) return fail(STATUS_INVALID, "query %lld is empty", (long long)i);
    TRY(library_check_ids(ids, n, e->model.config.vocab_size, false));
    if (!s->words) {
        library_lock(&s->model->lock);
        enum status status =
            library_query_vector(s, q->made + i * model_config_landmark_size(&e->model.config), ids, n);
        library_unlock(&s->model->lock);
        TRY(status);
    }
    if (!q->tokens) return STATUS_OK;
    const int64_t tail = n < SEARCHER_TOKENS ? n : SEARCHER_TOKENS;
    int32_t *to = q->tails + i * SEARCHER_TOKENS;
    memcpy(to, ids + n - tail, (size_t)tail * sizeof *to);
    q->tokens[i] = (struct lexical_query){.ids = to, .n = (int)tail};
    return STATUS_OK;
}

static enum status library_queries_of_ids(struct library_queries *q, const struct drt_searcher *s, int64_t n,
                                          const struct drt_search *how) {
    TRY(library_queries_begin(q, s, n, how));
    if (!s->model) return fail(STATUS_INVALID, "this searcher has no model: it takes vectors only");
    TRY(memory_allocate(&q->made, (size_t)(n * model_config_landmark_size(&s->model->engine.model.config))));
    q->vectors = q->made;
    if (searcher_tokens(s->searcher) == 0) return STATUS_OK;
    TRY(memory_allocate(&q->tokens, (size_t)n));
    return memory_allocate(&q->tails, (size_t)n * SEARCHER_TOKENS);
}

static enum status library_search_texts(struct drt_searcher *s, struct drt_hit *hits, const char *const *texts,
                                        const size_t *bytes, int64_t n, const struct drt_search *how) {
    struct library_queries q;
    struct tokenizer_scratch *scratch = NULL;
    enum status status = library_queries_of_ids(&q, s, n, how);
    if (status == STATUS_OK) status = library_scratch_take(s->model->tokenizer, &scratch);
    for (int64_t i = 0; i < n && status == STATUS_OK; i++) {
        const int32_t *ids = NULL;
        size_t count = 0;
        if (!texts[i]) status = fail(STATUS_INVALID, "texts[%lld] is NULL", (long long)i);
        if (status == STATUS_OK)
            status = tokenizer_encode(s->model->tokenizer->tokenizer, scratch, texts[i],
                                      bytes ? bytes[i] : strlen(texts[i]), TOKENIZER_LITERAL, &ids, &count);
        if (status == STATUS_OK) status = library_query_add(&q, s, i, ids, (int64_t)count);
    }
    if (status == STATUS_OK) status = library_queries_run(&q, s, hits);
    if (s->model) library_scratch_give(s->model->tokenizer, scratch);
    library_queries_free(&q);
    return status;
}

enum drt_status drt_search_texts(struct drt_searcher *searcher, struct drt_hit *hits, const char *const *texts,
                                 const size_t *bytes, int64_t n, const struct drt_search *how) {
    LIBRARY_NEEDS(searcher);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK((hits && texts) || n == 0, "%s: hits or texts is NULL", __func__);
    if (n == 0) return DRT_OK;
    return (enum drt_status)library_search_texts(searcher, hits, texts, bytes, n, how);
}

static enum status library_search_ids(struct drt_searcher *s, struct drt_hit *hits, const int32_t *const *ids,
                                      const int64_t *n_ids, int64_t n, const struct drt_search *how) {
    struct library_queries q;
    enum status status = library_queries_of_ids(&q, s, n, how);
    for (int64_t i = 0; i < n && status == STATUS_OK; i++) {
        if (n_ids[i] < 0 || (!ids[i] && n_ids[i] > 0))
            status = fail(STATUS_INVALID, "ids[%lld]: NULL, or a negative number of ids", (long long)i);
        if (status == STATUS_OK) status = library_query_add(&q, s, i, ids[i], n_ids[i]);
    }
    if (status == STATUS_OK) status = library_queries_run(&q, s, hits);
    library_queries_free(&q);
    return status;
}

enum drt_status drt_search_ids(struct drt_searcher *searcher, struct drt_hit *hits, const int32_t *const *ids,
                               const int64_t *n_ids, int64_t n, const struct drt_search *how) {
    LIBRARY_NEEDS(searcher);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK((hits && ids && n_ids) || n == 0, "%s: hits, ids or n_ids is NULL", __func__);
    if (n == 0) return DRT_OK;
    return (enum drt_status)library_search_ids(searcher, hits, ids, n_ids, n, how);
}
