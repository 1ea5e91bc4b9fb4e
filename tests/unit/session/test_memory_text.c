/* test_memory_text.c -- a running text with a token memory: fed id by id it gives what it gives in one call, for both
 * memories, also where keys are projected states; a projection that changes nothing gives what the states give. In a
 * batch of texts each mixture has the bits of the text alone. Queries are made of the states of the last ids, however
 * the text is divided, also after a rewind. */
#include "indexer/landmarks/state_landmarks.h"
#include "session/memory_search.h"
#include "session/memory_text.h"
#include "tests/unit/session/memory_world_fixture.h"
#include "tools/memory/memory_window.h"

enum { READ = 150, K = 3, TAU = 4 };

/* A world of a Base LM whose layer 2 has keys of `size` numbers; 0: its states. same: the projection is the identity.
 */
static void open_projected(struct world *w, const char *name, int size, bool same) {
    char command[2400], path[700];
    struct params *params;
    open_world(w, name, true, STORE_LEXICAL_ON);
    if (size == 0) return;
    engine_close(&w->engine);
    snprintf(command, sizeof command,
             "sed -i 's/\"hidden_size\"/\"memory_layer\": 2, \"memory_size\": %d, &/' '%s/config.json'", size,
             w->model);
    CHECK_EQ(system(command), 0);
    struct model_config config;
    CHECK_OK(model_config_load(&config, w->model));
    CHECK_OK(params_init(&params, &config, 3));
    model_fixture_enlarge(params, config.vocab_size, 20);
    for (int i = 0; i < params_count(params); i++) {
        const struct param *p = params_at(params, i);
        for (int64_t j = 0; same && strcmp(p->name, "memory.key_proj.weight") == 0 && j < p->rows * p->cols; j++)
            ((float *)p->data)[j] = j / p->cols == j % p->cols;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", w->model);
    CHECK_OK(params_save(params, path, SAFETENSORS_F32, "{\"format\":\"pt\"}"));
    params_free(params);
    open_engine(w, w->store);
}

/* log p after the first READ ids [VOCAB], in calls of `step` ids. mixes: each call mixes, not only the last one, before
 * which nothing is searched. */
static void read_text(float log_p[VOCAB], struct world *w, enum memory_kind kind, int step, bool mixes) {
    struct memory_text *t;
    struct memory_search *search;
    struct decoder_state *state;
    struct memory_config memory = {.key_layer = 2, .k = K, .every = 1000, .after = 1};
    memory.mixture[kind] = (struct memory_mixture){true, {TAU, TAU}, memory_gate_fixed(kind, 0.5)};
    CHECK_OK(memory_search_open(
        &search, &(struct memory_search_config){.engine = &w->engine, .kind = MEMORY_LEXICAL, .store = w->store}));
    const struct memory_text_config config = {
        .engine = &w->engine, .memory = &memory, .finder = memory_search_finder(search), .kind = kind, .past = 100};
    CHECK_OK(memory_text_create(&t, &config));
    CHECK_OK(decoder_state_create(&state, w->engine.decoder, NULL));
    for (int at = 0, n; at < READ; at += n) {
        n = READ - at < step ? READ - at : step;
        CHECK_OK(memory_text_feed(t, state, mixes || at + n == READ ? log_p : NULL, w->text + at, n));
    }
    double sum = 0;
    for (int v = 0; v < VOCAB; v++)
        sum += exp((double)log_p[v]);
    CHECK(fabs(sum - 1) <= 1e-4);
    memory_text_free(t);
    decoder_state_free(state);
    memory_search_close(search);
}

/* ---- batches ---- */

enum { TEXTS = 4, STEPS = 70 };
struct batch_text {
    struct memory_text *memory; /* NULL: a text without one */
    struct decoder_state *state;
    int at; /* ids that were fed */
    float log_p[STEPS][VOCAB];
    double share[STEPS];
};

static void open_texts(struct batch_text *texts, struct world *w, struct memory_search *search,
                       const struct memory_config *memory) {
    for (int i = 0; i < TEXTS; i++) {
        struct batch_text *x = &texts[i];
        const struct memory_text_config config = {.engine = &w->engine,
                                                  .memory = memory,
                                                  .finder = memory_search_finder(search),
                                                  .kind = (enum memory_kind)i,
                                                  .past = 20 + i};
        *x = (struct batch_text){.at = 5 + 40 * i};
        CHECK_OK(decoder_state_create(&x->state, w->engine.decoder, NULL));
        if (i < MEMORY_KINDS) CHECK_OK(memory_text_create(&x->memory, &config));
        if (x->memory)
            CHECK_OK(memory_text_feed(x->memory, x->state, NULL, w->text + i, x->at));
        else
            CHECK_OK(decoder_forward(x->state, &(struct decoder_output){0}, w->text + i, x->at));
    }
}

static void step_alone(struct batch_text *x, struct world *w, int number, int step) {
    const int32_t *id = w->text + number + x->at + step;
    if (x->memory)
        CHECK_OK(memory_text_feed(x->memory, x->state, x->log_p[step], id, 1));
    else
        CHECK_OK(decoder_forward(x->state, &(struct decoder_output){.logits = x->log_p[step]}, id, 1));
}

static void step_together(struct batch_text *texts, struct world *w, int step) {
    struct decoder_state *states[TEXTS];
    struct decoder_batch_keys keys[TEXTS] = {0};
    float *logits[TEXTS];
    int32_t ids[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        struct batch_text *x = &texts[i];
        states[i] = x->state, ids[i] = w->text[i + x->at + step], logits[i] = x->log_p[step];
        CHECK(decoder_batch_takes(x->state));
        if (!x->memory) continue;
        for (int again = 0; again < 2; again++) /* changes nothing: after a failed pass it is called again */
            CHECK_OK(memory_text_begin(x->memory, &keys[i], &logits[i], again ? ids[i] : 0));
    }
    CHECK_OK(decoder_batch_forward_keys(states, logits, ids, keys, TEXTS));
    for (int i = 0; i < TEXTS; i++)
        if (texts[i].memory) CHECK_OK(memory_text_end(texts[i].memory, texts[i].state, texts[i].log_p[step]));
}

static void close_texts(struct batch_text *texts) {
    for (int i = 0; i < TEXTS; i++) {
        memory_text_free(texts[i].memory);
        decoder_state_free(texts[i].state);
    }
}

static void check_batches(struct world *w) {
    static struct batch_text alone[TEXTS], together[TEXTS];
    struct memory_search *search;
    struct memory_config memory = {.key_layer = 2, .k = K, .every = 8, .after = 1};
    for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++)
        memory.mixture[kind] = (struct memory_mixture){true, {TAU, TAU}, memory_gate_fixed(kind, 0.5)};
    CHECK_OK(memory_search_open(
        &search, &(struct memory_search_config){.engine = &w->engine, .kind = MEMORY_LEXICAL, .store = w->store}));
    open_texts(alone, w, search, &memory);
    open_texts(together, w, search, &memory);
    for (int step = 0; step < STEPS; step++) {
        step_together(together, w, step);
        for (int i = 0; i < TEXTS; i++) {
            struct batch_text *a = &alone[i], *b = &together[i];
            step_alone(a, w, i, step);
            CHECK(memcmp(a->log_p[step], b->log_p[step], sizeof a->log_p[step]) == 0);
            if (!a->memory) continue;
            const int32_t id = w->text[i + a->at + step + 1];
            const double share = memory_text_share(a->memory, id);
            CHECK(share == memory_text_share(b->memory, id));
            a->share[step] = share;
        }
    }
    for (int i = 0; i < MEMORY_KINDS; i++) {
        double sum = 0;
        for (int step = 0; step < STEPS; step++)
            sum += alone[i].share[step];
        CHECK(sum > 0);
        CHECK(memory_text_times(alone[i].memory).queries == memory_text_times(together[i].memory).queries);
    }
    close_texts(alone);
    close_texts(together);
    memory_search_close(search);
}

