/* bert_weights.c -- checks the tensors of a BERT-type encoder and copies them to a device. Matrices are packed, because
 * a build uses them in millions of products. Loading needs memory for one tensor in float32 in addition to the device's
 * weights. */
#include "base/file.h"
#include "base/formats/torch_checkpoint.h"
#include "base/half.h"
#include "base/memory.h"
#include "encoder/bert/bert_internal.h"
#include "kernels/device/carve.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* puts the hash state on the stack */
#include <xxhash.h>

enum { NAME_MAX_BYTES = 128 };

struct bert_loader {
    struct bert_weights *w;
    const struct bert_config *config;
    struct device *dev;
    enum dtype type;
    char path[FILE_PATH_MAX];
    struct safetensors *tensors; /* one of these two is open */
    struct torch_checkpoint *torch;
    float *values;    /* one tensor */
    uint16_t *narrow; /* the same tensor as bf16 */
    void *stage;      /* on the device: a matrix before it is packed */
    XXH3_state_t hash;
};

/* ---- memory of the device ---------------------------------------------------------------------------------- */

static struct bert_linear carve_linear(struct carve *c, const struct bert_loader *l, int64_t out, int64_t in) {
    int64_t packed = l->dev->ops->matmul->packed_elements(out, in);
    return (struct bert_linear){.packed = carve_bytes(c, packed, (size_t)dtype_bytes(l->type)),
                                .out = out,
                                .in = in,
                                .bias = carve_mat(c, l->type, 1, out)};
}

static struct bert_norm carve_norm(struct carve *c, const struct bert_loader *l) {
    int64_t d = l->config->hidden;
    return (struct bert_norm){carve_mat(c, l->type, 1, d), carve_mat(c, l->type, 1, d), l->config->eps};
}

