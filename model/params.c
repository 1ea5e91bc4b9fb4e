/* params.c -- the table of tensors that a config requires, and their data: from a file, or random.
 *
 * The table follows model.md §12. Tensors are adjacent, without gaps. So q, k, v (and gate, up) of a layer are also one
 * matrix, which block.c uses for one product. */
#include "model/params.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/system/threads.h"
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* puts the hash state on the stack */
#include <xxhash.h>

static const char sketch_idf[] = "landmark_sketch.idf";

struct params {
    struct param *table;
    size_t capacity;
    int count;
    int64_t elements;
    int32_t pad_id;
    float *block; /* NULL: the tensors are only described */
    int hidden;
};

__attribute__((format(printf, 4, 5))) static enum status append(struct params *p, int64_t rows, int64_t cols,
                                                                const char *format, ...) {
    char name[192];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    void *table = p->table;
    TRY(memory_grow_bytes(&table, &p->capacity, (size_t)p->count + 1, sizeof *p->table));
    p->table = table;
    char *copy;
    TRY(memory_copy_string(&copy, name));
    p->table[p->count++] = (struct param){.name = copy, .rows = rows, .cols = cols};
    p->elements += rows * cols;
    return STATUS_OK;
}

static enum status append_layer(struct params *p, const struct model_config *c, const char *layer, bool gca) {
    static const char *const projections[] = {"q", "k", "v", "o"};
    for (size_t i = 0; i < ARRAY_LEN(projections); i++)
        TRY(append(p, c->hidden, c->hidden, "%s.self_attn.%s_proj.weight", layer, projections[i]));
    if (gca) {
        TRY(append(p, 1, c->hidden, "%s.gca.pre_norm.weight", layer));
        TRY(append(p, c->hidden, c->hidden, "%s.gca.q_proj.weight", layer));
        TRY(append(p, c->hidden, c->hidden, "%s.gca.o_proj.weight", layer));
    }
    TRY(append(p, c->ffn, c->hidden, "%s.mlp.gate_proj.weight", layer));
    TRY(append(p, c->ffn, c->hidden, "%s.mlp.up_proj.weight", layer));
    TRY(append(p, c->hidden, c->ffn, "%s.mlp.down_proj.weight", layer));
    TRY(append(p, 1, c->hidden, "%s.input_layernorm.weight", layer));
    return append(p, 1, c->hidden, "%s.post_attention_layernorm.weight", layer);
}

/* Adds the tensors that training with a token memory learns in addition to the key states (docs/model.md). */
static enum status append_memory(struct params *p, const struct model_config *c) {
    if (c->memory_layer == 0) return STATUS_OK;
    if (c->memory_size > 0) TRY(append(p, c->memory_size, c->hidden, "memory.key_proj.weight"));
    TRY(append(p, 1, 1, "memory.log_tau"));
    return append(p, 1, PARAMS_MEMORY_GATE, "memory.gate.weight");
}

/* Adds the idf of each id, from which a landmark's sketch is made (docs/model.md §10.3). */
static enum status append_sketch(struct params *p, const struct model_config *c) {
    return c->landmark_sketch > 0 ? append(p, 1, c->vocab_size, "%s", sketch_idf) : STATUS_OK;
}

/* Adds the tensors of the recurrent layer, after those that every layer has (docs/model.md §10.1). The four projections
 * of the state are one matrix. */
static enum status append_recurrent(struct params *p, const struct model_config *c, const char *layer) {
    static const char *const projections[] = {"state_q_self_proj", "state_q_token_proj", "state_k_proj",
                                              "state_v_proj"};
    TRY(append(p, c->hidden, c->hidden, "%s.recurrent.q_proj.weight", layer));
    TRY(append(p, c->hidden, c->hidden, "%s.recurrent.o_proj.weight", layer));
    TRY(append(p, c->recurrent_states, c->hidden, "%s.recurrent.initial_state.weight", layer));
    TRY(append(p, c->recurrent_states, c->hidden, "%s.recurrent.state_ids.weight", layer));
    for (size_t i = 0; i < ARRAY_LEN(projections); i++)
        TRY(append(p, c->hidden, c->hidden, "%s.recurrent.%s.weight", layer, projections[i]));
    TRY(append(p, c->hidden, 2 * (int64_t)c->hidden, "%s.recurrent.state_o_proj.weight", layer));
    TRY(append(p, 1, c->hidden, "%s.recurrent.state_norm.weight", layer));
    return append(p, 1, c->hidden, "%s.recurrent.gate.weight", layer);
}

