/* test_state_landmarks.c -- landmarks of a Base LM against plain means over decoder_forward's key states; the same bits
 * in any batch and with any number of threads; a chunk is nearest to itself; the query of a text's states. */
#include "base/rng.h"
#include "indexer/build/state_landmarks.h"
#include "model/params.h"
#include "tests/model_fixture.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

enum { VOCAB = 97, D = 64, CHUNK = 63, N = 70, CENTRE = 16 }; /* more chunks than one batch */
static int32_t ids[N][CHUNK];
static float made[N][D], again[N][D];

static void keys_of(double mean[D], struct decoder *decoder, const int32_t *chunk) {
    static float keys[CHUNK * D];
    struct decoder_state *state;
    int n = 0;
    while (n < CHUNK && chunk[n] >= 0)
        n++;
    const struct decoder_output out = {.keys = mat_f32(keys, n, D), .key_layer = 3};
    CHECK_OK(decoder_state_create(&state, decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, chunk, n));
    decoder_state_free(state);
    for (int j = 0; j < D; j++) {
        mean[j] = 0;
        for (int i = 0; i < n; i++)
            mean[j] += (double)keys[i * D + j] / n;
    }
}

static void check_plain(struct decoder *decoder) {
    double centre[D] = {0}, mean[D];
    int32_t spread[CENTRE][CHUNK];
    for (int i = 0; i < CENTRE * CHUNK; i++)
        spread[i % CENTRE][i / CENTRE] = i * VOCAB / (CENTRE * CHUNK);
    for (int i = 0; i < CENTRE; i++) {
        keys_of(mean, decoder, spread[i]);
        for (int j = 0; j < D; j++)
            centre[j] += mean[j] / CENTRE;
    }
    for (int c = 0; c < N; c += 23) {
        double square = 0, furthest = 0;
        keys_of(mean, decoder, ids[c]);
        for (int j = 0; j < D; j++) {
            mean[j] -= centre[j];
            square += mean[j] * mean[j];
        }
        for (int j = 0; j < D; j++)
            furthest = fmax(furthest, fabs(mean[j] / sqrt(square) - (double)made[c][j]));
        CHECK(furthest <= 1e-4);
    }
}

static void check_nearest(void) {
    for (int a = 0; a < N; a++) {
        int best = 0;
        double most = -2;
        for (int b = 0; b < N; b++) {
            double dot = 0;
            for (int j = 0; j < D; j++)
                dot += (double)made[a][j] * (double)made[b][j];
            if (dot > most) most = dot, best = b;
        }
        CHECK(best == a && fabs(most - 1) <= 1e-5);
    }
}

/* The query of a text that is a chunk is the landmark of the chunk. */
static void check_text(struct chunk_tower *tower, int c, int n) {
    static float keys[CHUNK * D];
    float query[D], zeros[D] = {0};
    struct decoder_state *state;
    const struct decoder_output out = {.keys = mat_f32(keys, n, D), .key_layer = 3};
    CHECK_OK(decoder_state_create(&state, tower->decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, ids[c], n));
    decoder_state_free(state);
    state_landmarks_of_text(tower->states, query, mat_f32(keys, n, D), 0, n);
    for (int j = 0; j < D; j++)
        CHECK(fabsf(query[j] - made[c][j]) <= 1e-4f);
    state_landmarks_of_text(tower->states, query, mat_f32(keys, n, D), 0, 0);
    CHECK(memcmp(query, zeros, sizeof zeros) == 0);
}

int main(void) {
    struct model_config config;
    struct params *params;
    struct rng rng = rng_make(8, 0);
    char json[400];
    int n = snprintf(json, sizeof json,
                     "{\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":96,\"num_attention_heads\":2,"
                     "\"decoder_layers\":[3],\"encoder_layers\":0,\"enc_chunk_size\":%d,\"slide_window\":100,"
                     "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}",
                     VOCAB, D, CHUNK);
    CHECK_OK(model_config_parse(&config, "test", json, (size_t)n));
    CHECK_OK(params_init(&params, &config, 5));
    model_fixture_enlarge(params, VOCAB, 10);
    for (int i = 0; i < N * CHUNK; i++)
        ids[i / CHUNK][i % CHUNK] = (int32_t)rng_below(&rng, VOCAB);
    for (int i = 20; i < CHUNK; i++)
        ids[23][i] = -1; /* a short chunk */
    for (int threads = 1; threads <= 3; threads += 2) {
        struct device *device;
        struct chunk_tower tower = {0};
        struct weights weights = weights_of_params(params);
        CHECK_OK(device_open(&device, "cpu", threads));
        CHECK_OK(chunk_tower_open(&tower, device, &config, &weights));
        CHECK(tower.states && !tower.encoder);
        if (threads == 1) {
            CHECK_OK(state_landmarks_make(tower.states, made[0], ids[0], N));
            check_plain(tower.decoder);
            check_text(&tower, 5, CHUNK);
            check_text(&tower, 23, 20);
        } else {
            CHECK_OK(state_landmarks_make(tower.states, again[0], ids[0], 1));
            CHECK_OK(state_landmarks_make(tower.states, again[1], ids[1], N - 1));
        }
        chunk_tower_close(&tower);
        device_close(device);
    }
    CHECK(memcmp(made, again, sizeof made) == 0);
    check_nearest();
    params_free(params);
    return 0;
}