static void carve_weights(void *of, struct carve *c) {
    const struct bert_loader *l = of;
    struct bert_weights *w = l->w;
    int64_t d = l->config->hidden, f = l->config->ffn;
    w->words = carve_mat(c, l->type, l->config->vocab_size, d);
    w->positions = carve_mat(c, l->type, l->config->positions, d);
    w->type = carve_mat(c, l->type, 1, d);
    w->norm = carve_norm(c, l);
    for (int i = 0; i < l->config->layers; i++) {
        struct bert_layer *layer = &w->layers[i];
        layer->qkv = carve_linear(c, l, 3 * d, d);
        layer->output = carve_linear(c, l, d, d);
        layer->up = carve_linear(c, l, f, d);
        layer->down = carve_linear(c, l, d, f);
        layer->attention_norm = carve_norm(c, l);
        layer->norm = carve_norm(c, l);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static const struct tensor_view *find_exact(const struct bert_loader *l, const char *name) {
    if (l->tensors) return safetensors_find(l->tensors, name);
    for (int i = 0; i < torch_checkpoint_count(l->torch); i++)
        if (strcmp(torch_checkpoint_at(l->torch, i)->name, name) == 0) return torch_checkpoint_at(l->torch, i);
    return NULL;
}

/* Finds a tensor by either name: models with a head prefix their encoder's names with "bert.", and the oldest files
 * call LayerNorm's weight and bias gamma and beta. */
static const struct tensor_view *find_tensor(const struct bert_loader *l, const char *name) {
    static const char *const prefixes[] = {"", "bert."};
    static const char *const old[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    char full[2 * NAME_MAX_BYTES];
    const struct tensor_view *found = NULL;
    for (size_t p = 0; p < ARRAY_LEN(prefixes) && !found; p++) {
        snprintf(full, sizeof full, "%s%s", prefixes[p], name);
        found = find_exact(l, full);
        for (size_t i = 0; i < ARRAY_LEN(old) && !found; i++) {
            const char *at = strstr(name, old[i][0]);
            if (!at) continue;
            snprintf(full, sizeof full, "%s%.*s%s", prefixes[p], (int)(at - name), name, old[i][1]);
            found = find_exact(l, full);
        }
    }
    return found;
}

static enum status check_tensor(const struct bert_loader *l, const char *name, const struct tensor_view *v,
                                int64_t rows, int64_t cols) {
    bool vector = v && v->dims == 1 && rows == 1 && v->shape[0] == cols;
    bool matrix = v && v->dims == 2 && v->shape[0] >= rows && v->shape[1] == cols;
    if (!v)
        return fail(STATUS_MISMATCH, "%s: tensor %s is missing: config.json requires it (%lld x %lld)", l->path, name,
                    (long long)rows, (long long)cols);
    if (!vector && !(matrix && (v->shape[0] == rows || strstr(name, "token_type"))))
        return fail(STATUS_MISMATCH,
                    "%s: tensor %s has %lld numbers in %d dimensions: config.json requires %lld x %lld", l->path, name,
                    (long long)v->count, v->dims, (long long)rows, (long long)cols);
    if (v->dtype != SAFETENSORS_F32 && v->dtype != SAFETENSORS_F16 && v->dtype != SAFETENSORS_BF16)
        return fail(STATUS_MISMATCH, "%s: tensor %s is %s: weights are F32, F16 or BF16", l->path, name,
                    safetensors_dtype_name(v->dtype));
    return STATUS_OK;
}

/* Copies a tensor to dense device memory. The hash covers its numbers in float32, for every type that is computed
 * in. */
static enum status put_tensor(struct bert_loader *l, struct mat to, const char *name) {
    const struct tensor_view *v = find_tensor(l, name);
    TRY(check_tensor(l, name, v, to.rows, to.cols));
    struct tensor_view part = *v; /* only row 0 of the table of types is used */
    part.count = to.rows * to.cols;
    TRY(safetensors_to_f32(l->values, &part));
    for (int64_t i = 0; i < part.count; i++)
        if (!isfinite(l->values[i]))
            return fail(STATUS_CORRUPT, "%s: tensor %s: element %lld is not a finite number", l->path, name,
                        (long long)i);
    XXH3_128bits_update(&l->hash, name, strlen(name) + 1);
    XXH3_128bits_update(&l->hash, l->values, (size_t)part.count * sizeof *l->values);
    for (int64_t i = 0; i < part.count && l->narrow; i++)
        l->narrow[i] = half_to_bf16(l->values[i]);
    device_upload(l->dev, to.data, l->narrow ? (const void *)l->narrow : l->values, mat_bytes(to));
    return STATUS_OK;
}

/* `names`: the parts of one matrix, from top to bottom. */
static enum status put_linear(struct bert_loader *l, const struct bert_linear *to, int layer, const char *const *names,
                              int n) {
    char name[NAME_MAX_BYTES];
    int64_t rows = to->out / n;
    struct mat stage = mat_dense(l->stage, l->type, to->out, to->in);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "encoder.layer.%d.%s.weight", layer, names[i]);
        TRY(put_tensor(l, mat_rows(stage, i * rows, rows), name));
        snprintf(name, sizeof name, "encoder.layer.%d.%s.bias", layer, names[i]);
        TRY(put_tensor(l, mat_cols(to->bias, i * rows, rows), name));
    }
    l->dev->ops->matmul->pack(l->dev, to->packed, stage);
    return STATUS_OK;
}

static enum status put_norm(struct bert_loader *l, const struct bert_norm *to, const char *of) {
    char name[NAME_MAX_BYTES + 32];
    snprintf(name, sizeof name, "%s.LayerNorm.weight", of);
    TRY(put_tensor(l, to->w, name));
    snprintf(name, sizeof name, "%s.LayerNorm.bias", of);
    return put_tensor(l, to->b, name);
}

static enum status put_layer(struct bert_loader *l, int i) {
    static const char *const qkv[] = {"attention.self.query", "attention.self.key", "attention.self.value"};
    static const char *const output[] = {"attention.output.dense"}, *const up[] = {"intermediate.dense"},
                             *const down[] = {"output.dense"};
    const struct bert_layer *layer = &l->w->layers[i];
    char of[NAME_MAX_BYTES];
    TRY(put_linear(l, &layer->qkv, i, qkv, 3));
    TRY(put_linear(l, &layer->output, i, output, 1));
    TRY(put_linear(l, &layer->up, i, up, 1));
    TRY(put_linear(l, &layer->down, i, down, 1));
    snprintf(of, sizeof of, "encoder.layer.%d.attention.output", i);
    TRY(put_norm(l, &layer->attention_norm, of));
    snprintf(of, sizeof of, "encoder.layer.%d.output", i);
    return put_norm(l, &layer->norm, of);
}

static enum status put_all(struct bert_loader *l) {
    const struct bert_config *c = l->config;
    const int32_t sizes[] = {c->hidden, c->ffn, c->heads, c->layers, c->max_tokens};
    XXH3_128bits_reset(&l->hash);
    XXH3_128bits_update(&l->hash, sizes, sizeof sizes);
    XXH3_128bits_update(&l->hash, &c->eps, sizeof c->eps);
    TRY(put_tensor(l, l->w->words, "embeddings.word_embeddings.weight"));
    TRY(put_tensor(l, l->w->positions, "embeddings.position_embeddings.weight"));
    TRY(put_tensor(l, l->w->type, "embeddings.token_type_embeddings.weight"));
    TRY(put_norm(l, &l->w->norm, "embeddings"));
    for (int i = 0; i < c->layers; i++)
        TRY(put_layer(l, i));
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&l->hash));
    memcpy(l->w->fingerprint, canonical.digest, 16);
    return device_sync(l->dev);
}