static enum status describe_base_lm(struct params *p, const struct model_config *c) {
    char layer[96];
    TRY(append(p, c->vocab_size, c->hidden, "language_model.model.embed_tokens.weight"));
    for (int i = 0; i < c->lower_layers; i++) {
        snprintf(layer, sizeof layer, "language_model.model.layers.%d", i);
        TRY(append_layer(p, c, layer, false));
        if (i + 1 == c->recurrent_layer) TRY(append_recurrent(p, c, layer));
    }
    TRY(append(p, 1, c->hidden, "language_model.model.norm.weight"));
    TRY(append_memory(p, c));
    return append_sketch(p, c);
}

static enum status describe_drt(struct params *p, const struct model_config *c) {
    char layer[96];
    TRY(append(p, c->vocab_size, c->hidden, "model.embed_tokens.weight"));
    for (int i = 0; i < c->lower_layers; i++) {
        snprintf(layer, sizeof layer, "model.lower_layers.%d", i);
        TRY(append_layer(p, c, layer, false));
    }
    for (int g = 0; g < c->groups; g++)
        for (int i = 0; i < c->group_layers[g]; i++) {
            snprintf(layer, sizeof layer, "model.upper_layers.%d.%d", g, i);
            TRY(append_layer(p, c, layer, true));
        }
    for (int g = 0; g < c->groups; g++)
        TRY(append(p, 1, c->hidden, "model.lmk_norms.%d.weight", g));
    for (int i = 0; i < c->encoder_layers; i++) {
        snprintf(layer, sizeof layer, "model.encoder.layers.%d", i);
        TRY(append_layer(p, c, layer, false));
    }
    TRY(append(p, 1, c->hidden, "model.encoder.norm.weight"));
    TRY(append(p, c->hidden, c->hidden, "model.chunk_k_proj.weight"));
    TRY(append(p, c->hidden, c->hidden, "model.chunk_v_proj.weight"));
    TRY(append(p, 1, c->hidden, "model.enc_prenorm.weight"));
    TRY(append(p, 1, c->hidden, "model.norm.weight"));
    for (int g = 0; g < c->groups && c->retrieval_proj; g++)
        TRY(append(p, c->hidden, c->hidden, "model.lmk_q_proj.%d.weight", g));
    if (c->retrieval_proj) TRY(append(p, c->hidden, c->hidden, "model.lmk_k_proj.weight"));
    return append_memory(p, c);
}

enum status params_describe(struct params **out, const struct model_config *config) {
    struct params *p;
    TRY(memory_allocate_zero(&p, 1));
    p->pad_id = config->pad_id;
    p->hidden = config->hidden;
    enum status s = config->base_lm ? describe_base_lm(p, config) : describe_drt(p, config);
    if (s == STATUS_OK)
        *out = p;
    else
        params_free(p);
    return s;
}

void params_free(struct params *p) {
    if (!p) return;
    for (int i = 0; i < p->count; i++)
        memory_free((void *)p->table[i].name);
    memory_free(p->table);
    memory_free(p->block);
    memory_free(p);
}

/* Describes every tensor and sets its offset in one block. */
static enum status params_prepare(struct params **out, const struct model_config *config) {
    struct params *p;
    TRY(params_describe(&p, config));
    void *block = NULL;
    enum status s = memory_allocate_aligned_bytes(&block, (size_t)p->elements, sizeof(float));
    if (s != STATUS_OK) {
        params_free(p);
        return s;
    }
    p->block = block;
    int64_t at = 0;
    for (int i = 0; i < p->count; i++) {
        p->table[i].data = p->block + at;
        at += p->table[i].rows * p->table[i].cols;
    }
    *out = p;
    return STATUS_OK;
}

