/* memory_world_fixture.h -- a tiny model (a Base LM, or one with an encoder) with a store of its own, whose landmarks
 * are computed by plain loops, and a text whose chunks are searched. */
#pragma once
#include "base/rng.h"
#include "indexer/build/indexer.h"
#include "tests/model_fixture.h"
#include "tests/unit/session/plain_landmarks.h"

enum { DOCUMENTS = 6, CHUNKS = 21, N = 3, LENGTH = 400 };

struct world {
    struct engine engine;
    int dim; /* of a landmark: D, or D + SKETCH */
    char model[600], store[600];
    int32_t ids[CHUNKS][CHUNK];
    int64_t first_chunk[DOCUMENTS + 1];
    int32_t text[LENGTH];
    int64_t at[N];
};

/* tests/cli/tiny, or a Base LM of its size. */
[[maybe_unused]] static void make_model(const char *folder, bool base_lm, uint64_t seed) {
    char command[2400];
    model_fixture(folder, seed);
    if (!base_lm) return;
    snprintf(command, sizeof command,
             "sed -i 's/\"encoder_layers\": 1/\"encoder_layers\": 0/; s/^  1,$/  2/; /^  1$/d' '%s/config.json'",
             folder);
    CHECK_EQ(system(command), 0);
    model_fixture_weights(folder, seed);
}

[[maybe_unused]] static void add_sketch(const char *folder, uint64_t seed) {
    char command[1200];
    snprintf(command, sizeof command, "sed -i 's/^{$/{ \"landmark_sketch\": %d,/' '%s/config.json'", SKETCH, folder);
    CHECK_EQ(system(command), 0);
    model_fixture_weights(folder, seed);
}

/* ---- the world ---- */

[[maybe_unused]] static void make_store(struct world *w, enum store_lexical_choice lexical) {
    struct engine *e = &w->engine;
    struct store_writer_config config = {.max_catalog_bytes = 1 << 26};
    struct store_writer *writer;
    float landmarks[CHUNKS * (D + SKETCH)];
    int64_t chunk = 0;
    struct rng rng = rng_make(8, 0);
    CHECK_OK(indexer_fingerprint(&config.fingerprint, &e->model.config, e->model.params, e->model.tokenizer));
    CHECK_OK(store_writer_open(&writer, w->store, &config, true));
    CHECK_OK(store_shard_begin(writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        const int64_t chunks = d + 1, tokens = chunks * CHUNK - (d % 2 ? 20 : 0);
        bool duplicate;
        w->first_chunk[d] = chunk;
        for (int64_t i = 0; i < chunks * CHUNK; i++)
            w->ids[chunk + i / CHUNK][i % CHUNK] = i < tokens ? (int32_t)(d * 12 + (int)rng_below(&rng, 30)) : -1;
        struct store_new_document doc = {.ids = w->ids[chunk], .n_ids = (size_t)tokens, .source = "memory", .key = ""};
        memcpy(doc.hash, &d, sizeof d);
        CHECK_OK(store_shard_document(writer, &doc, &duplicate));
        for (int64_t i = 0; i < chunks; i++) {
            float *row = landmarks + i * w->dim;
            plain_landmark(row, e, w->ids[chunk + i], CHUNK);
            if (w->dim > D) plain_sketch(row + D, e, w->ids[chunk + i], CHUNK, false);
        }
        CHECK_OK(store_shard_landmarks(writer, landmarks, chunks));
        chunk += chunks;
    }
    w->first_chunk[DOCUMENTS] = chunk;
    CHECK_EQ(chunk, CHUNKS);
    CHECK_OK(store_shard_seal(writer, NULL, 0));
    CHECK_OK(store_writer_publish(writer, &(struct store_publish){.index = "exact", .seed = 1, .lexical = lexical}));
    store_writer_close(writer);
}

[[maybe_unused]] static void open_engine(struct world *w, const char *store) {
    const struct engine_config config = {
        .model = w->model, .store = store, .where = {.device = "cpu", .dtype = "f32"}, .threads = 2, .memory = true};
    CHECK_OK(engine_open(&w->engine, &config));
}

[[maybe_unused]] static void open_world_of(struct world *w, const char *name, bool base_lm, bool sketch,
                                           enum store_lexical_choice lexical) {
    *w = (struct world){.dim = D, .at = {LENGTH, 40, 217}}; /* the second is shorter than a chunk */
    snprintf(w->model, sizeof w->model, "%s/%s-model", test_folder(), name);
    snprintf(w->store, sizeof w->store, "%s/%s-store", test_folder(), name);
    make_model(w->model, base_lm, 3);
    if (sketch) add_sketch(w->model, 3), w->dim = D + SKETCH;
    open_engine(w, NULL);
    make_store(w, lexical);
    engine_close(&w->engine);
    open_engine(w, w->store);
    struct rng rng = rng_make(9, 0);
    for (int i = 0; i < LENGTH; i++)
        w->text[i] = (int32_t)rng_below(&rng, 70);
}

[[maybe_unused]] static void open_world(struct world *w, const char *name, bool base_lm,
                                        enum store_lexical_choice lexical) {
    open_world_of(w, name, base_lm, false, lexical);
}
