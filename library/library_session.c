/* library_session.c -- running texts. */
#include "base/clock.h"
#include "base/memory.h"
#include "library/library_session_internal.h"
#include "session/memory_folder.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT_LAST = 64 };

/* ---- set-up ------------------------------------------------------------------------------------------------- */

static enum status library_session_continuation(const struct drt_session *s, const struct drt_session_config *c) {
    const struct model_config *model = &s->model->engine.model.config;
    if (c->continuation < 0 || c->continuation > CONTINUATION_MAX)
        return fail(STATUS_INVALID, "continuation %d: must be 0 to %d", c->continuation, CONTINUATION_MAX);
    if (c->overlap != 0 && (c->overlap < 0 || c->overlap >= model->chunk))
        return fail(STATUS_INVALID, "overlap %d: must be 0 to %d", c->overlap, model->chunk - 1);
    if (c->overlap > 0 && c->continuation == 0)
        return fail(STATUS_INVALID, "overlap %d: is of a continuation: set continuation", c->overlap);
    if (c->continuation > 0 && !c->corpus && !(c->self && c->overlap > 0))
        return fail(STATUS_INVALID, "continuation is of retrieval from a corpus: set corpus%s",
                    c->self ? ", or overlap" : "");
    if (c->query_tokens < 0 || c->query_tokens > SEARCHER_TOKENS)
        return fail(STATUS_INVALID, "query_tokens %d: must be 0 to %d", c->query_tokens, SEARCHER_TOKENS);
    if (c->query_tokens > 0 && (!c->corpus || !c->searcher || searcher_tokens(c->searcher->searcher) == 0))
        return fail(STATUS_INVALID,
                    "query_tokens %d: is of a search by words: set corpus, and a searcher of the kind "
                    "lexical or hybrid",
                    c->query_tokens);
    return STATUS_OK;
}

static enum status library_session_sources(const struct drt_session *s, const struct drt_session_config *c) {
    const char *path = s->model->engine.model.path;
    if ((c->self || c->corpus) && s->model->engine.model.config.base_lm)
        return fail(STATUS_UNSUPPORTED, "%s: is a Base LM, which has no GCA: set memory instead of self and corpus",
                    path);
    if ((unsigned)c->memory > DRT_MEMORY_BOTH) return fail(STATUS_INVALID, "memory %d: there is none", (int)c->memory);
    if (c->memory != DRT_MEMORY_NONE && (c->self || c->corpus))
        return fail(STATUS_INVALID, "a token memory is read without self and corpus");
    if ((unsigned)c->memory_keys > DRT_MEMORY_KEYS_ENCODED)
        return fail(STATUS_INVALID, "memory_keys %d: there is no such kind", (int)c->memory_keys);
    if (c->memory_past < 0 || c->memory_past > MEMORY_PAST_MAX)
        return fail(STATUS_INVALID, "memory_past %lld: must be 0 to %d", (long long)c->memory_past, MEMORY_PAST_MAX);
    bool found = c->memory == DRT_MEMORY_CORPUS || c->memory == DRT_MEMORY_BOTH;
    if (c->memory_k < 0 || c->memory_k > MEMORY_K_MAX)
        return fail(STATUS_INVALID, "memory_k %d: must be 0 to %d", c->memory_k, MEMORY_K_MAX);
    if (c->memory_every < 0 || c->memory_every > MEMORY_EVERY_MAX)
        return fail(STATUS_INVALID, "memory_every %d: must be 0 to %d", c->memory_every, MEMORY_EVERY_MAX);
    if ((c->memory_k > 0 || c->memory_every > 0) && !found)
        return fail(STATUS_INVALID, "memory_k and memory_every are of a memory of the corpus: set memory");
    if ((c->corpus || found) && !s->store) return fail(STATUS_INVALID, "retrieval from a corpus needs a store");
    if (c->searcher && !c->corpus && !found)
        return fail(STATUS_INVALID,
                    "a searcher is of corpus retrieval or a memory of the corpus: set corpus or memory");
    TRY(library_session_continuation(s, c));
    if (c->searcher && (c->searcher->store != s->store || c->searcher->model != s->model))
        return fail(STATUS_INVALID, "the searcher is of another store or model than the session");
    if (!c->corpus && !found) return STATUS_OK;
    return engine_check_store(&s->model->engine, s->store->path, &s->store->info, !c->corpus);
}