/* ---- queries of states ---- */

enum { EVERY = 20, SEARCHES = (READ + 30) / EVERY + 2 };
/* Keeps the states that queries are made of. */
struct recorder {
    struct memory_finder finder;
    struct mat states[SEARCHES];
    float rows[SEARCHES][MEMORY_STATES * D];
    int n;
};
static void record_states(void *context, float *out, const struct state_text *text) {
    struct recorder *r = context;
    const struct mat ring = text->ring;
    const int64_t first = text->first, n = text->states;
    CHECK(r->n < SEARCHES && n <= MEMORY_STATES && ring.type == DTYPE_F32);
    for (int64_t i = 0; i < n; i++)
        memcpy(r->rows[r->n] + i * ring.cols, mat_row(ring, (first + i) % ring.rows),
               (size_t)ring.cols * sizeof(float));
    r->states[r->n] = mat_f32(r->rows[r->n], n, ring.cols);
    r->n++;
    r->finder.from_states(r->finder.context, out, text);
}
static enum status record_vectors(void *context, float *out, const struct lexical_query *texts, int64_t n) {
    (void)context, (void)out, (void)texts, (void)n;
    return fail(STATUS_INVALID, "a query that is not made of states");
}

static struct memory_finder recording(struct recorder *r, struct memory_search *search) {
    struct memory_finder finder = memory_search_finder(search);
    r->finder = finder;
    finder.vectors = record_vectors, finder.from_states = record_states, finder.context = r;
    return finder;
}

