/* ablation_models.c -- the models of a plan: configs that differ from DRT's only in the keys that a row varies. */
#include "base/formats/json.h"
#include "base/memory.h"
#include "kernels/landmark/landmark_attention.h"
#include "model/params.h"
#include "tools/ablation/ablation_plan.h"
#include "train/run/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* TRAINING_LENGTH, TRAINING_SEQUENCES: defaults of length and sequences */
enum { LAYERS_MAX = 512, TRAINING_LENGTH = 1008, TRAINING_SEQUENCES = 8 };
/* The most ids of a sequence with Landmark Attention, which in training reads all blocks before a position. */
enum { LANDMARK_LENGTH = 1008 };
/* Used while the number of steps is unknown: the largest number that drt-train accepts, so that no other key is
 * too large for it. */
static const int64_t STEPS_UNKNOWN = 1000000000000;

/* ---- sizes ----------------------------------------------------------------------------------------------- */

static enum status model_count(struct ablation_model *m) {
    struct params *p = NULL;
    TRY(params_describe(&p, &m->config));
    m->parameters = params_elements(p);
    m->encoder_parameters = 0;
    for (int i = 0; i < params_count(p); i++) {
        const struct param *one = params_at(p, i);
        if (strstr(one->name, "encoder.")) m->encoder_parameters += one->rows * one->cols;
    }
    params_free(p);
    return STATUS_OK;
}

static enum status model_parse(struct ablation_model *m, const struct ablation_config *c) {
    char name[FILE_PATH_MAX];
    snprintf(name, sizeof name, "%s: model (of %s)", c->path, m->name);
    TRY(model_config_parse(&m->config, name, m->json, strlen(m->json)));
    return model_count(m);
}

/* ---- config.json ----------------------------------------------------------------------------------------- */

static enum status model_layers(struct object *m, const int *layers, int n) {
    char text[256];
    int at = snprintf(text, sizeof text, "[");
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%d", i ? ", " : "", layers[i]);
    snprintf(text + at, sizeof text - (size_t)at, "]");
    return object_set(m, "decoder_layers", text);
}

/* A tokenizer that is trained has no tokens for the last three ids, which the model uses. Its first token
 * ends documents. */
static enum status model_ids(struct object *m, const struct ablation_config *c) {
    if (c->vocab_size == 0) return STATUS_OK;
    TRY(object_set_int(m, "vocab_size", c->vocab_size));
    TRY(object_set_int(m, "chunk_id", c->vocab_size - 1));
    TRY(object_set_int(m, "pad_id", c->vocab_size - 2));
    TRY(object_set_int(m, "mask_id", c->vocab_size - 3));
    return object_set_int(m, "eos_id", 0);
}

static enum status model_base(struct object *m, int layers) {
    static const char *const without[] = {"encoder_input", "retrieval_proj", "memory_layer", "memory_size"};
    for (size_t i = 0; i < ARRAY_LEN(without); i++)
        object_remove(m, without[i]);
    TRY(model_layers(m, &layers, 1));
    return object_set_int(m, "encoder_layers", 0);
}

/* Sets the number of layers with which the model has DRT's number of parameters. */
static enum status model_deep(struct ablation_model *m, struct object *json, const struct ablation_plan *plan,
                              const struct ablation_model *drt) {
    for (int layers = model_config_layers(&drt->config); layers <= LAYERS_MAX; layers++) {
        TRY(model_base(json, layers));
        memory_free(m->json);
        m->json = NULL;
        TRY(object_text(&m->json, json));
        TRY(model_parse(m, plan->config));
        if (m->parameters >= drt->parameters) return STATUS_OK;
    }
    return fail(STATUS_INVALID, "%s: row base-deep: no Base LM of up to %d layers has DRT's %lld parameters",
                plan->config->path, LAYERS_MAX, (long long)drt->parameters);
}