static const struct param *params_find(const struct params *p, const char *name) {
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->table[i].name, name) == 0) return &p->table[i];
    return NULL;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Whether a file may have this tensor although the table lacks it: sections of golden files, ALiBi slopes (which this
 * code computes), the tied head. */
static bool params_ignored(const char *name) {
    return starts_with(name, "in.") || starts_with(name, "out.") || starts_with(name, "grad.") ||
           starts_with(name, "alt.") || ends_with(name, ".self_attn.m") || strcmp(name, "lm_head.weight") == 0 ||
           strcmp(name, "language_model.lm_head.weight") == 0;
}

static enum status check_unknown(const struct params *p, const struct safetensors *file) {
    for (int i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        if (!params_find(p, name) && !params_ignored(name))
            return fail(STATUS_MISMATCH, "%s: tensor %s is not part of a model with this config: check config.json",
                        safetensors_path(file), name);
    }
    return STATUS_OK;
}

static void shape_text(char *out, size_t size, const int64_t *shape, int dims) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    if (used < size) snprintf(out + used, size - used, "]");
}

/* Returns n, or the first number of the block that has one which is not finite. */
static int64_t finite_until(const float *x, int64_t n) {
    enum { BLOCK = 1024 };
    const uint32_t exponent = 0x7f800000;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        uint32_t other = 0;
        for (int64_t i = begin; i < begin + BLOCK && i < n; i++) {
            uint32_t bits;
            memcpy(&bits, x + i, sizeof bits);
            other |= (bits & exponent) == exponent;
        }
        if (other) return begin;
    }
    return n;
}

/* Loads one tensor from the file's tensor of that name. */
static enum status load_tensor(const struct param *t, const char *name, const struct safetensors *file) {
    const char *path = safetensors_path(file);
    int64_t wanted[2] = {t->rows, t->cols};
    int dims = t->rows == 1 ? 1 : 2; /* only norms have one row; the file has them as vectors */
    const int64_t *shape = dims == 1 ? wanted + 1 : wanted;
    char want[64], have[200];
    shape_text(want, sizeof want, shape, dims);
    const struct tensor_view *v = safetensors_find(file, name);
    if (!v)
        return fail(STATUS_MISMATCH, "%s: tensor %s is missing: config.json requires it, with shape %s", path, name,
                    want);
    if (v->dims != dims || memcmp(v->shape, shape, (size_t)dims * sizeof *shape) != 0) {
        shape_text(have, sizeof have, v->shape, v->dims);
        return fail(STATUS_MISMATCH, "%s: tensor %s has shape %s: config.json requires %s", path, name, have, want);
    }
    if (v->dtype != SAFETENSORS_F32 && v->dtype != SAFETENSORS_F16 && v->dtype != SAFETENSORS_BF16)
        return fail(STATUS_MISMATCH, "%s: tensor %s is %s: weights are F32, F16 or BF16", path, name,
                    safetensors_dtype_name(v->dtype));
    TRY(safetensors_to_f32((float *)t->data, v));
    const int64_t n = t->rows * t->cols;
    for (int64_t i = finite_until(t->data, n); i < n; i++)
        if (!isfinite(t->data[i]))
            return fail(STATUS_CORRUPT, "%s: tensor %s: element %lld is not a finite number", path, name, (long long)i);
    return STATUS_OK;
}

struct loading {
    const struct params *params;
    const struct safetensors *file;
    atomic_bool failed;
};

static void load_tensors(void *context, int64_t begin, int64_t end, int worker) {
    struct loading *l = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        if (load_tensor(&l->params->table[i], l->params->table[i].name, l->file) != STATUS_OK) l->failed = true;
}

/* Loads all tensors. Most of the time the system clears memory for them, so threads share the work. */
static enum status load_all(const struct params *p, const struct safetensors *file) {
    struct loading l = {.params = p, .file = file};
    struct threads *pool;
    TRY(threads_create(&pool, 0));
    threads_for(pool, p->count, 1, load_tensors, &l);
    threads_free(pool);
    for (int i = 0; i < p->count && l.failed; i++) /* once more, for the message of the first one that fails */
        TRY(load_tensor(&p->table[i], p->table[i].name, file));
    return STATUS_OK;
}

