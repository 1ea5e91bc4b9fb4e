/* test_memory_config.c -- the gate's weights against plain formulas; memory.json is read back as written, and every
 * other file is refused. */
#include "base/file.h"
#include "base/rng.h"
#include "decoder/memory_config.h"
#include "kernels/memory/next_token.h"
#include "tests/test.h"

static const struct memory_lm_evidence lm = {2, -1};
static const struct memory_evidence own = {40, 10, -3, 0.2F, -0.5F, -0.5F, -1, 7, 0, 0, 0};
static const struct memory_evidence corpus = {8, 20, -6, 0.1F, -0.7F, -INFINITY, -2, 7, 3, 1, 2};

static void test_weights(void) {
    double g[1 + MEMORY_SIDES], f[MEMORY_FEATURES];
    const struct memory_evidence both[] = {own, corpus}, alone[] = {own, {.entries = 0}}, none[MEMORY_SIDES] = {0};
    struct memory_gate gate = memory_gate_fixed(MEMORY_BOTH, 0.4);
    memory_gate_weights(g, &gate, &lm, both);
    CHECK(fabs(g[0] - 0.6) <= 1e-12 && fabs(g[1] - 0.2) <= 1e-12 && fabs(g[2] - 0.2) <= 1e-12);
    memory_gate_weights(g, &gate, &lm, alone);
    CHECK(g[2] == 0 && fabs(g[1] - 0.25) <= 1e-12);
    memory_gate_weights(g, &gate, &lm, none);
    CHECK(g[0] == 1 && g[1] == 0 && g[2] == 0);
    memory_gate_features(f, &lm, both);
    CHECK(f[2] == 1 && f[3] == log(40) && f[3 + 7] == 1 && f[14 + 7] == 0 && f[14 + 5] == -12);
    CHECK_EQ(memory_feature_side(2), -1);
    CHECK_EQ(memory_feature_side(13), 0);
    CHECK_EQ(memory_feature_side(14), 1);
    const double log_p[] = {log(0.5), -INFINITY};
    memory_gate_weights(g, &gate, &lm, both);
    CHECK(fabs(memory_mixed(g, log(0.1), log_p) - log(0.6 * 0.1 + 0.2 * 0.5)) <= 1e-12);
    CHECK(memory_mixed((double[]){0, 0, 1}, log(0.1), log_p) == -INFINITY);
    /* A hidden unit that reads one feature of the corpus: closed form, and the limits of the range. */
    gate.w1[0][14 + 8] = 0.5, gate.mean[14 + 8] = 1, gate.deviation[14 + 8] = 2, gate.w2[1][0] = 3;
    gate.b2[0] = -1, gate.b2[1] = 0.25;
    memory_gate_weights(g, &gate, &lm, both);
    double a = 0.25 + 3 * tanh(0.5 * 1), sum = 1 + exp(-1) + exp(a);
    CHECK(fabs(g[2] - exp(a) / sum) <= 1e-12 && fabs(g[1] - exp(-1) / sum) <= 1e-12);
    gate.deviation[14 + 8] = 1e-9;
    memory_gate_weights(g, &gate, &lm, both);
    a = 0.25 + 3 * tanh(0.5 * 5), sum = 1 + exp(-1) + exp(a);
    CHECK(fabs(g[2] - exp(a) / sum) <= 1e-12);
}

static void write_text(const char *path, const char *text) {
    struct file_writer *f;
    CHECK_OK(file_create(&f, path));
    CHECK_OK(file_write(f, text, strlen(text)));
    CHECK_OK(file_publish(f));
}

#define HEAD "{\"version\": 2, "
/* A file without `searcher` means a search by words; its other members are read as usual. */
static void test_files_of_before(const char *path) {
    struct memory_config back;
    struct file_map map;
    char text[20000];
    CHECK_OK(file_map(&map, path));
    CHECK(map.size < sizeof text);
    memcpy(text, map.data, map.size);
    text[map.size] = 0;
    file_unmap(&map);
    char *at = strstr(text, "\"searcher\""), *end = at ? strchr(at, ',') + 1 : NULL;
    CHECK(at && end);
    memmove(at, end, strlen(end) + 1);
    write_text(path, text);
    CHECK_OK(memory_config_load(&back, path));
    CHECK_EQ(back.searcher, MEMORY_LEXICAL);
    CHECK(back.mixture[MEMORY_BOTH].given && back.key_layer == 3);
}