/* The states of search number i are those of the last ids before ids[at]. */
static void check_recorded(const struct recorder *r, int i, const float *states, int at) {
    const int n = at < MEMORY_STATES ? at : MEMORY_STATES;
    CHECK(i < r->n);
    CHECK_EQ(r->states[i].rows, n);
    CHECK_EQ(r->states[i].cols, D);
    for (int j = 0; j < n * D; j++)
        CHECK(fabsf(r->rows[i][j] - states[(at - n) * D + j]) <= 1e-3F);
}

/* Feeds `first` ids at once, and then the rest in calls of `step`, each with a mixture. Then goes back to a mark. */
static void check_states(struct world *w, const float *states, enum memory_kind kind, int first, int step) {
    static float log_p[VOCAB];
    struct memory_search *search;
    struct memory_text *t;
    struct decoder_state *state;
    struct recorder *r = calloc(1, sizeof *r);
    struct memory_config memory = {.key_layer = 2, .k = K, .every = EVERY};
    int searches = 0, searched = -1, at = 0;
    memory.mixture[kind] = (struct memory_mixture){true, {TAU, TAU}, memory_gate_fixed(kind, 0.5)};
    CHECK_OK(memory_search_open(
        &search, &(struct memory_search_config){.engine = &w->engine, .kind = MEMORY_HYBRID, .store = w->store}));
    const struct memory_text_config config = {
        .engine = &w->engine, .memory = &memory, .finder = recording(r, search), .kind = kind, .past = 5};
    CHECK_OK(memory_text_create(&t, &config));
    CHECK_OK(decoder_state_create(&state, w->engine.decoder, NULL));
    for (int n = first; at < READ; n = step) {
        n = READ - at < n ? READ - at : n;
        CHECK_OK(memory_text_feed(t, state, log_p, w->text + at, n));
        at += n;
        if (searched >= 0 && at - searched < EVERY) continue;
        check_recorded(r, searches++, states, at);
        searched = at;
    }
    CHECK_EQ(r->n, searches);
    CHECK_OK(memory_text_mark(t));
    CHECK(decoder_state_mark(state));
    CHECK_OK(memory_text_feed(t, state, log_p, w->text + 7, 30)); /* another text */
    CHECK(decoder_state_rewind(state));
    CHECK_OK(memory_text_rewind(t, log_p));
    r->n = 0;
    while (r->n == 0)
        CHECK_OK(memory_text_feed(t, state, log_p, w->text + at++, 1));
    check_recorded(r, 0, states, at);
    memory_text_free(t);
    decoder_state_free(state);
    memory_search_close(search);
    free(r);
}

