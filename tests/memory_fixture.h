/* memory_fixture.h -- small models with a token memory, and batches with documents and passages. */
#pragma once
#include "tests/train_fixture.h"
#include "train/memory/memory_loss_internal.h"
#include "train/step/step_teach_internal.h"

enum { MEMORY_CHUNK = 63, MEMORY_SPAN = 2, MEMORY_NUMBERS = MEMORY_SPAN * MEMORY_CHUNK + 1 };

/* A case. layers, base: of the model; blocks: of a sequence; key_layer from 1; size 0: no projection. */
struct memory_case {
    const char *name, *layers;
    bool base;
    int sequences, blocks, key_layer, size;
    struct memory_loss_config reads;
    bool recompute;
    int teach, hidden;                  /* 0: no, else 1 + enum teach_gradient; 0: 32 */
};

/* past, group, passages, read, span, gradient of `reads` */
[[maybe_unused]] static const struct memory_case memory_cases[] = {
    {"Base LM, past", "[2]", true, 2, 2, 2, 0, {.past = 80, .group = 1, .span = MEMORY_SPAN}, true, 0, 0},
    {"Base LM, all three", "[2]", true, 4, 2, 1, 16,
     {.past = 200, .group = 2, .passages = 1, .read = 2, .span = MEMORY_SPAN}, false, 0, 0},
    {"Base LM, passages", "[3]", true, 2, 3, 2, 16, {.passages = 2, .read = 3, .span = MEMORY_SPAN}, true, 0, 0},
    {"DRT, all three", "[1,1]", false, 2, 3, 2, 16,
     {.past = 100, .group = 2, .passages = 1, .read = 2, .span = MEMORY_SPAN}, true, 0, 0},
    {"DRT, keys of a lower layer", "[2,1]", false, 2, 2, 1, 0,
     {.past = 63, .group = 2, .passages = 1, .read = 1, .span = MEMORY_SPAN}, false, 0, 0},
};

[[maybe_unused]] static float *memory_tensor(const struct params *p, const char *name) {
    return (float *)params_get(p, name);
}

[[maybe_unused]] static void make_memory_model(struct model *m, const struct memory_case *c, uint64_t seed) {
    char json[640];
    int n = snprintf(json, sizeof json,
                 "{\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":40,\"num_attention_heads\":2,"
                 "\"decoder_layers\":%s,\"encoder_layers\":%d,\"enc_chunk_size\":%d,\"chunk_topk\":%d,"
                 "\"slide_window\":70,\"chunk_id\":96,\"mask_id\":95,\"pad_id\":94,\"rms_norm_eps\":1e-5,"
                 "\"encoder_input\":\"tokens\",\"memory_layer\":%d,\"memory_size\":%d,\"retrieval_proj\":%s}",
                 VOCAB, c->hidden ? c->hidden : 32, c->layers, c->base ? 0 : 1, MEMORY_CHUNK, TOPK, c->key_layer,
                 c->size, c->teach == 1 + TEACH_PROJECTIONS ? "true" : "false");
    CHECK_OK(model_config_parse(&m->config, c->name, json, (size_t)n));
    model_fixture_params(&m->params, &m->config, seed, 12.0F, 5.0F);
    memory_tensor(m->params, "memory.log_tau")[0] = logf(15.0F);
    float *gate = memory_tensor(m->params, "memory.gate.weight");
    gate[0] = -0.05F, gate[1] = 0.07F; /* the other features have no gradient, and must not change the differences */
}

struct memory_text { struct text t; int64_t *starts; int32_t *passages, *passage_documents; };

/* Sequences share some documents, and some passages are of documents that a block must not read. */
[[maybe_unused]] static void make_memory_text(struct memory_text *m, const struct memory_case *c, int first,
                                              int sequences) {
    struct variant v = {c->name, c->layers, "tokens", c->base ? 0 : 1, MEMORY_CHUNK, 70, 0,
                        false, false, false, POOL_NONE};
    v.chunks = c->base ? c->blocks * MEMORY_CHUNK : c->blocks;
    make_text(&m->t, &v, first, sequences);
    for (int64_t b = 0; b < sequences * c->blocks; b++) {
        int32_t q = first + (int32_t)(b / c->blocks), at = (int32_t)(b % c->blocks);
        m->t.documents[b][0] = m->t.documents[b][1] = 10 * q + at / 2;
        if (q == 1 && at == 0) m->t.documents[b][0] = m->t.documents[b][1] = 0; /* as at the beginning of sequence 0 */
    }
    int64_t each = c->reads.passages + c->reads.unread, passages = (int64_t)sequences * c->blocks * each;
    CHECK(m->passages = calloc((size_t)(passages * MEMORY_NUMBERS) + 1, sizeof *m->passages));
    CHECK(m->passage_documents = calloc((size_t)passages + 1, sizeof *m->passage_documents));
    CHECK(m->starts = calloc((size_t)sequences, sizeof *m->starts));
    for (int64_t p = 0; p < passages; p++) {
        int64_t number = (int64_t)first * c->blocks * each + p;
        struct rng rng = rng_make(test_seed(), 500 + (uint64_t)number);
        int32_t topic = (int32_t)rng_below(&rng, 70);
        int64_t real = number % 3 == 0 ? 70 : MEMORY_NUMBERS; /* some end early */
        for (int64_t i = 0; i < MEMORY_NUMBERS; i++)
            m->passages[p * MEMORY_NUMBERS + i] = i < real ? topic + (int32_t)rng_below(&rng, 20) : -1;
        m->passage_documents[p] = number % 5 == 2 ? -1 : number % 4 == 1 ? 0 : 900;
    }
    m->t.batch.passages = m->passages, m->t.batch.passage_documents = m->passage_documents;
    m->t.batch.starts = m->starts;
}

[[maybe_unused]] static void free_memory_text(struct memory_text *m) {
    free_text(&m->t), free(m->passages), free(m->passage_documents), free(m->starts);
}

[[maybe_unused]] static struct step *make_memory_step_of(struct device *dev, const struct model *m,
                                                         const struct memory_case *c, int sequences,
                                                         enum dtype type) {
    struct step *s;
    struct step_config config = {
        .sequences = sequences, .chunks = c->base ? c->blocks * MEMORY_CHUNK : c->blocks, .type = type,
        .recompute = c->recompute, .pool = c->base ? POOL_NONE : POOL_OWN_PAST, .memory = true, .reads = c->reads,
        .teach = c->teach > 0, .teach_gradient = c->teach > 0 ? (enum teach_gradient)(c->teach - 1) : TEACH_PROJECTIONS,
        .optimizer = {.beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .clip = 1.0F, .trunk = 1.0F}};
    CHECK_OK(step_create(&s, dev, &m->config, &config, m->params, NULL));
    return s;
}

[[maybe_unused]] static struct step *make_memory_step(struct device *dev, const struct model *m,
                                                      const struct memory_case *c, int sequences) {
    return make_memory_step_of(dev, m, c, sequences, DTYPE_F32);
}

[[maybe_unused]] static struct step_now memory_now(const struct memory_case *c, float weight) {
    return (struct step_now){.optimizer = {.lr = -1.0F, .step = 1}, .seed = test_seed(), .memory_weight = weight,
                             .pool = c->base ? POOL_NONE : POOL_OWN_PAST};
}
