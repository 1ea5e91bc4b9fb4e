/* test_encoder.c -- what encoder.h promises: bits that depend on the chunk alone, the same result from both calls, no
 * allocation after create. The golden tests compare with the published network. */
#include "base/rng.h"
#include "base/system/fault.h"
#include "encoder/encoder.h"
#include "tests/test.h"
#include <stdatomic.h>

/* Replaces the library's fault point, and counts every allocation. */
static atomic_long allocations;
enum status fault_point(const char *name) {
    if (strcmp(name, "memory:allocate") == 0) atomic_fetch_add(&allocations, 1);
    return STATUS_OK;
}

/* Of one layer: 19 chunks have so many ids as the vocabulary, so the table of ids is made between chunks of a call, or
 * never. */
enum { CHUNKS = 41, ROWS = 64, VOCAB_OF_ONE = 1200 };

struct result {
    float *landmarks, *alone, *states, *keys, *values;
    int64_t landmark_bytes, state_bytes, kv_bytes;
};

static struct model_config make_config(int chunk, int layers, bool projection, bool tokens) {
    struct model_config c;
    char text[700];
    snprintf(
        text, sizeof text,
        "{\"vocab_size\": %d, \"hidden_size\": 48, \"intermediate_size\": 72, \"num_attention_heads\": 2,"
        "\"decoder_layers\": [1, 1], \"encoder_layers\": %d, \"enc_chunk_size\": %d, \"chunk_topk\": 2, "
        "\"slide_window\": 4,"
        "\"rms_norm_eps\": 1e-5, \"chunk_id\": 89, \"pad_id\": 88, \"encoder_input\": \"%s\", \"retrieval_proj\": %s}",
        layers == 1 ? VOCAB_OF_ONE : 90, layers, chunk, tokens ? "tokens" : "hidden", projection ? "true" : "false");
    CHECK_OK(model_config_parse(&c, "config", text, strlen(text)));
    return c;
}

static struct result result_make(const struct model_config *c) {
    int64_t d = c->hidden, S = model_config_positions(c);
    struct result r = {
        .landmark_bytes = CHUNKS * d * 4, .state_bytes = CHUNKS * S * d * 4, .kv_bytes = CHUNKS * ROWS * d * 4};
    r.landmarks = malloc((size_t)r.landmark_bytes);
    r.alone = malloc((size_t)r.landmark_bytes);
    r.states = malloc((size_t)r.state_bytes);
    r.keys = malloc((size_t)r.kv_bytes);
    r.values = malloc((size_t)r.kv_bytes);
    return r;
}

static void result_free(struct result *r) {
    free(r->landmarks), free(r->alone), free(r->states), free(r->keys), free(r->values);
}

/* All chunks in calls of `step`, on a device of `threads` with batches of `batch`. */
static struct result encode(const struct model_config *c, const struct params *p, const int32_t *ids,
                            const float *hidden, int threads, int batch, int64_t step) {
    struct device *dev;
    struct encoder *e;
    struct result r = result_make(c);
    int64_t d = c->hidden, S = model_config_positions(c);
    CHECK_OK(device_open(&dev, "cpu", threads));
    struct weights weights = weights_of_params(p);
    CHECK_OK(encoder_create(&e, dev, c, &weights, batch));
    CHECK(encoder_bytes(e) > 0);
    long before = atomic_load(&allocations);
    for (int64_t first = 0; first < CHUNKS; first += step) {
        int64_t n = CHUNKS - first < step ? CHUNKS - first : step;
        struct encoder_output alone = {.landmarks = r.alone + first * d};
        struct encoder_output all = {.landmarks = r.landmarks + first * d,
                                     .states = r.states + first * S * d,
                                     .keys = mat_f32(r.keys + first * ROWS * d, n * ROWS, d),
                                     .values = mat_f32(r.values + first * ROWS * d, n * ROWS, d)};
        struct mat rows = mat_f32(hidden + first * S * d, n * S, d);
        if (n == 1) { /* on a device that computes at once, a chunk is complete when the call returns */
            struct mat none = {0};
            const int32_t *its = ids ? ids + first * c->chunk : NULL;
            encoder_begin(e, &alone, its, ids ? none : rows);
            encoder_begin(e, &all, its, ids ? none : rows);
            CHECK(!encoder_advance(e));
            encoder_finish(e);
        } else if (ids) {
            encoder_encode(e, &alone, ids + first * c->chunk, n);
            encoder_encode(e, &all, ids + first * c->chunk, n);
        } else {
            encoder_encode_hidden(e, &alone, rows, n);
            encoder_encode_hidden(e, &all, rows, n);
        }
    }
    CHECK_EQ(atomic_load(&allocations), before);
    encoder_free(e);
    device_close(dev);
    return r;
}

static void compare(int chunk, int layers, bool projection, bool tokens) {
    static const struct {
        int threads, batch;
        int64_t step;
    } ways[] = {{2, 0, CHUNKS}, {1, 1, CHUNKS}, {2, 3, 7}, {3, 100, 1}, {1, 8, 20}};
    struct model_config c = make_config(chunk, layers, projection, tokens);
    struct params *p;
    struct rng rng = rng_make(test_seed(), 1);
    int64_t d = c.hidden, S = model_config_positions(&c), numbers = CHUNKS * S * d;
    int32_t *ids = malloc((size_t)(CHUNKS * chunk) * sizeof *ids);
    float *hidden = malloc((size_t)numbers * sizeof *hidden);
    CHECK_OK(params_init(&p, &c, 3));
    for (int64_t i = 0; i < CHUNKS * chunk; i++)
        ids[i] = i / chunk % 4 == 1 && i % chunk > 9 ? -1 : (int32_t)rng_below(&rng, layers == 1 ? VOCAB_OF_ONE : 88);
    for (int64_t i = 0; i < numbers; i++)
        hidden[i] = rng_normal(&rng);
    struct result first = encode(&c, p, tokens ? ids : NULL, hidden, 1, 0, CHUNKS);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct result r = encode(&c, p, tokens ? ids : NULL, hidden, ways[i].threads, ways[i].batch, ways[i].step);
        CHECK(memcmp(r.alone, first.alone, (size_t)r.landmark_bytes) == 0);
        CHECK(memcmp(r.landmarks, first.landmarks, (size_t)r.landmark_bytes) == 0);
        CHECK(memcmp(r.states, first.states, (size_t)r.state_bytes) == 0);
        CHECK(memcmp(r.keys, first.keys, (size_t)r.kv_bytes) == 0);
        CHECK(memcmp(r.values, first.values, (size_t)r.kv_bytes) == 0);
        result_free(&r);
    }
    CHECK_CLOSE(first.alone, first.landmarks, CHUNKS * d, 1e-5);
    for (int64_t i = 0; i < CHUNKS; i++) {
        const float *landmark = first.states + (i * S + S - 1) * d;
        if (!projection) CHECK(memcmp(first.landmarks + i * d, landmark, (size_t)d * sizeof(float)) == 0);
        for (int64_t j = chunk * d; j < ROWS * d; j++)
            CHECK(first.keys[i * ROWS * d + j] == 0.0f && first.values[i * ROWS * d + j] == 0.0f);
        CHECK(memcmp(first.landmarks + i * d, first.landmarks + (i + 1) % CHUNKS * d, (size_t)d * sizeof(float)) != 0);
    }
    result_free(&first);
    params_free(p);
    free(ids), free(hidden);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 9);
    compare(63, 2, false, true);
    compare(64, 1, true, true);
    compare(63, 3, true, false);
    return test_done();
}