enum status params_load(struct params **out, const struct model_config *config, const struct safetensors *file) {
    struct params *p;
    TRY(params_prepare(&p, config));
    enum status s;
    TRY_GOTO(s, load_all(p, file), out);
    TRY_GOTO(s, check_unknown(p, file), out);
    *out = p;
out:
    if (s != STATUS_OK) params_free(p);
    return s;
}

/* Draws the elements of one tensor, each from its own position in the tensor's stream. */
struct drawing {
    float *data;
    struct rng rng;
    bool ones;
};
static void params_draw(void *context, int64_t begin, int64_t end, int worker) {
    struct drawing d = *(const struct drawing *)context;
    (void)worker;
    d.rng.counter = 2 * (uint64_t)begin; /* a normal number takes two steps of the counter */
    for (int64_t j = begin; j < end; j++)
        d.data[j] = d.ones ? 1.0f : 0.02f * rng_normal(&d.rng);
}

/* Sets first values that are not N(0, 0.02^2) or 1. The memory's projection keeps squared distances on average. tau is
 * set for states of mean square 1 (docs/model.md). The gate is nearly closed at first. */
static void init_special(const struct params *p, const struct param *t, float *data) {
    int64_t n = t->rows * t->cols;
    if (starts_with(t->name, "model.lmk_q_proj.") || starts_with(t->name, "model.lmk_k_proj."))
        for (int64_t j = 0; j < t->rows; j++)
            data[j * t->cols + j] += 1.0f;
    if (ends_with(t->name, "embed_tokens.weight") && p->pad_id >= 0)
        memset(data + p->pad_id * t->cols, 0, (size_t)t->cols * sizeof(float));
    if (strcmp(t->name, "memory.key_proj.weight") == 0)
        for (int64_t j = 0; j < n; j++)
            data[j] *= 50.0f / sqrtf((float)t->rows);
    if (strcmp(t->name, "memory.log_tau") == 0) data[0] = logf((float)p->hidden / 24.0f);
    for (int64_t j = 0; j < n && strcmp(t->name, "memory.gate.weight") == 0; j++)
        data[j] = j == 0 ? -0.25f : 0.0f;
}

enum status params_init(struct params **out, const struct model_config *config, uint64_t seed) {
    struct params *p;
    struct threads *pool;
    TRY(params_prepare(&p, config));
    enum status status = threads_create(&pool, 0);
    if (status != STATUS_OK) {
        params_free(p);
        return status;
    }
    for (int i = 0; i < p->count; i++) {
        const struct param *t = &p->table[i];
        float *data = (float *)t->data;
        struct drawing d = {data, rng_make(seed, (uint64_t)i), t->rows == 1};
        threads_for(pool, t->rows * t->cols, 1 << 14, params_draw, &d);
        init_special(p, t, data);
    }
    threads_free(pool);
    *out = p;
    return STATUS_OK;
}

/* ---- from a model of another kind ---------------------------------------------------------------------------------
 */

/* Writes the name of tensor t in a Base LM, where one number counts all layers. */
static void graft_base_name(char out[192], const struct model_config *c, const char *name) {
    int group, layer, rest = 0;
    const char *model = "language_model.model";
    if (sscanf(name, "model.lower_layers.%d.%n", &layer, &rest) == 1 && rest > 0) {
        snprintf(out, 192, "%s.layers.%d.%s", model, layer, name + rest);
        return;
    }
    if (sscanf(name, "model.upper_layers.%d.%d.%n", &group, &layer, &rest) == 2 && rest > 0) {
        layer += c->lower_layers;
        for (int g = 0; g < group; g++)
            layer += c->group_layers[g];
        snprintf(out, 192, "%s.layers.%d.%s", model, layer, name + rest);
        return;
    }
    snprintf(out, 192, "language_model.%s", name);
}

static bool graft_only_retrieval(const char *name) {
    return starts_with(name, "model.encoder.") || starts_with(name, "model.enc_prenorm.") ||
           starts_with(name, "model.chunk_") || starts_with(name, "model.lmk_") || strstr(name, ".gca.");
}