/* The same for a window of drt-eval. */
static void check_window(struct world *w, const float *states) {
    struct memory_search *search;
    struct memory_window *window;
    struct memory_lm lm;
    struct recorder *r = calloc(1, sizeof *r);
    const struct memory_config memory = {.key_layer = 2, .k = K, .every = EVERY};
    struct memory_read read = {.what = MEMORY_READ_FOUND, .taus = 1, .tau = {TAU}};
    CHECK_OK(memory_search_open(
        &search, &(struct memory_search_config){.engine = &w->engine, .kind = MEMORY_HYBRID, .store = w->store}));
    const struct memory_window_config config = {
        .engine = &w->engine, .memory = &memory, .finder = recording(r, search), .context = READ, .past = 5};
    CHECK_OK(memory_window_create(&window, &config, &read, 1));
    CHECK_OK(memory_window_run(window, &lm, w->text, READ, 9, -1));
    for (int at = 9, i = 0; at < READ; at += EVERY)
        check_recorded(r, i++, states, at);
    memory_window_free(window);
    memory_search_close(search);
    free(r);
}

static void check_queries(struct world *w) {
    static float states[LENGTH * D], keys[LENGTH * D];
    struct decoder_state *state;
    struct decoder_output out = {.keys = mat_f32(states, LENGTH, D), .key_layer = 2, .states = true};
    CHECK_OK(decoder_state_create(&state, w->engine.decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, w->text, LENGTH));
    decoder_state_free(state);
    check_window(w, states);
    for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++) {
        if (!memory_kind_reads(kind, MEMORY_CORPUS)) continue;
        check_states(w, states, kind, 5, 1);
        check_states(w, states, kind, 90, 1);
        check_states(w, states, kind, 40, 7);
    }
    /* Projections and states of one pass. */
    static float both[LENGTH * D];
    const int64_t size = model_config_key_size(&w->engine.model.config, 2);
    if (size == D) return;
    out.states = false, out.keys = mat_f32(keys, LENGTH, size), out.key_states = mat_f32(both, LENGTH, D);
    CHECK_OK(decoder_state_create(&state, w->engine.decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, w->text, LENGTH));
    decoder_state_free(state);
    CHECK(memcmp(both, states, sizeof states) == 0);
}

static void check_near(const float *a, const float *b) {
    for (int v = 0; v < VOCAB; v++)
        CHECK(fabsf(a[v] - b[v]) <= 2e-3F * (1 + fabsf(b[v])));
}

static void check_world(struct world *w) {
    for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++) {
        float whole[VOCAB], single[VOCAB];
        read_text(whole, w, kind, READ, false);
        read_text(single, w, kind, 1, kind == MEMORY_OWN_PAST);
        check_near(single, whole);
        read_text(single, w, kind, 1, false);
        check_near(single, whole);
        read_text(single, w, kind, READ - 1, false);
        check_near(single, whole);
    }
}

int main(int argc, char **argv) {
    struct world states, projected, same;
    float a[VOCAB], b[VOCAB];
    test_start(argc, argv, 1);
    open_projected(&states, "states", 0, false);
    check_world(&states);
    check_batches(&states);
    check_queries(&states);
    open_projected(&projected, "projected", 16, false);
    check_world(&projected);
    check_batches(&projected);
    check_queries(&projected);
    read_text(a, &projected, MEMORY_OWN_PAST, 1, true);
    read_text(b, &states, MEMORY_OWN_PAST, 1, true);
    CHECK(memcmp(a, b, sizeof a) != 0);
    open_projected(&same, "same", 32, true);
    for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++) {
        read_text(a, &same, kind, 1, kind == MEMORY_OWN_PAST);
        read_text(b, &states, kind, 1, kind == MEMORY_OWN_PAST);
        check_near(a, b);
    }
    engine_close(&states.engine);
    engine_close(&projected.engine);
    engine_close(&same.engine);
    return test_done();
}
