/* test_state_landmarks.c -- landmarks of a Base LM against plain means over decoder_forward's key states; the same bits
 * in any batch and with any number of threads; a chunk is nearest to itself; the query of a text's states; the sketch
 * of words after them. */
#include "base/rng.h"
#include "indexer/landmarks/state_landmarks.h"
#include "model/params.h"
#include "tests/model_fixture.h"
#include "tests/test.h"
#include <math.h>
#include <string.h>

enum { VOCAB = 97, D = 64, CHUNK = 63, N = 70, CENTRE = 16 }; /* more chunks than one batch */
static int32_t ids[N][CHUNK];
static float made[N][D], again[N][D];
enum { SKETCH = 40, WITH = D + SKETCH };
static float with[N][WITH];

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
    struct state_text text = {mat_f32(keys, n, D), 0, n, ids[c], n};
    state_landmarks_of_text(tower->states, query, &text, STATE_QUERY_SKETCH);
    for (int j = 0; j < D; j++)
        CHECK(fabsf(query[j] - made[c][j]) <= 1e-4f);
    text.states = 0;
    state_landmarks_of_text(tower->states, query, &text, STATE_QUERY_SKETCH);
    CHECK(memcmp(query, zeros, sizeof zeros) == 0);
}

/* The first numbers are the landmark without a sketch. Then come the word_sketch of the chunk, of a text's last 128
 * ids, or zeros, divided by sqrt(120). */
static void check_sketch(struct model_config config, struct device *device, const struct params *plain) {
    static float idf[VOCAB];
    float sketch[SKETCH], query[WITH], states[D];
    int32_t text[200];
    struct params *params;
    struct chunk_tower tower = {0};
    struct word_sketch *words;
    struct rng rng = rng_make(4, 0);
    config.landmark_sketch = SKETCH;
    CHECK_OK(params_init(&params, &config, 5));
    for (int i = 0; i < params_count(plain); i++)
        params_set(params, params_at(plain, i)->name, params_at(plain, i)->data);
    for (int i = 0; i < VOCAB; i++)
        idf[i] = 4 * rng_uniform(&rng);
    params_set(params, "landmark_sketch.idf", idf);
    const struct weights weights = weights_of_params(params);
    CHECK_OK(word_sketch_create(&words, idf, VOCAB, SKETCH));
    CHECK_OK(chunk_tower_open(&tower, device, &config, &weights));
    CHECK_OK(state_landmarks_make(tower.states, with[0], ids[0], N));
    for (int c = 0; c < N; c++) {
        CHECK(memcmp(with[c], made[c], sizeof made[c]) == 0);
        word_sketch_chunk(words, sketch, ids[c], CHUNK);
        for (int j = 0; j < SKETCH; j++)
            CHECK(fabsf(with[c][D + j] - sketch[j] / sqrtf(120)) <= 1e-6f);
    }
    for (int i = 0; i < 200; i++)
        text[i] = (int32_t)rng_below(&rng, VOCAB);
    word_sketch_text(words, sketch, text + 200 - 128, 128);
    struct state_text of = {mat_f32(states, 1, D), 0, 0, text, 200};
    state_landmarks_of_text(tower.states, query, &of, STATE_QUERY_SKETCH);
    memcpy(with[1], with[0], sizeof with[0]);
    state_landmarks_sketch(tower.states, with[0], text, 200, STATE_QUERY_SKETCH);
    state_landmarks_sketch(tower.states, with[1], text, 200, STATE_QUERY_NO_SKETCH);
    CHECK(memcmp(with[0], made[0], sizeof made[0]) == 0 && memcmp(with[1], made[0], sizeof made[0]) == 0);
    for (int j = 0; j < SKETCH; j++) {
        CHECK(fabsf(query[D + j] - sketch[j] / sqrtf(120)) <= 1e-6f);
        CHECK(with[0][D + j] == query[D + j] && with[1][D + j] == 0);
    }
    word_sketch_free(words);
    chunk_tower_close(&tower);
    params_free(params);
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
            check_sketch(config, device, params);
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