/* An order is read as written, and a wrong one is refused. */
static void test_order(struct memory_config *c, const char *path) {
    struct memory_config back;
    c->order.candidates = MEMORY_CANDIDATES_MAX;
    for (int i = 0; i < CANDIDATE_FEATURES; i++)
        c->order.weights[i] = (i - 3) / 7.0;
    CHECK_OK(memory_config_save(c, path));
    CHECK_OK(memory_config_load(&back, path));
    CHECK(memcmp(c, &back, sizeof *c) == 0);
    c->order.weights[2] = -1e16;
    CHECK_OK(memory_config_save(c, path));
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "must not be beyond 1e15");
    c->order = (struct order_weights){0};
    write_text(path, HEAD "\"order\": {\"candidates\": 5000}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "is 5000: must be 1 to 4096");
    write_text(path, HEAD "\"order\": {\"candidates\": 50}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "fit it again with drt-eval fit-order");
    write_text(path, HEAD "\"order\": {\"candidates\": 50, \"weights\": [1, 2]}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "memory.json");
    write_text(path, HEAD "\"order\": {\"weight\": 1}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "candidates or weights");
    CHECK_OK(memory_config_save(c, path));
}

static void test_file(void) {
    char path[600];
    struct rng rng = rng_make(2, 0);
    struct memory_config c = {.key_layer = 3, .k = 8, .every = 16, .before = 1, .after = 2}, back;
    struct memory_mixture *m = &c.mixture[MEMORY_BOTH];
    *m = (struct memory_mixture){true, {4, 8}, memory_gate_fixed(MEMORY_BOTH, 0.1)};
    for (int i = 0; i < MEMORY_FEATURES; i++)
        m->gate.w1[2][i] = (double)rng_uniform(&rng) - 0.5;
    for (int i = 0; i < 16; i++)
        c.tokenizer[i] = (uint8_t)(17 * i), c.weights[i] = (uint8_t)(255 - i);
    snprintf(path, sizeof path, "%s/memory.json", test_folder());
    CHECK_OK(memory_config_save(&c, path));
    CHECK_OK(memory_config_load(&back, path));
    CHECK(memcmp(&c, &back, sizeof c) == 0);
    for (int kind = 0; kind < MEMORY_SEARCHERS; kind++) {
        c.searcher = (enum memory_searcher)kind;
        CHECK_OK(memory_config_save(&c, path));
        CHECK_OK(memory_config_load(&back, path));
        CHECK(back.searcher == c.searcher && memcmp(&c, &back, sizeof c) == 0);
    }
    test_order(&c, path);
    CHECK_OK(memory_searcher_agrees("x", MEMORY_LEXICAL, MEMORY_HYBRID));
    CHECK_OK(memory_searcher_agrees("x", MEMORY_LANDMARK, MEMORY_LANDMARK));
    CHECK_FAILS(memory_searcher_agrees("x.json", MEMORY_LANDMARK, MEMORY_HYBRID), STATUS_INVALID,
                "x.json: was fitted with the scores of a landmark search, not hybrid");
    test_files_of_before(path);
    write_text(path, HEAD "\"searcher\": \"words\"}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "landmark, lexical or hybrid");
    write_text(path, "{\"key_layer\": 3, \"k\": 8, \"every\": 16, \"before\": 0, \"after\": 1, \"own\": {\"tau\": 4}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "has version 1");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "drt-eval fit-memory");
    write_text(path, HEAD "\"key_layer\": 3, \"k\": 8, \"every\": 16, \"before\": 1}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "after is missing");
    write_text(path, HEAD "\"key_layer\": 3, \"k\": 8, \"every\": 16, \"before\": 1, \"after\": 1}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "tokenizer is missing");
    write_text(path, HEAD "\"key_layer\": 3, \"k\": 8000, \"every\": 16}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "k is 8000");
    write_text(path, HEAD "\"weights\": \"00\"}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "32 hexadecimal digits");
    write_text(path, HEAD "\"own\": {\"tau\": [4, 4]}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "mean of \"own\" is missing");
    write_text(path, HEAD "\"own\": {\"tau\": [4, 4], \"tau\": [4, 4]}}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "once");
    write_text(path, HEAD "\"colour\": 3}");
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "memory.json");
    m->gate.deviation[4] = 0;
    CHECK_OK(memory_config_save(&c, path));
    CHECK_FAILS(memory_config_load(&back, path), STATUS_INVALID, "must be above 0");
}

int main(void) {
    test_weights();
    test_file();
    return 0;
}