static enum status library_session_exclude(const struct drt_session *s, const struct drt_session_config *c) {
    if (!c->exclude || !s->store) return STATUS_OK;
    const int64_t documents = s->store->info.documents;
    if (c->exclude_document >= 0 && c->exclude_document < documents) return STATUS_OK;
    return fail(STATUS_NOT_FOUND, "exclude_document %lld: there is no such document, the store has %lld",
                (long long)c->exclude_document, (long long)documents);
}

static enum status library_session_numbers(const struct drt_session_config *c) {
    if (c->max_tokens < 0)
        return fail(STATUS_INVALID, "max_tokens %lld: must not be negative", (long long)c->max_tokens);
    if (c->skip < 0) return fail(STATUS_INVALID, "skip %lld: must not be negative", (long long)c->skip);
    if (c->top < 0 || c->top > TOP_MAX) return fail(STATUS_INVALID, "top %d: must be 0 to %d", c->top, TOP_MAX);
    if (c->top > 0 && c->no_logprob) return fail(STATUS_INVALID, "top %d: must be 0 with no_logprob", c->top);
    if (c->n_stops < 0 || (c->n_stops > 0 && !c->stops))
        return fail(STATUS_INVALID, "stops is NULL, and n_stops %d", c->n_stops);
    for (int i = 0; i < c->n_stops; i++)
        if (!c->stops[i] || !c->stops[i][0]) return fail(STATUS_INVALID, "stops[%d] is empty", i);
    return STATUS_OK;
}

_Static_assert((int)DRT_MEMORY_KEYS_STORED == (int)MEMORY_KEYS_STORED &&
                   (int)DRT_MEMORY_KEYS_DEVICE == (int)MEMORY_KEYS_DEVICE &&
                   (int)DRT_MEMORY_KEYS_ENCODED == (int)MEMORY_KEYS_ENCODED,
               "drt.h numbers the kinds as decoder/memory_config.h does");

static enum status library_session_memory(struct drt_session *s, const struct drt_session_config *c,
                                          struct memory_text_config *out) {
    const enum memory_kind kind = (enum memory_kind)(c->memory - DRT_MEMORY_OWN);
    const struct model_folder *model = &s->model->engine.model;
    enum status found = memory_folder_load(&s->memory_config, model, c->memory_config, memory_folder_small(&s->engine));
    if (found == STATUS_NOT_FOUND && !c->memory_config)
        return fail(STATUS_NOT_FOUND,
                    "%s/memory.json: the model has no configuration of a token memory: name one (memory_config), "
                    "which drt-eval fit-memory writes",
                    model->path);
    TRY(found);
    if (!s->memory_config.mixture[kind].given)
        return fail(STATUS_INVALID, "%s%s: has nothing fitted for \"%s\": fit again",
                    c->memory_config ? c->memory_config : model->path, c->memory_config ? "" : "/memory.json",
                    memory_kind_names[kind]);
    s->memory_config.keys = (enum memory_keys)c->memory_keys;
    if (c->memory_k) s->memory_config.k = c->memory_k;
    if (c->memory_every) s->memory_config.every = c->memory_every;
    if (c->lexical)
        return fail(STATUS_INVALID, "lexical %s: the lexical index is part of the store now: leave it NULL",
                    c->lexical);
    if (s->searcher) {
        const enum memory_searcher wanted = memory_search_kind(s->searcher->searcher);
        TRY(memory_searcher_agrees(c->memory_config ? c->memory_config : model->path, s->memory_config.searcher,
                                   wanted));
        s->memory_config.searcher = wanted;
    }
    const struct memory_search_config search = {.engine = &s->engine,
                                                .searcher = s->searcher ? s->searcher->searcher : NULL,
                                                .kind = s->memory_config.searcher,
                                                .store = s->store ? s->store->path : ""};
    if (kind != MEMORY_OWN_PAST) TRY(memory_search_open(&s->memory_search, &search));
    s->engine.searched_by = memory_search_describe(s->memory_search, s->memory_config.k);
    *out = (struct memory_text_config){.engine = &s->engine,
                                       .memory = &s->memory_config,
                                       .finder = memory_search_finder(s->memory_search),
                                       .kind = kind,
                                       .past = c->memory_past ? c->memory_past : MEMORY_PAST};
    return STATUS_OK;
}

