/* test_memory_text.c -- a running text with a token memory: fed id by id it gives what it gives in one call, for both
 * memories, also where keys are projected states; a projection that changes nothing gives what the states give. */
#include "session/memory_search.h"
#include "session/memory_text.h"
#include "tests/unit/session/memory_world_fixture.h"

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

static void check_near(const float *a, const float *b) {
    for (int v = 0; v < VOCAB; v++)
        CHECK(fabsf(a[v] - b[v]) <= 2e-3F * (1 + fabsf(b[v])));
}

static void check_world(struct world *w) {
    for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++) {
        float whole[VOCAB], single[VOCAB];
        read_text(whole, w, kind, READ, false);
        read_text(single, w, kind, 1, kind == MEMORY_OWN);
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
    open_projected(&projected, "projected", 16, false);
    check_world(&projected);
    read_text(a, &projected, MEMORY_OWN, 1, true);
    read_text(b, &states, MEMORY_OWN, 1, true);
    CHECK(memcmp(a, b, sizeof a) != 0);
    open_projected(&same, "same", 32, true);
    for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++) {
        read_text(a, &same, kind, 1, kind == MEMORY_OWN);
        read_text(b, &states, kind, 1, kind == MEMORY_OWN);
        check_near(a, b);
    }
    engine_close(&states.engine);
    engine_close(&projected.engine);
    engine_close(&same.engine);
    return test_done();
}
