/* memory_window_fixture.h -- a tiny model, a store with several segments of words, a text that is read with them. */
#pragma once
#include "base/half.h"
#include "base/memory.h"
#include "base/rng.h"
#include "indexer/retrieve/candidate_order.h"
#include "model/params.h"
#include "session/memory_text.h"
#include "store/lexical/lexical.h"
#include "tests/model_fixture.h"
#include "tests/test.h"
#include "tools/memory/memory_window.h"

enum { VOCAB = 97, D = 64, CHUNK = 63, DOCUMENTS = 5, CHUNKS_MAX = 40, CONTEXT = 230, FIRST = 40, K = 3, EVERY = 17 };
enum { WINDOW_PAST = 100 }; /* less than the window has */

struct world {
    struct engine engine;
    struct params *params;
    struct memory_config memory;
    const struct lexical *lexical;
    struct memory_finder finder; /* by words */
    float *idf;
    int32_t ids[CHUNKS_MAX][CHUNK]; /* -1 after the end of a short chunk */
    int document[CHUNKS_MAX];
    int64_t first_chunk[DOCUMENTS + 1];
    int32_t text[CONTEXT];
};

static void make_model(struct world *w, bool base_lm, int threads) {
    char json[640];
    struct engine *e = &w->engine;
    int n = snprintf(json, sizeof json,
                     "{\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":96,\"num_attention_heads\":2,"
                     "\"decoder_layers\":%s,\"encoder_layers\":%d,\"enc_chunk_size\":%d,\"chunk_topk\":3,"
                     "\"slide_window\":100,\"chunk_id\":96,\"mask_id\":95,\"pad_id\":94,\"rms_norm_eps\":1e-5,"
                     "\"encoder_input\":\"tokens\",\"tie_word_embeddings\":true}",
                     VOCAB, D, base_lm ? "[3]" : "[1,2]", !base_lm, CHUNK);
    CHECK_OK(model_config_parse(&e->model.config, "test", json, (size_t)n));
    CHECK_OK(params_init(&w->params, &e->model.config, 5));
    model_fixture_enlarge(w->params, VOCAB, 10);
    CHECK_OK(device_open(&e->device, "cpu", threads));
    e->weights = weights_of_params(w->params);
    CHECK_OK(decoder_create(&e->decoder, e->device, &e->model.config, &e->weights, 0));
}

/* Documents of 1 to 9 chunks over few ids. Each document uses a range of ids of its own, so that searches find related
 * chunks. */
static void make_store(struct world *w, const char *path) {
    struct store_writer_config config = {.fingerprint = {.chunk_tokens = CHUNK, .dim = D, .vocab_size = VOCAB},
                                         .max_catalog_bytes = 1 << 26};
    struct store_writer *writer;
    static const float landmarks[CHUNKS_MAX * D];
    struct rng rng = rng_make(8, 0);
    int64_t chunk = 0;
    CHECK_OK(store_writer_open(&writer, path, &config, true));
    CHECK_OK(store_shard_begin(writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        int64_t chunks = 1 + 2 * d, tokens = chunks * CHUNK - (d % 2 ? 20 : 0);
        w->first_chunk[d] = chunk;
        for (int64_t i = 0; i < chunks * CHUNK; i++)
            w->ids[chunk + i / CHUNK][i % CHUNK] = i < tokens ? (int32_t)(d * 12 + (int)rng_below(&rng, 30)) : -1;
        struct store_new_document doc = {.ids = w->ids[chunk], .n_ids = (size_t)tokens, .source = "memory", .key = ""};
        bool duplicate;
        memcpy(doc.hash, &d, sizeof d);
        CHECK_OK(store_shard_document(writer, &doc, &duplicate));
        CHECK_OK(store_shard_landmarks(writer, landmarks, chunks));
        for (int64_t i = 0; i < chunks; i++)
            w->document[chunk++] = d;
    }
    w->first_chunk[DOCUMENTS] = chunk;
    CHECK_OK(store_shard_seal(writer, NULL, 0));
    CHECK_OK(store_writer_publish(writer, &(struct store_publish){.index = "exact",
                                                                  .seed = 1,
                                                                  .lexical = STORE_LEXICAL_ON,
                                                                  .lexical_chunks = 7})); /* several segments */
    store_writer_close(writer);
}

static enum status world_idf(void *context, const float **out) {
    *out = ((struct world *)context)->idf;
    return STATUS_OK;
}

static void make_world(struct world *w, bool base_lm, int threads, const char *name) {
    char store[600];
    *w = (struct world){.memory = {.key_layer = 2, .k = K, .every = EVERY, .before = 1, .after = 1}};
    snprintf(store, sizeof store, "%s/%s", test_folder(), name);
    make_model(w, base_lm, threads);
    make_store(w, store);
    CHECK_OK(store_open(&w->engine.store, store));
    CHECK_OK(store_view_open(&w->engine.view, w->engine.store));
    CHECK_OK(store_view_lexical(&w->lexical, w->engine.view));
    const struct searcher_config words = {.kind = SEARCHER_LEXICAL, .device = w->engine.device, .view = w->engine.view};
    CHECK_OK(candidate_idf_make(&w->idf, w->engine.view));
    w->finder = (struct memory_finder){.idf = world_idf, .context = w};
    CHECK_OK(searcher_open(&w->finder.searcher, &words));
    struct rng rng = rng_make(9, 0);
    for (int i = 0; i < CONTEXT; i++)
        w->text[i] = (int32_t)rng_below(&rng, 70);
}

static void free_world(struct world *w) {
    memory_free(w->idf);
    searcher_close(w->finder.searcher);
    decoder_free(w->engine.decoder);
    store_view_close(w->engine.view);
    store_close(w->engine.store);
    device_close(w->engine.device);
    params_free(w->params);
}
