/* train_fixture.h -- small random models and texts for the tests of a training step. */
#pragma once
#include "base/rng.h"
#include "tests/model_fixture.h"
#include "train/step/step_internal.h"

enum { VOCAB = 97, TOPK = 4, SEQUENCES = 2 };

struct variant {
    const char *name, *layers, *input;
    int encoder_layers, chunk, window, chunks;
    bool proj, mlm, contrastive;
    enum pool_kind pool;
};
/* topk covers all chunks that a query may select if losses are differenced: a change of the selection is not a
 * derivative. */
[[maybe_unused]] static const struct variant variants[] = {
    {"hidden", "[1,2]", "hidden", 1, 63, 90, 4, false, false, false, POOL_OWN_PAST},
    {"tokens, two groups, projections", "[1,1,2]", "tokens", 2, 63, 70, 4, true, true, true, POOL_OWN_PAST},
    {"tokens 64+1", "[1,1]", "tokens", 1, 64, 100, 3, false, false, true, POOL_OWN_PAST},
    {"hidden 64+1, batch", "[1,1]", "hidden", 1, 64, 100, 2, true, false, true, POOL_BATCH},
    {"scores alone", "[1,1]", "tokens", 1, 63, 90, 4, true, false, false, POOL_OWN_PAST},
    {"no retrieval", "[1,1]", "tokens", 1, 63, 80, 3, false, true, false, POOL_NONE},
    {"Base LM", "[2]", "hidden", 0, 63, 60, 150, false, false, false, POOL_NONE},
    {"Block-Recurrent Transformer", "[2],\"recurrent_layer\":1,\"recurrent_states\":5,\"recurrent_block\":50",
     "hidden", 0, 63, 60, 150, false, false, false, POOL_NONE},
    {"Landmark Attention", "[2],\"landmark_block\":20,\"landmark_topk\":7", "hidden", 0, 20, 45, 7, false, false, false,
     POOL_NONE},
};
struct model { struct model_config config; struct params *params; };

[[maybe_unused]] static void make_model(struct model *m, const struct variant *v, uint64_t seed) {
    char json[640];
    int n = snprintf(json, sizeof json,
                 "{\"vocab_size\":%d,\"hidden_size\":32,\"intermediate_size\":40,\"num_attention_heads\":2,"
                 "\"decoder_layers\":%s,\"encoder_layers\":%d,\"enc_chunk_size\":%d,\"chunk_topk\":%d,"
                 "\"slide_window\":%d,\"chunk_id\":96,\"mask_id\":95,\"pad_id\":94,\"rms_norm_eps\":1e-5,"
                 "\"encoder_input\":\"%s\",\"tie_word_embeddings\":true,\"retrieval_proj\":%s}",
                 VOCAB, v->layers, v->encoder_layers, v->chunk, TOPK, v->window, v->input, v->proj ? "true" : "false");
    CHECK_OK(model_config_parse(&m->config, v->name, json, (size_t)n));
    model_fixture_params(&m->params, &m->config, seed, 12.0F, 5.0F);
}

/* Batches of random sequences: sequence q is the same in any batch. */
struct text { struct batch batch; int32_t *ids, *targets, (*documents)[2]; int64_t rows, positions; };

[[maybe_unused]] static void make_text(struct text *t, const struct variant *v, int first, int sequences) {
    bool landmarks = v->encoder_layers > 0 || strstr(v->layers, "landmark_block");
    *t = (struct text){.positions = landmarks ? v->chunk + 1 : 1};
    int64_t length = v->chunks * t->positions;
    t->rows = sequences * length;
    CHECK(t->ids = calloc((size_t)t->rows, sizeof *t->ids));
    CHECK(t->targets = calloc((size_t)t->rows, sizeof *t->targets));
    CHECK(t->documents = calloc((size_t)(sequences * v->chunks), sizeof *t->documents));
    for (int q = 0; q < sequences; q++) {
        struct rng rng = rng_make(test_seed() + (uint64_t)(first + q), 5);
        int32_t topic = 0, *ids = t->ids + q * length, *targets = t->targets + q * length;
        for (int64_t i = 0, last = -1; i < length; i++) {
            bool landmark = landmarks && i % t->positions == t->positions - 1;
            targets[i] = -1;
            ids[i] = 96;
            if (landmark) continue;
            if (i % 50 == 0) topic = (int32_t)rng_below(&rng, 70);
            ids[i] = topic + (int32_t)rng_below(&rng, 20);
            if (last >= 0 && rng_below(&rng, 5) > 0) targets[last] = ids[i];
            if (rng_below(&rng, 40) == 0) ids[i] = rng_below(&rng, 2) ? -1 : 94;
            last = i;
        }
        for (int64_t i = 0; i < length; i++) t->batch.scored += targets[i] >= 0;
        for (int64_t c = 0; c < v->chunks; c++)
            t->documents[q * v->chunks + c][0] = t->documents[q * v->chunks + c][1] = first + q;
    }
    t->batch.sequences = sequences, t->batch.chunks = v->chunks;
    t->batch.ids = t->ids, t->batch.targets = t->targets, t->batch.documents = (const int32_t(*)[2])t->documents;
}

[[maybe_unused]] static void free_text(struct text *t) {
    free(t->ids), free(t->targets), free(t->documents);
}

[[maybe_unused]] static struct device *open_device(int threads) {
    struct device *dev;
    CHECK_OK(device_open(&dev, "cpu", threads));
    return dev;
}

[[maybe_unused]] static struct step_config config_of(const struct variant *v, int sequences) {
    return (struct step_config){
        .sequences = sequences, .chunks = v->chunks, .type = DTYPE_F32, .pool = v->pool, .contrastive = v->contrastive,
        .mlm = v->mlm, .optimizer = {.beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .clip = 1.0F, .trunk = 1.0F}};
}

[[maybe_unused]] static struct step_now now_of(const struct variant *v) {
    return (struct step_now){
        .optimizer = {.lr = -1.0F, .step = 1}, .seed = test_seed(), .mlm_rate = v->mlm ? 0.15F : 0.0F,
        .mlm_weight = 0.7F, .contrastive_weight = v->contrastive ? 0.3F : 0.0F, .pool = v->pool};
}

[[maybe_unused]] static struct step *make_step(struct device *dev, const struct model *m,
                                               const struct step_config *config) {
    struct step *s;
    CHECK_OK(step_create(&s, dev, &m->config, config, m->params, NULL));
    return s;
}

/* All gradients, concatenated. */
[[maybe_unused]] static float *gradients_of(struct step *s, const struct model *m) {
    size_t bytes = (size_t)params_elements(m->params) * sizeof(float);
    float *out = malloc(bytes);
    CHECK(out);
    memcpy(out, optimizer_gradients(step_optimizer(s))->data, bytes); /* the CPU's memory */
    return out;
}
[[maybe_unused]] static float *train_fixture_run(struct step *s, const struct model *m, const struct batch *batches,
                                                 int n, const struct step_now *now, struct step_report *report) {
    CHECK_OK(step_run(s, report, batches, n, now));
    return gradients_of(s, m);
}