struct graft {
    const struct model_config *config;
    const struct safetensors *file;
    bool *used; /* [tensors of the file] */
    bool base;  /* the file is a Base LM's */
    int taken, fresh, left;
};

/* Whether the tensor is the projection of keys of another size than the config's. */
static bool graft_other_keys(const struct graft *g, const struct tensor_view *t) {
    return strcmp(t->name, "memory.key_proj.weight") == 0 && t->shape[0] != g->config->memory_size;
}

static enum status graft_tensor(struct graft *g, const struct param *t) {
    char name[192];
    snprintf(name, sizeof name, "%s", t->name);
    if (g->base && !g->config->base_lm) graft_base_name(name, g->config, t->name);
    if (starts_with(t->name, "memory.")) snprintf(name, sizeof name, "%s", t->name);
    bool may_lack = strcmp(t->name, sketch_idf) == 0 || starts_with(t->name, "memory.") ||
                    (g->base && graft_only_retrieval(t->name)) || strstr(t->name, ".recurrent.");
    const struct tensor_view *found = safetensors_find(g->file, name);
    if (found && graft_other_keys(g, found)) found = NULL;
    if (!found && may_lack) {
        g->fresh++;
        /* GCA and a recurrent state add nothing at first, so that the model begins as the Base LM that
         * it was made from. */
        if (ends_with(t->name, ".gca.o_proj.weight") || ends_with(t->name, ".recurrent.o_proj.weight"))
            memset((void *)t->data, 0, (size_t)(t->rows * t->cols) * sizeof *t->data);
        return STATUS_OK;
    }
    TRY(load_tensor(t, name, g->file));
    g->taken++;
    for (int i = 0; i < safetensors_count(g->file); i++)
        if (strcmp(safetensors_at(g->file, i)->name, name) == 0) g->used[i] = true;
    return STATUS_OK;
}

/* Whether the tensor is of a lower layer that a DRT model has and the config lacks, of a token memory that the config
 * has not, or not with keys of this size, or of a sketch that the config has not. */
static bool graft_left_out(const struct graft *g, const struct tensor_view *t) {
    const char *name = t->name;
    int layer;
    if (starts_with(name, "memory.")) return g->config->memory_layer == 0 || graft_other_keys(g, t);
    if (strcmp(name, sketch_idf) == 0) return g->config->landmark_sketch == 0;
    return !g->config->base_lm && sscanf(name, "model.lower_layers.%d.", &layer) == 1 &&
           layer >= g->config->lower_layers;
}

static enum status graft_check_unused(struct graft *g) {
    for (int i = 0; i < safetensors_count(g->file); i++) {
        const struct tensor_view *t = safetensors_at(g->file, i);
        const char *name = t->name;
        if (graft_left_out(g, t)) {
            g->left++;
            continue;
        }
        if (!g->used[i] && !params_ignored(name))
            return fail(STATUS_MISMATCH,
                        "%s: tensor %s has no counterpart in a model with this config: its layers must be those of the "
                        "folder, whatever their split (decoder_layers)",
                        safetensors_path(g->file), name);
    }
    return STATUS_OK;
}

enum status params_graft(struct params **out, const struct model_config *config, const struct safetensors *file,
                         uint64_t seed, struct params_grafted *counts) {
    struct params *p;
    struct graft g = {.config = config, .file = file};
    TRY(params_init(&p, config, seed));
    for (int i = 0; i < safetensors_count(file); i++)
        g.base = g.base || starts_with(safetensors_at(file, i)->name, "language_model.");
    enum status s;
    TRY_GOTO(s, memory_allocate_zero(&g.used, (size_t)safetensors_count(file) + 1), out);
    for (int i = 0; i < p->count; i++)
        TRY_GOTO(s, graft_tensor(&g, &p->table[i]), out);
    s = graft_check_unused(&g);
out:
    memory_free(g.used);
    *counts = (struct params_grafted){.taken = g.taken, .fresh = g.fresh, .left = g.left};
    if (s == STATUS_OK)
        *out = p;
    else
        params_free(p);
    return s;
}

