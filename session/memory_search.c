/* memory_search.c -- see memory_search.h. */
#include "session/memory_search.h"
#include "base/memory.h"
#include "indexer/build/indexer.h"
#include "indexer/landmarks/state_landmarks.h"
#include "indexer/retrieve/candidate_order.h"
#include "session/corpus_search.h"
#include "session/text_query.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct memory_search {
    struct engine *engine;
    struct searcher *searcher, *own; /* own: opened by this file */
    struct state_landmarks *states;  /* of a Base LM, if the searcher ranks by landmarks */
    enum state_query query;          /* what their queries have */
    int32_t *ids;                    /* [n, chunk]: ids of the queries */
    size_t ids_capacity;
    float *idf; /* for orders; NULL until the first one */
};

/* ---- vectors ---- */

/* Copies the last chunk of ids of each text. A shorter text is followed by padding, like the last
 * chunk of a document. */
static enum status search_states(struct memory_search *s, float *out, const struct lexical_query *texts, int64_t n) {
    const int64_t chunk = s->engine->model.config.chunk;
    TRY(memory_grow(&s->ids, &s->ids_capacity, (size_t)(n * chunk)));
    for (int64_t i = 0; i < n; i++) {
        const int64_t used = texts[i].n < chunk ? texts[i].n : chunk;
        for (int64_t j = 0; j < chunk; j++)
            s->ids[i * chunk + j] = j < used ? texts[i].ids[texts[i].n - used + j] : -1;
    }
    TRY(state_landmarks_make(s->states, out, s->ids, n));
    for (int64_t i = 0; i < n; i++)
        state_landmarks_sketch(s->states, out + i * model_config_landmark_size(&s->engine->model.config), texts[i].ids,
                               texts[i].n, s->query);
    return STATUS_OK;
}

static enum status search_vectors(void *context, float *out, const struct lexical_query *texts, int64_t n) {
    struct memory_search *s = context;
    struct engine *e = s->engine;
    if (s->states) return search_states(s, out, texts, n);
    const struct text_query_model model = {e->device, e->decoder, &e->model.config, NULL};
    for (int64_t i = 0; i < n; i++)
        TRY(text_query(out + i * e->model.config.hidden, &model, texts[i].ids, texts[i].n));
    return STATUS_OK;
}

static void search_from_states(void *context, float *out, const struct state_text *text) {
    const struct memory_search *s = context;
    state_landmarks_of_text(s->states, out, text, s->query);
}

static enum status search_idf(void *context, const float **out) {
    struct memory_search *s = context;
    if (!s->idf) TRY(candidate_idf_make(&s->idf, s->engine->view));
    *out = s->idf;
    return STATUS_OK;
}

bool memory_search_reads_states(const struct engine *e, const struct memory_config *c, struct memory_finder finder) {
    return finder.from_states && c->key_layer == model_config_layers(&e->model.config);
}

/* ---- start and end ---- */

static enum status search_check_landmarks(const struct engine *e, const char *store) {
    const struct model_folder *model = &e->model;
    struct store_fingerprint wanted;
    char why[600];
    if (!model->config.base_lm && model->config.encoder_input != ENCODER_INPUT_TOKENS)
        return fail(STATUS_UNSUPPORTED,
                    "%s: is the decoder variant, which makes no landmarks of a store's chunks: let its token memory "
                    "search by words (lexical)",
                    model->path);
    TRY(indexer_fingerprint(&wanted, &model->config, model->params, model->tokenizer));
    enum status s = store_check_fingerprint(store, &e->info.fingerprint, model->path, &wanted);
    if (s != STATUS_MISMATCH) return s;
    snprintf(why, sizeof why, "%s", status_message());
    return fail(s,
                "%s: a token memory that searches by landmarks needs those of its own model: build the store with "
                "drt-index build --model %s, or search by words (lexical)",
                why, model->path);
}

static enum status search_open_parts(struct memory_search *s, const struct memory_search_config *c) {
    static const enum searcher_kind kinds[MEMORY_SEARCHERS] = {
        [MEMORY_LEXICAL] = SEARCHER_LEXICAL, [MEMORY_LANDMARK] = SEARCHER_AUTO, [MEMORY_HYBRID] = SEARCHER_HYBRID};
    struct engine *e = c->engine;
    const struct searcher_config config = {
        .kind = kinds[c->kind], .device = e->device, .view = e->view, .slices = e->slices};
    if (c->kind != MEMORY_LEXICAL) TRY(search_check_landmarks(e, c->store));
    if (e->slices && c->kind == MEMORY_LEXICAL && e->report)
        e->report("the token memory finds chunks by words, which this process does without the workers");
    if (!s->searcher) TRY(corpus_search_open(&s->own, &config, e->report));
    if (!s->searcher) s->searcher = s->own;
    s->query = c->kind == MEMORY_HYBRID ? STATE_QUERY_NO_SKETCH : STATE_QUERY_SKETCH;
    return c->kind != MEMORY_LEXICAL && e->model.config.base_lm
               ? state_landmarks_create(&s->states, e->device, e->decoder, &e->model.config, e->model.params)
               : STATUS_OK;
}

enum status memory_search_open(struct memory_search **out, const struct memory_search_config *config) {
    struct memory_search *s = NULL;
    TRY(memory_allocate_zero(&s, 1));
    s->engine = config->engine;
    s->searcher = config->searcher;
    enum status status = search_open_parts(s, config);
    if (status != STATUS_OK) {
        memory_search_close(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void memory_search_close(struct memory_search *s) {
    if (!s) return;
    searcher_close(s->own);
    state_landmarks_free(s->states);
    memory_free(s->ids);
    memory_free(s->idf);
    memory_free(s);
}

struct memory_finder memory_search_finder(struct memory_search *s) {
    if (!s) return (struct memory_finder){0};
    /* A landmark score is a product divided by sqrt(dim). */
    const float dim = (float)model_config_landmark_size(&s->engine->model.config);
    const float weight = s->states ? STATE_LANDMARKS_COSINE * sqrtf(dim) : 0;
    return (struct memory_finder){.searcher = s->searcher,
                                  .vectors = search_vectors,
                                  .from_states = s->states ? search_from_states : NULL,
                                  .idf = search_idf,
                                  .context = s,
                                  .landmark_weight = weight};
}

struct memory_source_config memory_search_source(const struct engine *e, const struct memory_config *c,
                                                 struct memory_finder finder) {
    return (struct memory_source_config){.device = e->device,
                                         .model = &e->model.config,
                                         .decoder = e->decoder,
                                         .view = e->view,
                                         .finder = finder,
                                         .k = c->k,
                                         .before = c->before,
                                         .after = c->after,
                                         .key_layer = c->key_layer,
                                         .rounded = e->rounded,
                                         .from = c->keys,
                                         .copies = e->device_keys,
                                         .order = &c->order,
                                         .weights = c->weights,
                                         .name = e->model.path};
}

struct searcher_description memory_search_describe(const struct memory_search *s, int k) {
    return s ? searcher_describe(s->searcher, k, 0) : (struct searcher_description){0};
}

enum memory_searcher memory_search_kind(const struct searcher *s) {
    if (searcher_tokens(s) == 0) return MEMORY_LANDMARK;
    return searcher_ranks_vectors(s) ? MEMORY_HYBRID : MEMORY_LEXICAL;
}