static struct sampler_config library_session_sampler(const struct drt_session_config *c) {
    return (struct sampler_config){.temperature = c->temperature,
                                   .top_k = c->top_k,
                                   .top_p = c->top_p == 0 ? 1 : c->top_p,
                                   .min_p = c->min_p,
                                   .repeat_penalty = c->repeat_penalty,
                                   .repeat_last = c->repeat_last ? c->repeat_last : REPEAT_LAST,
                                   .seed = c->seed};
}

static enum status library_session_generation(struct drt_session *s, const struct drt_session_config *c) {
    struct memory_text_config memory;
    struct decoder_watch watch;
    if (!s->engine.of)
        engine_text_open(&s->engine, &s->model->engine, s->store ? s->store->view : NULL,
                         s->searcher ? s->searcher->searcher : NULL);
    s->memory = c->memory != DRT_MEMORY_NONE;
    s->self = c->self, s->corpus = c->corpus, s->no_logprob = c->no_logprob;
    s->continuation = c->continuation, s->overlap = c->overlap, s->query_tokens = c->query_tokens;
    if (s->memory) TRY(library_session_memory(s, c, &memory));
    if (c->self || c->corpus) {
        if (!s->provenance) TRY(library_provenance_create(&s->provenance, &s->engine.model.config));
        library_provenance_reset(s->provenance);
        watch = library_provenance_watch(s->provenance);
    }
    const struct generation_config config = {.engine = &s->engine,
                                             .retrieval = {.own_past = c->self,
                                                           .corpus = c->corpus,
                                                           .continuation = c->continuation,
                                                           .overlap = c->overlap,
                                                           .query_ids = c->query_tokens,
                                                           .exclude_window = -1},
                                             .exclude_document = c->exclude ? c->exclude_document : -1,
                                             .memory = s->memory ? &memory : NULL,
                                             .sampler = library_session_sampler(c),
                                             .stops = c->stops,
                                             .n_stops = c->n_stops,
                                             .max_tokens = c->max_tokens ? c->max_tokens : -1,
                                             .ignore_eos = c->ignore_eos,
                                             .logprobs = !c->no_logprob,
                                             .top = c->top,
                                             .skip = c->skip,
                                             .rewind = c->rewind,
                                             .progress = &s->progress,
                                             .watch = s->provenance ? &watch : NULL};
    enum status status =
        s->generation ? generation_renew(s->generation, &config) : generation_create(&s->generation, &config);
    s->ready = status == STATUS_OK;
    return status;
}

/* Call it with the session's locks. Frees what refers to the store and the searcher. */
static void library_session_rest(struct drt_session *s) {
    if (s->generation) generation_rest(s->generation);
    memory_search_close(s->memory_search);
    s->memory_search = NULL;
    engine_text_close(&s->engine, s->searcher ? s->searcher->searcher : NULL);
    library_provenance_free(s->provenance);
    s->provenance = NULL;
}

static void library_session_free(struct drt_session *s) {
    library_session_lock(s);
    generation_free(s->generation);
    s->generation = NULL;
    library_session_rest(s);
    library_session_unlock(s);
    library_searcher_release(s->searcher);
    library_store_release(s->store);
    library_model_release(s->model);
    pthread_mutex_destroy(&s->lock);
    memory_free(s);
}

static struct drt_store *library_session_store(const struct drt_session_config *c) {
    return c->searcher && !c->store ? c->searcher->store : c->store;
}

