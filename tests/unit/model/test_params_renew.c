/* test_params_renew.c -- params_renew against its rule written out again: which embeddings change, to which length, and
 * that nothing else does. */
#include "base/rng.h"
#include "model/params.h"
#include "tests/test.h"
#include <math.h>

enum { VOCAB = 300, D = 32, PAD = 298, LANDMARK = 299, MASK = 297, END = 0, UNUSED = 40 };

static double product(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < D; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double cosine(const float *a, const float *b) {
    return product(a, b) / sqrt(product(a, a) * product(b, b));
}

static struct model_config config(void) {
    static const char json[] =
        "{\"vocab_size\": 300, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_attention_heads\": 2, "
        "\"decoder_layers\": [1, 1], \"encoder_layers\": 1, \"enc_chunk_size\": 63, \"chunk_topk\": 2, "
        "\"slide_window\": 64, \"chunk_id\": 299, \"pad_id\": 298, \"mask_id\": 297, \"eos_id\": 0, "
        "\"rms_norm_eps\": 1e-5, \"encoder_input\": \"tokens\"}";
    struct model_config c;
    CHECK_OK(model_config_parse(&c, "test", json, sizeof json - 1));
    return c;
}

/* pad_id, mask_id and every seventh id up to UNUSED of them point one way; the others are random. */
static struct params *make(const struct model_config *c, bool unused[VOCAB]) {
    struct params *p;
    struct rng rng = rng_make(test_seed(), 5);
    float direction[D];
    CHECK_OK(params_init(&p, c, test_seed()));
    float *table = (float *)params_get(p, "model.embed_tokens.weight");
    for (int i = 0; i < D; i++)
        direction[i] = rng_normal(&rng);
    for (int id = 0, n = 0; id < VOCAB; id++) {
        const bool collapsed = id == PAD || id == MASK || id == LANDMARK || (id % 7 == 3 && n < UNUSED);
        unused[id] = collapsed && id < MASK;
        n += unused[id];
        for (int i = 0; i < D; i++)
            table[id * D + i] = (collapsed ? 3 * direction[i] : 0) + rng_normal(&rng) * (collapsed ? 0.2f : 1.0f);
    }
    return p;
}

static void test_rule(void) {
    const struct model_config c = config();
    bool unused[VOCAB];
    struct params *p = make(&c, unused), *was = make(&c, unused);
    const float *before = params_get(was, "model.embed_tokens.weight"),
                *after = params_get(p, "model.embed_tokens.weight");
    double mean = 0;
    int64_t renewed, expected = 0, others = 0;
    for (int id = 0; id < MASK; id++) {
        expected += unused[id];
        if (unused[id] || id == END) continue;
        mean += sqrt(product(before + id * D, before + id * D));
        others++;
    }
    CHECK_OK(params_renew(p, &c, 0.9, 7, &renewed));
    CHECK_EQ(renewed, expected);
    CHECK(expected > 20);
    for (int t = 1; t < params_count(p); t++) {
        const struct param *a = params_at(p, t), *b = params_at(was, t);
        CHECK(memcmp(a->data, b->data, (size_t)(a->rows * a->cols) * sizeof(float)) == 0);
    }
    for (int id = 0; id < VOCAB; id++) {
        const float *row = after + id * D;
        if (!unused[id]) {
            CHECK(memcmp(row, before + id * D, D * sizeof *row) == 0);
            continue;
        }
        CHECK(fabs(sqrt(product(row, row)) * (double)others / mean - 1) < 1e-5);
        CHECK(cosine(row, after + PAD * D) < 0.9);
        for (int other = 0; other < id; other++) /* no two are alike, though all were */
            CHECK(cosine(row, after + other * D) < 0.99);
    }
    params_free(p);
    params_free(was);
}

/* The same seed gives the same rows, another one others; nothing is alike enough for a cosine of 1. */
static void test_seeds(void) {
    const struct model_config c = config();
    bool unused[VOCAB];
    struct params *p[3];
    const float *table[3];
    int64_t renewed;
    for (int i = 0; i < 3; i++) {
        p[i] = make(&c, unused);
        table[i] = params_get(p[i], "model.embed_tokens.weight");
        CHECK_OK(params_renew(p[i], &c, 1.0, 7, &renewed));
        CHECK_EQ(renewed, 0);
        CHECK_OK(params_renew(p[i], &c, 0.9, i == 2 ? 8 : 7, &renewed));
    }
    CHECK(memcmp(table[0], table[1], VOCAB * D * sizeof(float)) == 0);
    CHECK(memcmp(table[0], table[2], VOCAB * D * sizeof(float)) != 0);
    for (int i = 0; i < 3; i++)
        params_free(p[i]);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_rule();
    test_seeds();
    return test_done();
}