static enum status to_half(uint16_t *out, const struct param *t, enum safetensors_dtype dtype) {
    int64_t n = t->rows * t->cols;
    for (int64_t i = 0; i < n; i++) {
        if (dtype == SAFETENSORS_F16 && fabsf(t->data[i]) > 65504.0f)
            return fail(STATUS_UNSUPPORTED, "tensor %s: element %lld is %g, too large for F16: use BF16 or F32",
                        t->name, (long long)i, (double)t->data[i]);
        if (dtype == SAFETENSORS_BF16) out[i] = half_to_bf16(t->data[i]);
    }
    if (dtype == SAFETENSORS_F16) half_to_f16_row(out, t->data, (size_t)n);
    return STATUS_OK;
}

enum status params_save(const struct params *p, const char *path, enum safetensors_dtype dtype,
                        const char *metadata_json) {
    assert(p->block);
    if (dtype != SAFETENSORS_F32 && dtype != SAFETENSORS_F16 && dtype != SAFETENSORS_BF16)
        return fail(STATUS_UNSUPPORTED, "%s: weights are written as F32, F16 or BF16", path);
    struct tensor_view *views = NULL;
    uint16_t *half = NULL, *at;
    enum status s;
    TRY_GOTO(s, memory_allocate_zero(&views, (size_t)p->count), out);
    if (dtype != SAFETENSORS_F32) TRY_GOTO(s, memory_allocate(&half, (size_t)p->elements), out);
    at = half;
    for (int i = 0; i < p->count; i++) {
        const struct param *t = &p->table[i];
        bool vector = t->rows == 1;
        views[i] = (struct tensor_view){
            .name = t->name, .dtype = dtype, .dims = vector ? 1 : 2, .data = t->data, .count = t->rows * t->cols};
        views[i].shape[0] = vector ? t->cols : t->rows;
        views[i].shape[1] = vector ? 0 : t->cols;
        if (!half) continue;
        TRY_GOTO(s, to_half(at, t, dtype), out);
        views[i].data = at;
        at += views[i].count;
    }
    s = safetensors_write(path, views, p->count, metadata_json);
out:
    memory_free(half);
    memory_free(views);
    return s;
}

int params_count(const struct params *p) {
    return p->count;
}

const struct param *params_at(const struct params *p, int index) {
    assert(index >= 0 && index < p->count);
    return &p->table[index];
}

const float *params_get(const struct params *p, const char *name) {
    const struct param *t = params_find(p, name);
    assert(t && t->data);
    return t->data;
}

void params_set(struct params *p, const char *name, const float *values) {
    const struct param *t = params_find(p, name);
    assert(t && t->data);
    memcpy((float *)t->data, values, (size_t)(t->rows * t->cols) * sizeof *values);
}

int64_t params_elements(const struct params *p) {
    return p->elements;
}

/* Hashes the tensors that `counts` selects; NULL: all. */
static void params_fingerprint_of(const struct params *p, bool (*counts)(const char *name), uint8_t out[16]) {
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (int i = 0; i < p->count; i++) {
        const struct param *t = &p->table[i];
        if (counts && !counts(t->name)) continue;
        XXH3_128bits_update(&state, t->name, strlen(t->name) + 1);
        XXH3_128bits_update(&state, t->data, (size_t)(t->rows * t->cols) * sizeof(float));
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out, canonical.digest, 16);
}

/* All weights of a Base LM but those of its token memory. Of a sketch also the idf. */
static bool makes_landmarks(const char *name) {
    return starts_with(name, "language_model.") || strcmp(name, "model.embed_tokens.weight") == 0 ||
           strcmp(name, "model.enc_prenorm.weight") == 0 || strcmp(name, "model.lmk_k_proj.weight") == 0 ||
           starts_with(name, "model.encoder.") || strcmp(name, sketch_idf) == 0;
}

void params_landmark_fingerprint(const struct params *p, uint8_t out[16]) {
    params_fingerprint_of(p, makes_landmarks, out);
}
void params_fingerprint(const struct params *p, uint8_t out[16]) {
    params_fingerprint_of(p, NULL, out);
}
