/* optimizer.c -- the weights, their moments and gradient on a device, and their update.
 *
 * Tensors are contiguous: adjacent ones with equal decay form one range, with about two calls a layer instead of nine.
 */
#include "train/step/optimizer.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include <assert.h>
#include <math.h>
#include <string.h>

struct range {
    int64_t first, count;
    bool decays;
    enum optimizer_part part;
};

struct optimizer {
    struct device *dev;
    struct optimizer_config config;
    struct weights master, copy, gradients, moments[2]; /* copy: if it is float32, it has no memory of its own */
    struct range *ranges;
    int n_ranges;
    /* On the device, [OPTIMIZER_PARTS + 1]: of each part, and of one piece of a part that is not contiguous. */
    float *sum_of_squares;
};

static bool optimizer_decays(const struct param *t, const struct optimizer_config *config) {
    static const char embedding[] = "embed_tokens.weight";
    size_t n = strlen(t->name), m = sizeof embedding - 1;
    if (n >= m && strcmp(t->name + n - m, embedding) == 0) return config->decay_embedding;
    return t->rows > 1; /* norms have one row */
}

static bool optimizer_starts_with(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static enum optimizer_part optimizer_part_of(const struct param *t) {
    static const char *const retriever[] = {"model.encoder.", "model.enc_prenorm.", "model.chunk_", "model.lmk_"};
    if (optimizer_starts_with(t->name, "memory.")) return OPTIMIZER_MEMORY;
    for (size_t i = 0; i < ARRAY_LEN(retriever); i++)
        if (optimizer_starts_with(t->name, retriever[i])) return OPTIMIZER_RETRIEVER;
    return strstr(t->name, ".gca.") ? OPTIMIZER_RETRIEVER : OPTIMIZER_TRUNK;
}

/* The part whose norm includes the range. */
static enum optimizer_part optimizer_norm_of(const struct optimizer *o, const struct range *r) {
    return r->part == OPTIMIZER_RETRIEVER && !o->config.retriever_apart ? OPTIMIZER_TRUNK : r->part;
}

static enum status optimizer_find_ranges(struct optimizer *o, const struct params *table) {
    TRY(memory_allocate(&o->ranges, (size_t)params_count(table)));
    int64_t at = 0;
    for (int i = 0; i < params_count(table); i++) {
        const struct param *t = params_at(table, i);
        int64_t n = t->rows * t->cols;
        struct range range = {.first = at, .decays = optimizer_decays(t, &o->config), .part = optimizer_part_of(t)};
        struct range *before = o->n_ranges > 0 ? &o->ranges[o->n_ranges - 1] : NULL;
        if (!before || before->decays != range.decays || before->part != range.part) o->ranges[o->n_ranges++] = range;
        o->ranges[o->n_ranges - 1].count += n;
        at += n;
    }
    return STATUS_OK;
}

enum status optimizer_create(struct optimizer **out, struct device *dev, const struct optimizer_config *config,
                             const struct params *initial, enum dtype type) {
    assert(type == DTYPE_F32 || type == DTYPE_BF16);
    struct optimizer *o;
    TRY(memory_allocate_zero(&o, 1));
    o->dev = dev;
    o->config = *config;
    enum status s;
    TRY_GOTO(s, optimizer_find_ranges(o, initial), out);
    TRY_GOTO(s, weights_upload(&o->master, dev, initial, DTYPE_F32), out);
    if (type != DTYPE_F32) TRY_GOTO(s, weights_upload(&o->copy, dev, initial, type), out);
    TRY_GOTO(s, weights_create(&o->gradients, dev, initial, DTYPE_F32), out);
    for (int i = 0; i < 2; i++)
        TRY_GOTO(s, weights_create(&o->moments[i], dev, initial, DTYPE_F32), out);
    TRY_GOTO(s, device_allocate(dev, &o->sum_of_squares, OPTIMIZER_PARTS + 1), out);
    *out = o;
out:
    if (s != STATUS_OK) optimizer_free(o);
    return s;
}

void optimizer_free(struct optimizer *o) {
    if (!o) return;
    weights_release(&o->master, o->dev);
    weights_release(&o->copy, o->dev);
    weights_release(&o->gradients, o->dev);
    weights_release(&o->moments[0], o->dev);
    weights_release(&o->moments[1], o->dev);
    device_release(o->dev, o->sum_of_squares);
    memory_free(o->ranges);
    memory_free(o);
}

const struct weights *optimizer_weights(const struct optimizer *o) {
    return o->copy.data ? &o->copy : &o->master;
}
const struct weights *optimizer_gradients(const struct optimizer *o) {
    return &o->gradients;
}
const struct weights *optimizer_master(const struct optimizer *o) {
    return &o->master;
}
const struct weights *optimizer_moment(const struct optimizer *o, int which) {
    assert(which == 0 || which == 1);
    return &o->moments[which];
}

static int64_t optimizer_elements(const struct optimizer *o) {
    return params_elements(o->master.table);
}

void optimizer_refresh(struct optimizer *o) {
    if (!o->copy.data) return;
    int64_t n = optimizer_elements(o);
    o->dev->ops->elementwise->convert(o->dev, mat_dense(o->copy.data, o->copy.type, 1, n),
                                      mat_dense(o->master.data, DTYPE_F32, 1, n));
}

void optimizer_clear_gradients(struct optimizer *o) {
    device_clear(o->dev, o->gradients.data, (size_t)optimizer_elements(o) * sizeof(float));
}

static struct mat optimizer_copy_range(const struct optimizer *o, const struct range *r) {
    unsigned char *data = o->copy.data;
    return mat_dense(data ? data + r->first * dtype_bytes(o->copy.type) : NULL, o->copy.type, 1, r->count);
}

/* Adjacent ranges of one norm are summed as one piece: without separate parts, the whole gradient is one piece. */
static void optimizer_sum_squares(struct optimizer *o) {
    const float *g = o->gradients.data;
    float *piece = o->sum_of_squares + OPTIMIZER_PARTS;
    bool begun[OPTIMIZER_PARTS] = {false};
    for (int i = 0; i < o->n_ranges;) {
        enum optimizer_part part = optimizer_norm_of(o, &o->ranges[i]);
        float *sum = o->sum_of_squares + part;
        int64_t first = o->ranges[i].first, n = 0;
        for (; i < o->n_ranges && optimizer_norm_of(o, &o->ranges[i]) == part; i++)
            n += o->ranges[i].count;
        o->dev->ops->adamw->norm(o->dev, begun[part] ? piece : sum, g + first, n);
        struct mat all = mat_dense(sum, DTYPE_F32, 1, 1);
        if (begun[part]) o->dev->ops->elementwise->add(o->dev, all, all, mat_dense(piece, DTYPE_F32, 1, 1));
        begun[part] = true;
    }
}

void optimizer_step(struct optimizer *o, const struct optimizer_now *now) {
    const struct adamw_ops *adamw = o->dev->ops->adamw;
    float *p = o->master.data, *m = o->moments[0].data, *v = o->moments[1].data, *g = o->gradients.data;
    optimizer_sum_squares(o);
    for (int i = 0; i < o->n_ranges; i++) {
        const struct range *r = &o->ranges[i];
        struct adamw_step how = {.lr = r->part == OPTIMIZER_TRUNK ? now->lr * o->config.trunk : now->lr,
                                 .beta1 = o->config.beta1,
                                 .beta2 = o->config.beta2,
                                 .eps = o->config.eps,
                                 .decay = r->decays ? o->config.decay : 0.0f,
                                 .step = now->step};
        struct adamw_state state = {p + r->first, m + r->first, v + r->first, optimizer_copy_range(o, r)};
        const float *sum_of_squares = o->sum_of_squares + optimizer_norm_of(o, r);
        adamw->update(o->dev, state, g + r->first, r->count, sum_of_squares, o->config.clip, how);
    }
}

enum status optimizer_gradient_norms(struct optimizer *o, double out[OPTIMIZER_PARTS]) {
    float sum[OPTIMIZER_PARTS];
    device_download(o->dev, sum, o->sum_of_squares, sizeof sum);
    TRY(device_sync(o->dev));
    for (int part = 0; part < OPTIMIZER_PARTS; part++)
        out[part] = -1.0;
    for (int i = 0; i < o->n_ranges; i++) {
        enum optimizer_part part = optimizer_norm_of(o, &o->ranges[i]);
        out[part] = sqrt((double)sum[part]);
    }
    return STATUS_OK;
}