static enum status library_session_create(struct drt_session **out, struct drt_model *model,
                                          const struct drt_session_config *config) {
    struct drt_session_config c;
    struct drt_session *s = NULL;
    TRY(library_take(&c, sizeof c, config, "struct drt_session_config"));
    TRY(library_session_numbers(&c));
    TRY(memory_allocate_zero(&s, 1));
    pthread_mutex_init(&s->lock, NULL);
    s->model = library_model_use(model);
    s->store = library_store_use(library_session_store(&c));
    s->searcher = library_searcher_use(c.searcher);
    s->caller = c.progress;
    s->progress = library_progress(&s->caller);
    library_session_lock(s);
    enum status status = library_session_sources(s, &c);
    if (status == STATUS_OK) status = library_session_exclude(s, &c);
    if (status == STATUS_OK) status = library_session_generation(s, &c);
    library_session_unlock(s);
    if (status != STATUS_OK) {
        library_session_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

enum drt_status drt_session_open(struct drt_session **out, struct drt_model *model,
                                 const struct drt_session_config *config) {
    LIBRARY_NEEDS(out);
    LIBRARY_NEEDS(model);
    return (enum drt_status)library_session_create(out, model, config);
}

void drt_session_close(struct drt_session *session) {
    if (session) library_session_free(session);
}

/* Whether the session's retriever serves the config, too. */
static bool library_session_same(const struct drt_session *s, const struct drt_session_config *c) {
    return s->ready && !s->memory && c->memory == DRT_MEMORY_NONE && library_session_store(c) == s->store &&
           c->searcher == s->searcher && c->self == s->self && c->corpus == s->corpus &&
           c->continuation == s->continuation && c->overlap == s->overlap && c->query_tokens == s->query_tokens;
}

static enum status library_session_renew(struct drt_session *s, const struct drt_session_config *config) {
    struct drt_session_config c;
    TRY(library_take(&c, sizeof c, config, "struct drt_session_config"));
    TRY(library_session_numbers(&c));
    const bool same = library_session_same(s, &c);
    struct drt_store *store = s->store;
    struct drt_searcher *searcher = s->searcher;
    if (!same) {
        library_session_lock(s);
        library_session_rest(s);
        library_session_unlock(s);
        s->store = library_store_use(library_session_store(&c));
        s->searcher = library_searcher_use(c.searcher);
        library_searcher_release(searcher);
        library_store_release(store);
    }
    s->caller = c.progress;
    s->progress = library_progress(&s->caller);
    s->seconds = 0, s->ready = false;
    library_session_lock(s);
    enum status status = same ? STATUS_OK : library_session_sources(s, &c);
    if (status == STATUS_OK) status = library_session_exclude(s, &c);
    if (status == STATUS_OK) status = library_session_generation(s, &c);
    /* what other calls read, which then fail by the generation's state */
    if (!s->engine.of) engine_text_open(&s->engine, &s->model->engine, NULL, NULL);
    library_session_unlock(s);
    return status;
}

enum drt_status drt_session_renew(struct drt_session *session, const struct drt_session_config *config) {
    LIBRARY_NEEDS(session);
    return (enum drt_status)library_session_renew(session, config);
}

enum drt_status drt_session_reset(struct drt_session *session, uint64_t seed) {
    LIBRARY_NEEDS(session);
    LIBRARY_CHECK(session->ready, "%s: the last drt_session_renew failed: renew or close the session", __func__);
    library_session_lock(session);
    if (session->provenance) library_provenance_reset(session->provenance);
    enum status status = generation_reset(session->generation, seed);
    library_session_unlock(session);
    return (enum drt_status)status;
}

enum drt_status drt_session_rewind(struct drt_session *session, uint64_t seed) {
    LIBRARY_NEEDS(session);
    LIBRARY_CHECK(session->ready, "%s: the last drt_session_renew failed: renew or close the session", __func__);
    library_session_lock(session);
    enum status status = generation_rewind(session->generation, seed);
    library_session_unlock(session);
    return (enum drt_status)status;
}

int64_t drt_session_tokens(const struct drt_session *session) {
    return session ? generation_tokens(session->generation) : 0;
}

/* ---- feeding ------------------------------------------------------------------------------------------------ */

static size_t library_round_up(size_t bytes) {
    return (bytes + 15) / 16 * 16;
}

/* Makes one allocation for the struct and its arrays. */
static enum status library_scores_create(struct drt_scores **out, struct generation_scores *made,
                                         const struct drt_session *s, const int32_t *ids, int64_t n, int top) {
    const size_t head = library_round_up(sizeof **out), rows = library_round_up((size_t)n * sizeof(float)),
                 alternatives = (size_t)n * (size_t)top * sizeof(struct drt_alternative);
    void *memory = NULL;
    TRY(memory_allocate_bytes(&memory, head + 3 * rows + alternatives, 1));
    unsigned char *at = memory;
    int32_t *copy = (int32_t *)(void *)(at + head);
    float *logprob = (float *)(void *)(at + head + rows), *share = (float *)(void *)(at + head + 2 * rows);
    struct drt_scores *scores = memory;
    *scores = (struct drt_scores){.n = n,
                                  .first = generation_tokens(s->generation),
                                  .top = top,
                                  .ids = copy,
                                  .logprob = logprob,
                                  .alternatives = (struct drt_alternative *)(void *)(at + head + 3 * rows),
                                  .memory_share = s->memory ? share : NULL};
    if (n > 0) memcpy(copy, ids, (size_t)n * sizeof *copy);
    *made = (struct generation_scores){.logprob = logprob, .top = top, .memory_share = s->memory ? share : NULL};
    enum status status = top > 0 ? memory_allocate(&made->alternatives, (size_t)(n * top)) : STATUS_OK;
    if (status != STATUS_OK) {
        memory_free(memory);
        return status;
    }
    *out = scores;
    return STATUS_OK;
}

static void library_scores_fill(struct drt_scores *scores, const struct generation_scores *made) {
    struct drt_alternative *to = (struct drt_alternative *)(uintptr_t)scores->alternatives;
    for (int64_t i = 0; i < scores->n * scores->top; i++)
        to[i] = (struct drt_alternative){.id = made->alternatives[i].id, .logprob = made->alternatives[i].logprob};
    for (int64_t i = 0; i < scores->n; i++)
        scores->sum += isnan(scores->logprob[i]) ? 0 : (double)scores->logprob[i];
}

static enum status library_feed(struct drt_session *s, const int32_t *ids, int64_t n, struct drt_scores **scores,
                                int top) {
    struct generation_scores made;
    struct drt_scores *filled = NULL;
    if (!scores) return generation_feed(s->generation, ids, n, NULL);
    TRY(library_scores_create(&filled, &made, s, ids, n, top));
    enum status status = generation_feed(s->generation, ids, n, &made);
    if (status == STATUS_OK)
        library_scores_fill(filled, &made);
    else
        memory_free(filled);
    memory_free(made.alternatives);
    if (status == STATUS_OK) *scores = filled;
    return status;
}

static enum status library_check_top(int top, const char *function) {
    if (top >= 0 && top <= TOP_MAX) return STATUS_OK;
    return fail(STATUS_INVALID, "%s: top is %d, and must be 0 to %d", function, top, TOP_MAX);
}

enum drt_status drt_session_feed(struct drt_session *session, const char *text, size_t bytes,
                                 struct drt_scores **scores, int top) {
    const int32_t *ids = NULL;
    int64_t n = 0;
    LIBRARY_NEEDS(session);
    LIBRARY_CHECK(text || bytes == 0, "%s: text is NULL", __func__);
    LIBRARY_TRY(library_check_top(top, __func__));
    library_session_lock(session);
    const double start = clock_seconds();
    enum status status = generation_encode(session->generation, &ids, &n, text ? text : "", bytes);
    if (status == STATUS_OK) status = library_feed(session, ids, n, scores, top);
    session->seconds += clock_seconds() - start;
    library_session_unlock(session);
    return (enum drt_status)status;
}

enum drt_status drt_session_feed_ids(struct drt_session *session, const int32_t *ids, int64_t n,
                                     struct drt_scores **scores, int top) {
    LIBRARY_NEEDS(session);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK(ids || n == 0, "%s: ids is NULL", __func__);
    LIBRARY_TRY(library_check_top(top, __func__));
    library_session_lock(session);
    const double start = clock_seconds();
    enum status status = library_feed(session, ids, n, scores, top);
    session->seconds += clock_seconds() - start;
    library_session_unlock(session);
    return (enum drt_status)status;
}

enum drt_status drt_session_logprobs(struct drt_session *session, float *logprobs) {
    LIBRARY_NEEDS(session);
    LIBRARY_NEEDS(logprobs);
    library_session_lock(session);
    enum status status = generation_logprobs(session->generation, logprobs);
    library_session_unlock(session);
    return (enum drt_status)status;
}

/* ---- generating --------------------------------------------------------------------------------------------- */

static enum drt_end library_end(enum generation_end end) {
    static const enum drt_end ends[] = {[GENERATION_RUNNING] = DRT_END_NONE,
                                        [GENERATION_LENGTH] = DRT_END_LENGTH,
                                        [GENERATION_EOS] = DRT_END_EOS,
                                        [GENERATION_STOP] = DRT_END_STOP};
    return ends[end];
}

/* Gets the entries of the token memory that gave the largest parts of a token's probability. */
static enum status library_contributors(struct drt_session *s, struct drt_token *out) {
    struct memory_contributor from[MEMORY_CONTRIBUTORS_MAX];
    const struct model_config *model = &s->engine.model.config;
    const int64_t chunk = model->base_lm ? 64 : model->chunk;
    int n = 0;
    TRY(memory_text_contributors(generation_memory(s->generation), from, &n, MEMORY_CONTRIBUTORS_MAX, out->id));
    for (int i = 0; i < n; i++)
        s->contributors[i] = (struct drt_neighbour){.source = from[i].own_past ? DRT_SOURCE_SELF : DRT_SOURCE_CORPUS,
                                                    .group = -1,
                                                    .chunk = from[i].own_past ? from[i].offset / chunk : from[i].chunk,
                                                    .document = from[i].document,
                                                    .token_offset = from[i].offset,
                                                    .weight = (float)from[i].share};
    out->neighbours = s->contributors;
    out->n_neighbours = n;
    return STATUS_OK;
}

static enum status library_next(struct drt_session *s, struct drt_token *out) {
    struct generation_token token;
    if (progress_stop_requested(&s->progress)) return fail(STATUS_INTERRUPTED, "stopped while generating");
    TRY(generation_next(s->generation, &token));
    for (int i = 0; i < token.n_alternatives; i++)
        s->alternatives[i] =
            (struct drt_alternative){.id = token.alternatives[i].id, .logprob = token.alternatives[i].logprob};
    *out = (struct drt_token){.id = token.id,
                              .end = library_end(token.end),
                              .position = token.position,
                              .text = token.text,
                              .bytes = token.bytes,
                              .logprob = s->no_logprob ? NAN : token.logprob,
                              .memory_share = (float)generation_memory_share(s->generation, token.id),
                              .alternatives = s->alternatives,
                              .n_alternatives = token.n_alternatives};
    out->raw = tokenizer_bytes(s->engine.model.tokenizer, token.id, &out->raw_bytes);
    if (s->memory && token.end != GENERATION_EOS) TRY(library_contributors(s, out));
    return STATUS_OK;
}

/* Lists the chunks that the token could read. Their documents are read from the store. */
static enum status library_next_neighbours(struct drt_session *s, struct drt_token *out) {
    if (!s->provenance) return STATUS_OK;
    return library_provenance_list(s->provenance, &out->neighbours, &out->n_neighbours, out->position, s->engine.view);
}

/* If a session's next token is computed already, the call only samples it, without the model's lock. So other sessions
 * of the model can do the same meanwhile. */
static enum status library_next_locked(struct drt_session *s, struct drt_token *out) {
    library_lock(&s->lock);
    const bool shared = !generation_has_next(s->generation);
    if (shared) library_lock(&s->model->lock);
    if (shared && s->store) library_lock(&s->store->lock);
    const double start = clock_seconds();
    enum status status = library_next(s, out);
    if (!shared && s->store) library_lock(&s->store->lock);
    if (status == STATUS_OK) status = library_next_neighbours(s, out);
    s->seconds += clock_seconds() - start;
    if (s->store) library_unlock(&s->store->lock);
    if (shared) library_unlock(&s->model->lock);
    library_unlock(&s->lock);
    return status;
}

enum drt_status drt_session_next(struct drt_session *session, struct drt_token *out) {
    struct drt_token token;
    LIBRARY_NEEDS(session);
    LIBRARY_NEEDS(out);
    LIBRARY_TRY(library_fill(out, &(struct drt_token){0}, sizeof token, "struct drt_token"));
    LIBRARY_TRY(library_next_locked(session, &token));
    return (enum drt_status)library_fill(out, &token, sizeof token, "struct drt_token");
}

enum drt_status drt_session_generate(struct drt_session *session, drt_on_token *on_token, void *context,
                                     enum drt_end *end) {
    struct drt_token token;
    enum drt_end last = DRT_END_NONE;
    LIBRARY_NEEDS(session);
    LIBRARY_NEEDS(on_token);
    while (last == DRT_END_NONE) {
        LIBRARY_TRY(library_next_locked(session, &token));
        token.size = sizeof token;
        last = token.end;
        if (on_token(context, &token) && last == DRT_END_NONE) last = DRT_END_CALLBACK;
    }
    if (end) *end = last;
    return DRT_OK;
}

enum drt_status drt_session_stop(struct drt_session *session, const char **text, size_t *bytes) {
    const char *rest = NULL;
    size_t n = 0;
    LIBRARY_NEEDS(session);
    LIBRARY_CHECK(!text == !bytes, "%s: give both text and bytes, or neither", __func__);
    library_session_lock(session);
    enum status status = generation_stop(session->generation, &rest, &n);
    library_session_unlock(session);
    LIBRARY_TRY(status);
    if (text) *text = rest ? rest : "";
    if (bytes) *bytes = n;
    return DRT_OK;
}

enum drt_status drt_session_info(struct drt_session *session, struct drt_session_info *out) {
    LIBRARY_NEEDS(session);
    LIBRARY_NEEDS(out);
    library_session_lock(session);
    const struct retriever *retriever = generation_retriever(session->generation);
    const struct chunk_retriever_times times =
        retriever ? chunk_retriever_times(retriever) : (struct chunk_retriever_times){0};
    const int64_t tokens = generation_tokens(session->generation), chunk = session->engine.model.config.chunk;
    struct drt_session_info info = {.tokens = tokens,
                                    .chunks = session->engine.model.config.base_lm ? 0 : tokens / chunk,
                                    .queries = times.queries,
                                    .cache_hits = times.cache_hits,
                                    .cache_misses = times.cache_misses,
                                    .seconds = session->seconds,
                                    .search_seconds = times.search,
                                    .read_seconds = times.read,
                                    .encode_seconds = times.encode};
    snprintf(info.searched_by, sizeof info.searched_by, "%s", session->engine.searched_by.text);
    library_session_unlock(session);
    return (enum drt_status)library_fill(out, &info, sizeof info, "struct drt_session_info");
}

/* ---- log-probabilities of a text ---------------------------------------------------------------------------- */

enum drt_status drt_score_text(struct drt_model *model, const struct drt_session_config *config, const char *text,
                               size_t bytes, int top, struct drt_scores **scores) {
    struct drt_session *session = NULL;
    LIBRARY_NEEDS(scores);
    enum drt_status status = drt_session_open(&session, model, config);
    if (status == DRT_OK) status = drt_session_feed(session, text, bytes, scores, top);
    drt_session_close(session);
    return status;
}

enum drt_status drt_score_ids(struct drt_model *model, const struct drt_session_config *config, const int32_t *ids,
                              int64_t n, int top, struct drt_scores **scores) {
    struct drt_session *session = NULL;
    LIBRARY_NEEDS(scores);
    enum drt_status status = drt_session_open(&session, model, config);
    if (status == DRT_OK) status = drt_session_feed_ids(session, ids, n, scores, top);
    drt_session_close(session);
    return status;
}
