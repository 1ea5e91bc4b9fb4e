/* test_decoder_passages.c -- key states of passages: float32 products against decoder_forward; rounded products, of the
 * same decoder at the same time, near them; the same bits in any batch and with any number of threads. */
#include "base/rng.h"
#include "decoder/decoder_passages.h"
#include "kernels/device/device_internal.h"
#include "kernels/ops.h"
#include "model/params.h"
#include "tests/model_fixture.h"
#include "tests/test.h"
#include <math.h>

enum { VOCAB = 97, D = 64, CHUNK = 63, IDS = 22 * CHUNK, LAYER = 3 };
static int64_t length; /* of a passage */
static const int threads_of[] = {1, 2, 3, 4, 5};
static int32_t ids[IDS];
static float plain[IDS * D], exact[IDS * D], rounded[IDS * D], again[IDS * D];

/* |a - b| / |b| */
static double distance(const float *a, const float *b) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < IDS * D; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

/* The first passages, then the others. */
static void encode(float *keys, struct decoder_passages *passages, int64_t first) {
    const int64_t at = first * length;
    if (first) decoder_passages_encode(passages, mat_f32(keys, at, D), LAYER, ids, first);
    decoder_passages_encode(passages, mat_f32(keys + at * D, IDS - at, D), LAYER, ids + at, IDS / length - first);
}

static void read_plain(struct decoder *decoder) {
    for (int64_t i = 0; i < IDS; i += length) {
        struct decoder_state *state;
        const struct decoder_output out = {.keys = mat_f32(plain + i * D, length, D), .key_layer = LAYER};
        CHECK_OK(decoder_state_create(&state, decoder, NULL));
        CHECK_OK(decoder_forward(state, &out, ids + i, (int)length));
        decoder_state_free(state);
    }
}

static void passages_run(const struct model_config *config, const struct weights *weights, int threads, bool rounds) {
    struct device *device;
    struct decoder *decoder;
    struct decoder_passages *in_float, *in_bf16, *same, *longer;
    CHECK_OK(device_open(&device, "cpu", threads));
    if (!rounds) device_cpu_without_bf16(device);
    rounds = device->ops->matmul->rounds(device);
    CHECK_OK(decoder_create(&decoder, device, config, weights, 0));
    CHECK_OK(decoder_passages_create(&in_bf16, decoder, length, PASSAGES_BF16));
    CHECK_OK(decoder_passages_create(&in_float, decoder, length, PASSAGES_EXACT));
    CHECK_OK(decoder_passages_create(&same, decoder, length, PASSAGES_EXACT));
    CHECK_OK(decoder_passages_create(&longer, decoder, 2 * length, PASSAGES_EXACT));
    CHECK(same == in_float && longer != in_float && in_bf16 != in_float);
    decoder_passages_free(same);
    decoder_passages_free(longer);
    if (threads == 1) {
        read_plain(decoder);
        encode(exact, in_float, 0);
        encode(rounded, in_bf16, 0);
        CHECK(distance(exact, plain) < 1e-5);
        CHECK(rounds ? distance(rounded, exact) > 1e-4 : memcmp(rounded, exact, sizeof exact) == 0);
        CHECK(distance(rounded, exact) < 2e-2);
    } else {
        encode(again, in_float, 4);
        CHECK(memcmp(again, exact, sizeof again) == 0);
        encode(again, in_bf16, threads % 2 ? 7 : 1);
        CHECK(memcmp(again, rounded, sizeof again) == 0);
    }
    decoder_passages_free(in_float);
    decoder_passages_free(in_bf16);
    decoder_free(decoder);
    device_close(device);
}

/* Passages of one chunk, whose rows threads divide, if there are few of them and all rows see all before them; and of
 * two chunks. */
static void model_run(const char *layers, int encoder_layers, int window) {
    struct model_config config;
    struct params *params;
    char json[400];
    int n = snprintf(json, sizeof json,
                     "{\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":96,\"num_attention_heads\":2,"
                     "\"decoder_layers\":%s,\"encoder_layers\":%d,\"enc_chunk_size\":63,\"chunk_topk\":2,"
                     "\"slide_window\":%d,\"rms_norm_eps\":1e-5,\"chunk_id\":96,\"mask_id\":95,\"pad_id\":94}",
                     VOCAB, D, layers, encoder_layers, window);
    CHECK_OK(model_config_parse(&config, "test", json, (size_t)n));
    CHECK_OK(params_init(&params, &config, 5));
    model_fixture_enlarge(params, VOCAB, 10);
    const struct weights weights = weights_of_params(params);
    for (length = CHUNK; length <= 2 * CHUNK; length += CHUNK)
        for (int rounds = 0; rounds < 2; rounds++)
            for (size_t i = 0; i < ARRAY_LEN(threads_of); i++)
                passages_run(&config, &weights, threads_of[i], rounds);
    params_free(params);
}

int main(void) {
    struct rng rng = rng_make(8, 0);
    for (int64_t i = 0; i < IDS; i++)
        ids[i] = (int32_t)rng_below(&rng, VOCAB - 4);
    model_run("[3]", 0, 40);
    model_run("[3]", 0, 100);
    model_run("[1,2]", 1, 100);
    return 0;
}
