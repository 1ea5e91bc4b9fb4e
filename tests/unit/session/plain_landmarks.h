/* plain_landmarks.h -- landmarks of a tiny Base LM by plain loops over its key states, and their sketches. */
#pragma once
#include "indexer/landmarks/word_sketch.h"
#include "session/engine.h"
#include "tests/test.h"

enum { D = 32, CHUNK = 63, CENTRE = 16, VOCAB = 271, SKETCH = 24 };

[[maybe_unused]] static void mean_state(double mean[D], struct engine *e, const int32_t *ids, int n) {
    static float keys[CHUNK * D];
    struct decoder_state *state;
    while (n > 0 && ids[n - 1] < 0)
        n--;
    const struct decoder_output out = {.keys = mat_f32(keys, n, D), .key_layer = 2};
    CHECK_OK(decoder_state_create(&state, e->decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, ids, n));
    decoder_state_free(state);
    for (int j = 0; j < D; j++) {
        mean[j] = 0;
        for (int i = 0; i < n; i++)
            mean[j] += (double)keys[i * D + j] / n;
    }
}

[[maybe_unused]] static void plain_landmark(float out[D], struct engine *e, const int32_t *ids, int n) {
    double centre[D] = {0}, mean[D], square = 0;
    int32_t spread[CENTRE][CHUNK];
    for (int i = 0; i < CENTRE * CHUNK; i++)
        spread[i % CENTRE][i / CENTRE] = i * VOCAB / (CENTRE * CHUNK);
    for (int i = 0; i < CENTRE; i++) {
        mean_state(mean, e, spread[i], CHUNK);
        for (int j = 0; j < D; j++)
            centre[j] += mean[j] / CENTRE;
    }
    mean_state(mean, e, ids, n);
    for (int j = 0; j < D; j++)
        square += (mean[j] - centre[j]) * (mean[j] - centre[j]);
    for (int j = 0; j < D; j++)
        out[j] = (float)((mean[j] - centre[j]) / sqrt(square));
}

/* The sketch of a chunk's words, or of a text's. */
[[maybe_unused]] static void plain_sketch(float out[SKETCH], struct engine *e, const int32_t *ids, int n, bool text) {
    struct word_sketch *s;
    CHECK_OK(word_sketch_create(&s, params_get(e->model.params, "landmark_sketch.idf"), VOCAB, SKETCH));
    (text ? word_sketch_text : word_sketch_chunk)(s, out, ids, n);
    for (int j = 0; j < SKETCH; j++)
        out[j] /= sqrtf(120);
    word_sketch_free(s);
}