static enum status open_file(struct bert_loader *l, const char *folder) {
    TRY(file_join(l->path, folder, "model.safetensors"));
    if (file_exists(l->path)) return safetensors_open(&l->tensors, l->path);
    TRY(file_join(l->path, folder, "pytorch_model.bin"));
    if (file_exists(l->path)) return torch_checkpoint_open(&l->torch, l->path);
    TRY(safetensors_check_folder(folder));
    return fail(STATUS_NOT_FOUND, "%s: has neither model.safetensors nor pytorch_model.bin", folder);
}

static enum status bert_weights_load_folder(struct bert_loader *l, const char *folder) {
    int64_t d = l->config->hidden, f = l->config->ffn, widest = f > 3 * d ? f : 3 * d;
    int64_t longest = l->config->vocab_size > l->config->positions ? l->config->vocab_size : l->config->positions;
    size_t most = (size_t)(longest > widest ? longest : widest) * (size_t)d;
    TRY(open_file(l, folder));
    TRY(memory_allocate_zero(&l->w->layers, (size_t)l->config->layers));
    TRY(carve_device(l->dev, &l->w->memory, &l->w->bytes, carve_weights, l));
    TRY(memory_allocate(&l->values, most));
    if (l->type != DTYPE_F32) TRY(memory_allocate(&l->narrow, most));
    TRY(device_allocate_bytes(l->dev, &l->stage, (size_t)(widest * d * dtype_bytes(l->type))));
    return put_all(l);
}

enum status bert_weights_load(struct bert_weights *out, const char *folder, const struct bert_config *config,
                              struct device *dev, enum dtype type) {
    struct bert_loader *l;
    TRY(memory_allocate_zero(&l, 1));
    *out = (struct bert_weights){0};
    l->w = out;
    l->config = config;
    l->dev = dev;
    l->type = type;
    enum status s = bert_weights_load_folder(l, folder);
    device_release(dev, l->stage);
    memory_free(l->narrow);
    memory_free(l->values);
    torch_checkpoint_close(l->torch);
    safetensors_close(l->tensors);
    memory_free(l);
    if (s != STATUS_OK) bert_weights_free(out, dev);
    return s;
}

void bert_weights_free(struct bert_weights *w, struct device *dev) {
    device_release(dev, w->memory);
    memory_free(w->layers);
    *w = (struct bert_weights){0};
}
