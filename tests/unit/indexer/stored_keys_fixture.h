/* stored_keys_fixture.h -- a tiny Base LM with short keys, a store of five documents of ids, and calls that make and
 * open its keys. */
#pragma once
#include "indexer/build/keys_follow.h"
#include "session/engine.h"
#include "tests/model_fixture.h"
#include <string.h>
#include <sys/stat.h>

enum { SIZE = 16, CHUNK = 63, LAYER = 2, DOCUMENTS = 5, LENGTH_MAX = 30 * CHUNK };
static const int document_tokens[DOCUMENTS] = {CHUNK, 3 * CHUNK - 20, 30 * CHUNK - 1, 13 * CHUNK, 9 * CHUNK};
static struct engine engine;
static char model[600], store[600];
static uint8_t weights[16];

/* ---- the world ---- */

static void make_model(uint64_t seed) {
    char command[2400];
    model_fixture(model, seed);
    snprintf(command, sizeof command,
             "sed -i 's/\"encoder_layers\": 1/\"encoder_layers\": 0, \"memory_layer\": 2, \"memory_size\": 16/; "
             "s/^  1,$/  2/; /^  1$/d' '%s/config.json'",
             model);
    CHECK_EQ(system(command), 0);
    model_fixture_weights(model, seed);
}

static int document_ids(int32_t ids[LENGTH_MAX], int document) {
    struct rng rng = rng_make(8, (uint64_t)document);
    for (int i = 0; i < document_tokens[document % DOCUMENTS]; i++)
        ids[i] = (int32_t)rng_below(&rng, 200);
    return document_tokens[document % DOCUMENTS];
}

[[maybe_unused]] static void add_documents(int first, int n, bool create) {
    struct store_writer_config config = {.max_catalog_bytes = 1 << 26, .landmarks = STORE_LANDMARKS_NONE};
    struct store_writer *writer;
    const float none[1] = {0};
    int32_t ids[LENGTH_MAX];
    tokenizer_fingerprint(engine.model.tokenizer, config.fingerprint.tokenizer);
    config.fingerprint.chunk_tokens = CHUNK;
    config.fingerprint.vocab_size = engine.model.config.vocab_size;
    CHECK_OK(store_writer_open(&writer, store, &config, create));
    CHECK_OK(store_shard_begin(writer));
    for (int d = first; d < first + n; d++) {
        bool duplicate;
        struct store_new_document doc = {.ids = ids, .source = "test", .key = ""};
        doc.n_ids = (size_t)document_ids(ids, d);
        doc.hash[0] = (uint8_t)(d + 1);
        CHECK_OK(store_shard_document(writer, &doc, &duplicate));
    }
    CHECK_OK(store_shard_landmarks(writer, none, store_shard_chunks(writer))); /* rows of no numbers */
    CHECK_OK(store_shard_seal(writer, NULL, 0));
    CHECK_OK(store_writer_publish(writer, &(struct store_publish){.index = "exact", .seed = 1}));
    store_writer_close(writer);
}

static void open_engine(const char *of) {
    engine_close(&engine);
    const struct engine_config config = {
        .model = model, .store = of, .where = {.device = "cpu", .dtype = "f32"}, .threads = 2, .memory = true};
    CHECK_OK(engine_open(&engine, &config));
    params_fingerprint(engine.model.params, weights);
}

static struct key_windows_config windows_config(void) {
    return (struct key_windows_config){.device = engine.device,
                                       .decoder = engine.decoder,
                                       .model = &engine.model.config,
                                       .view = engine.view,
                                       .name = model,
                                       .key_layer = LAYER};
}

static int step; /* 0: the default */

[[maybe_unused]] static struct stored_keys_report make_keys(void) {
    struct stored_keys_report r;
    struct stored_keys_job job = {.config = windows_config(), .weights = weights};
    job.config.step = step;
    CHECK_OK(stored_keys_make(&r, &job));
    return r;
}

[[maybe_unused]] static struct store_keys *open_keys(void) {
    struct store_keys *keys;
    const struct store_keys_spec spec = stored_keys_spec(&engine.model.config, weights, LAYER, 0);
    CHECK_OK(store_keys_open(&keys, engine.view, &spec, model));
    return keys;
}

[[maybe_unused]] static enum status try_keys(void) {
    struct store_keys *keys;
    const struct store_keys_spec spec = stored_keys_spec(&engine.model.config, weights, LAYER, 0);
    enum status s = store_keys_open(&keys, engine.view, &spec, model);
    if (s == STATUS_OK) store_keys_close(keys);
    return s;
}

[[maybe_unused]] static void change_byte(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    CHECK(f != NULL);
    CHECK_EQ(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    const int c = fgetc(f);
    CHECK_EQ(fseek(f, -1, SEEK_CUR), 0);
    CHECK_EQ(fputc(c ^ 1, f) == EOF, 0);
    CHECK_EQ(fclose(f), 0);
}

static void keys_world_open(void) {
    snprintf(model, sizeof model, "%s/model", test_folder());
    snprintf(store, sizeof store, "%s/store", test_folder());
    make_model(3);
    open_engine(NULL);
    add_documents(0, DOCUMENTS, true);
    open_engine(store);
}