static int64_t training_whole(const struct object *t, const char *key, int64_t otherwise) {
    const char *text = object_get(t, key);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

/* The recurrent layer is at ten twelfths of the depth, as in the paper. There are as many states as positions in a
 * block. The block is the largest divisor of the length of the training's sequences that is at most the window. */
static enum status model_recurrent(struct object *json, const struct ablation_config *c,
                                   const struct model_config *drt) {
    int64_t length = training_whole(&c->training, "length", TRAINING_LENGTH), block = drt->window;
    int layers = model_config_layers(drt);
    while (block > 1 && length % block != 0)
        block--;
    if (block < 2)
        return fail(STATUS_INVALID,
                    "%s: row block-recurrent: training.length is %lld: no block of 2 to slide_window, %d, positions "
                    "divides it",
                    c->path, (long long)length, drt->window);
    TRY(model_base(json, layers));
    TRY(object_set_int(json, "recurrent_layer", (10 * layers + 11) / 12));
    TRY(object_set_int(json, "recurrent_states", block));
    return object_set_int(json, "recurrent_block", block);
}

/* Blocks have the size of DRT's chunks, and a position reads as many blocks as DRT reads chunks. */
static enum status model_landmark(struct object *json, const struct model_config *drt) {
    TRY(model_base(json, model_config_layers(drt)));
    TRY(object_set_int(json, "landmark_block", drt->chunk));
    return object_set_int(json, "landmark_topk", drt->topk < LANDMARK_TOPK_MAX ? drt->topk : (int)LANDMARK_TOPK_MAX);
}

static enum status model_groups(struct object *json, const struct ablation_plan *plan, const struct model_config *drt,
                                int groups) {
    int layers[MODEL_GROUPS_MAX + 1] = {drt->lower_layers}, upper = model_config_layers(drt) - drt->lower_layers;
    if (upper < groups)
        return fail(STATUS_INVALID, "%s: row groups-%d: model.decoder_layers has %d upper layers, fewer than groups",
                    plan->config->path, groups, upper);
    for (int g = 0; g < groups; g++)
        layers[1 + g] = upper / groups + (g < upper % groups);
    return model_layers(json, layers, 1 + groups);
}

/* The token memory that teaches the retriever reads the last layer. */
static enum status model_reader(struct object *json, const struct model_config *drt) {
    if (object_get(json, "memory_layer")) return STATUS_OK;
    TRY(object_set_int(json, "memory_layer", model_config_layers(drt)));
    return object_set_int(json, "memory_size", drt->hidden);
}

static enum status model_json(struct ablation_model *m, struct object *json, const struct ablation_plan *plan,
                              int value) {
    const struct ablation_model *drt = &plan->models[0];
    const struct ablation_config *c = plan->config;
    if (m->kind == ABLATION_BASE_DEEP) return model_deep(m, json, plan, drt);
    if (m->kind == ABLATION_BASE || m->kind == ABLATION_BASE_FULL)
        TRY(model_base(json, model_config_layers(&drt->config)));
    if (m->kind == ABLATION_BASE_FULL) TRY(object_set_int(json, "slide_window", c->context));
    if (m->kind == ABLATION_BLOCK_RECURRENT) TRY(model_recurrent(json, c, &drt->config));
    if (m->kind == ABLATION_LANDMARK) TRY(model_landmark(json, &drt->config));
    if (m->kind == ABLATION_K) TRY(object_set_int(json, "chunk_topk", value));
    if (m->kind == ABLATION_OWN_PAST_TAUGHT) TRY(model_reader(json, &drt->config));
    if (m->kind == ABLATION_GROUPS) TRY(model_groups(json, plan, &drt->config, value));
    TRY(object_text(&m->json, json));
    return model_parse(m, c);
}

/* ---- the config of drt-train ----------------------------------------------------------------------------- */

static bool model_is_base(enum ablation_model_kind kind) {
    return kind <= ABLATION_LANDMARK;
}

static enum status training_base(struct object *t) {
    static const char *const without[] = {"mlm",         "contrastive", "copies",       "teach",
                                          "memory",      "gumbel",      "gumbel_until", "pool_start",
                                          "pool_before", "candidates",  "refresh",      "corpus_alone"};
    for (size_t i = 0; i < ARRAY_LEN(without); i++)
        object_remove(t, without[i]);
    TRY(object_set_string(t, "pool", "none"));
    return object_set_string(t, "eval_pool", "none");
}

/* Sets the same number of tokens per step, in shorter sequences of whole blocks. A length that DRT's training would
 * refuse is not changed. */
static enum status training_landmark(struct object *t, int64_t block) {
    const int64_t length = training_whole(t, "length", TRAINING_LENGTH), blocks = length / block;
    int64_t parts = 1;
    while (parts < blocks && (blocks % parts != 0 || length / parts > LANDMARK_LENGTH))
        parts++;
    if (parts == 1 || length % block != 0) return STATUS_OK;
    TRY(object_set_int(t, "length", length / parts));
    return object_set_int(t, "sequences", parts * training_whole(t, "sequences", TRAINING_SEQUENCES));
}

/* Sets the keys that are the same in every training of the plan. */
static enum status training_common(struct object *t, const struct ablation_model *m, const struct ablation_config *c) {
    char suffix[8], list[64];
    snprintf(suffix, sizeof suffix, m->config.vocab_size > 65536 ? "u32" : "u16");
    TRY(object_set(t, "model", m->json));
    TRY(object_set_string(t, "tokenizer", c->tokenizer ? c->tokenizer : "tokenizer.json"));
    snprintf(list, sizeof list, "[\"tokens/train.%s\"]", suffix);
    TRY(object_set(t, "data", list));
    snprintf(list, sizeof list, "[\"tokens/valid.%s\"]", suffix);
    TRY(object_set(t, "valid", list));
    if (!object_get(t, "keep")) TRY(object_set_int(t, "keep", 1));
    return STATUS_OK;
}

static enum status training_read(struct train_config *out, const struct ablation_model *m,
                                 const struct ablation_config *c) {
    char name[FILE_PATH_MAX];
    snprintf(name, sizeof name, "%s: training (of %s)", c->path, m->name);
    TRY(config_defaults(out));
    TRY(config_read(out, name, m->training, strlen(m->training)));
    enum status s = config_check(out);
    return s == STATUS_OK ? s : fail_context(s, "%s", name);
}

/* Sets the steps, and the number of checkpoints of a training, which may be killed: ten, if the config
 * has no save_every. */
static enum status training_steps(struct ablation_model *m, struct object *t, const struct ablation_config *c) {
    struct train_config read = {0};
    TRY(object_set_int(t, "steps", c->steps > 0 ? c->steps : STEPS_UNKNOWN));
    TRY(object_text(&m->training, t));
    enum status s = training_read(&read, m, c);
    if (s == STATUS_OK) {
        m->step_tokens = read.sequences * read.length * read.accumulate;
        m->length = read.length;
        m->steps = c->steps > 0 ? c->steps : (c->tokens + m->step_tokens - 1) / m->step_tokens;
        s = object_set_int(t, "steps", m->steps);
    }
    if (s == STATUS_OK && !object_get(t, "save_every"))
        s = object_set_int(t, "save_every", m->steps < 10 ? 1 : m->steps / 10);
    config_free(&read);
    TRY(s);
    memory_free(m->training);
    m->training = NULL;
    TRY(object_text(&m->training, t));
    s = training_read(&read, m, c);
    m->own_past = read.pool == POOL_OWN_PAST;
    if (s == STATUS_OK && read.pool == POOL_CORPUS) {
        m->corpus_steps = m->steps > read.schedule.pool_start ? m->steps - read.schedule.pool_start : 0;
        m->candidates = read.candidates;
        m->refreshes = (m->corpus_steps + read.refresh - 1) / read.refresh;
    }
    if (s == STATUS_OK && config_reads_passages(&read)) {
        m->passages = read.memory_passages + (read.schedule.teach_weight > 0 ? read.teach_coming : 0);
        m->passage_chunks = read.memory_span;
    }
    config_free(&read);
    return s;
}

/* Fails if the config lacks the part that a row removes, because the row would equal DRT. */
static enum status training_without(struct object *t, const struct ablation_model *m,
                                    const struct ablation_plan *plan) {
    struct train_config drt = {0};
    const struct ablation_config *c = plan->config;
    if (plan->models[0].taken)
        return fail(STATUS_INVALID,
                    "%s: row %s: models.drt is taken, so how it was trained is unknown: leave the row "
                    "out, or name models.%s",
                    c->path, m->name, m->name);
    enum status s = training_read(&drt, &plan->models[0], c);
    const bool has = m->kind == ABLATION_NO_GUMBEL ? drt.gumbel
                     : m->kind == ABLATION_NO_MLM  ? drt.schedule.mlm_rate > 0
                                                   : drt.schedule.contrastive_weight > 0;
    config_free(&drt);
    TRY(s);
    if (!has)
        return fail(STATUS_INVALID, "%s: row %s: DRT trains without it already: set training.%s, or leave the row out",
                    c->path, m->name,
                    m->kind == ABLATION_NO_GUMBEL ? "gumbel"
                    : m->kind == ABLATION_NO_MLM  ? "mlm.rate"
                                                  : "contrastive.weight");
    if (m->kind == ABLATION_NO_GUMBEL) return object_set(t, "gumbel", "false");
    object_remove(t, m->kind == ABLATION_NO_MLM ? "mlm" : "contrastive");
    return STATUS_OK;
}

static enum status training_own(struct object *t) {
    static const char *const without[] = {"pool_start", "pool_before",  "candidates", "refresh",
                                          "copies",     "corpus_alone", "pool_data",  "eval_pool"};
    for (size_t i = 0; i < ARRAY_LEN(without); i++)
        object_remove(t, without[i]);
    return object_set_string(t, "pool", "own");
}

/* The token memory trains only its own projection, and begins to teach after some steps. */
static enum status training_taught(struct object *t, const struct ablation_model *drt) {
    char teach[128];
    object_remove(t, "contrastive");
    TRY(object_set(t, "memory",
                   "{\"weight\": 0.1, \"gradient\": \"projection\", \"past\": 0, \"passages\": 2, \"read\": 2}"));
    snprintf(teach, sizeof teach, "{\"weight\": 0.1, \"gradient\": \"encoder\", \"start\": %lld}",
             (long long)(drt->steps / 4));
    return object_set(t, "teach", teach);
}

static enum status training_json(struct ablation_model *m, const struct ablation_plan *plan, int value) {
    struct object t = {0};
    const struct ablation_config *c = plan->config;
    enum status s;
    TRY_GOTO(s, object_copy(&t, &c->training), out);
    if (model_is_base(m->kind)) TRY_GOTO(s, training_base(&t), out);
    if (m->kind == ABLATION_LANDMARK) TRY_GOTO(s, training_landmark(&t, m->config.landmark_block), out);
    if (m->kind >= ABLATION_NO_GUMBEL && m->kind <= ABLATION_NO_CONTRASTIVE)
        TRY_GOTO(s, training_without(&t, m, plan), out);
    if (m->kind == ABLATION_OWN_PAST || m->kind == ABLATION_OWN_PAST_TAUGHT) TRY_GOTO(s, training_own(&t), out);
    if (m->kind == ABLATION_OWN_PAST_TAUGHT) TRY_GOTO(s, training_taught(&t, &plan->models[0]), out);
    const char *candidates = object_get(&t, "candidates");
    if (m->kind == ABLATION_K && candidates && strtoll(candidates, NULL, 10) < value)
        TRY_GOTO(s, object_set_int(&t, "candidates", value), out);
    TRY_GOTO(s, training_common(&t, m, c), out);
    s = training_steps(m, &t, c);
out:
    object_free(&t);
    return s;
}

/* ---- finished models ----------------------------------------------------------------------- */

static enum status model_take(struct ablation_model *m, const struct ablation_plan *plan, const char *folder) {
    const struct ablation_config *c = plan->config;
    snprintf(m->folder, sizeof m->folder, "%s", folder);
    m->taken = true;
    enum status s = model_config_load(&m->config, folder);
    if (s != STATUS_OK) return fail_context(s, "%s: models.%s", c->path, m->name);
    if (m->config.base_lm != model_is_base(m->kind))
        return fail(STATUS_INVALID, "%s: models.%s: %s is %s", c->path, m->name, folder,
                    m->config.base_lm ? "a Base LM, which has no retrieval" : "no Base LM");
    if ((m->config.recurrent_layer > 0) != (m->kind == ABLATION_BLOCK_RECURRENT))
        return fail(STATUS_INVALID, "%s: models.%s: %s is %s Block-Recurrent Transformer", c->path, m->name, folder,
                    m->config.recurrent_layer > 0 ? "a" : "no");
    if ((m->config.landmark_block > 0) != (m->kind == ABLATION_LANDMARK))
        return fail(STATUS_INVALID, "%s: models.%s: %s has %s", c->path, m->name, folder,
                    m->config.landmark_block > 0 ? "Landmark Attention" : "no Landmark Attention");
    if (m->kind == ABLATION_DRT && (m->config.topk != c->chunk_topk || m->config.groups != c->groups))
        return fail(STATUS_INVALID, "%s: models.drt: %s has chunk_topk %d and %d groups, which model must have, too",
                    c->path, folder, m->config.topk, m->config.groups);
    return model_count(m);
}

/* ---- the model of a row ---------------------------------------------------------------------------------- */

static enum status model_make(struct ablation_model *m, const struct ablation_plan *plan, int value) {
    struct object json = {0};
    char name[ABLATION_NAME];
    const struct ablation_config *c = plan->config;
    memcpy(name, m->name, sizeof name);
    const char *taken = m->kind < ABLATION_K ? object_get(&c->taken, m->name) : NULL;
    if (taken) return model_take(m, plan, taken);
    enum status s = object_copy(&json, &c->model);
    if (s == STATUS_OK) s = model_ids(&json, c);
    if (s == STATUS_OK) s = model_json(m, &json, plan, value);
    object_free(&json);
    TRY(s);
    if (m->kind == ABLATION_DRT && (m->config.base_lm || m->config.encoder_input != ENCODER_INPUT_TOKENS))
        return fail(STATUS_INVALID, "%s: model.encoder_input must be \"tokens\": only such a model reads a store",
                    c->path);
    if (m->kind == ABLATION_K && strcmp(c->vary_k, "evaluated") == 0) {
        m->view_of = 0;
        snprintf(m->folder, sizeof m->folder, "models/%s", name);
        return STATUS_OK;
    }
    TRY(training_json(m, plan, value));
    snprintf(m->folder, sizeof m->folder, "models/%s/checkpoints/step-%lld", name, (long long)m->steps);
    return STATUS_OK;
}

enum status ablation_model_of(int *out, struct ablation_plan *plan, enum ablation_model_kind kind, int value) {
    const struct ablation_config *c = plan->config;
    char name[ABLATION_NAME];
    if ((kind == ABLATION_K && value == c->chunk_topk) || (kind == ABLATION_GROUPS && value == c->groups) ||
        (kind == ABLATION_OWN_PAST && plan->models[0].own_past))
        kind = ABLATION_DRT;
    snprintf(name, sizeof name, kind == ABLATION_K ? "k-%d" : "groups-%d", value);
    if (kind < ABLATION_K) snprintf(name, sizeof name, "%s", ablation_model_names[kind]);
    for (*out = 0; *out < plan->n_models; (*out)++)
        if (strcmp(plan->models[*out].name, name) == 0) return STATUS_OK;
    if (plan->n_models == ABLATION_MODELS) return fail(STATUS_INVALID, "%s: too many models", c->path);
    struct ablation_model *m = &plan->models[plan->n_models++];
    *m = (struct ablation_model){.kind = kind, .view_of = -1};
    snprintf(m->name, sizeof m->name, "%s", name);
    return model_make(m, plan, value);
}
