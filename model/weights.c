/* weights.c -- the tensors of a model in device memory. */
#include "model/weights.h"
#include "base/half.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

enum { ROUND_GRAIN = 1 << 18 };

struct weights weights_of_params(const struct params *p) {
    return (struct weights){.table = p, .data = (void *)params_at(p, 0)->data, .type = DTYPE_F32};
}

enum status weights_create(struct weights *out, struct device *dev, const struct params *table, enum dtype type) {
    *out = (struct weights){.table = table, .type = type};
    return device_allocate(dev, &out->data, (size_t)params_elements(table) * (size_t)dtype_bytes(type));
}

struct rounding {
    uint16_t *to;
    const float *from;
};

static void round_weights(void *context, int64_t begin, int64_t end, int worker) {
    const struct rounding *r = context;
    (void)worker;
    half_to_bf16_row(r->to + begin, r->from + begin, (size_t)(end - begin));
}

enum status weights_upload(struct weights *out, struct device *dev, const struct params *p, enum dtype type) {
    assert(type == DTYPE_F32 || type == DTYPE_BF16);
    size_t n = (size_t)params_elements(p);
    const float *from = params_at(p, 0)->data;
    TRY(weights_create(out, dev, p, type));
    if (type == DTYPE_F32) {
        device_upload(dev, out->data, from, n * sizeof *from);
        return STATUS_OK;
    }
    uint16_t *rounded = NULL;
    enum status s = memory_allocate(&rounded, n);
    if (s != STATUS_OK) {
        weights_release(out, dev);
        return s;
    }
    threads_for(dev->threads, (int64_t)n, ROUND_GRAIN, round_weights, &(struct rounding){rounded, from});
    device_upload(dev, out->data, rounded, n * sizeof *rounded);
    memory_free(rounded); /* device_upload has copied it (device.h) */
    return STATUS_OK;
}

enum status weights_open(struct weights *out, struct device *dev, const struct params *p, enum dtype type) {
    if (!dev->shares_memory || type != DTYPE_F32) return weights_upload(out, dev, p, type);
    *out = weights_of_params(p);
    return STATUS_OK;
}

/* Whether bf16 represents these numbers exactly. */
static bool weights_fits(const float *x, int64_t n) {
    uint32_t lower = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        lower |= bits & 0xffff;
    }
    return lower == 0;
}

enum status weights_narrow(struct weights *w, struct device *dev, bool (*wanted)(const char *name)) {
    assert(dev->shares_memory && w->type == DTYPE_F32 && !w->narrow);
    /* Reserves address space for every element. Pages that are not written take no memory. */
    TRY(device_allocate(dev, &w->narrow, (size_t)params_elements(w->table) * sizeof(uint16_t)));
    const float *from = w->data;
    uint16_t *to = w->narrow;
    for (int i = 0; i < params_count(w->table); i++) {
        const struct param *t = params_at(w->table, i);
        int64_t all = t->rows * t->cols, n = t->rows > 1 && wanted(t->name) ? all : 0;
        if (!weights_fits(from, n)) {
            device_release(dev, w->narrow);
            w->narrow = NULL;
            return STATUS_OK;
        }
        for (int64_t j = 0; j < n; j++)
            to[j] = half_to_bf16(from[j]);
        from += all;
        to += all;
    }
    return STATUS_OK;
}

struct weights weights_narrowed(const struct weights *w) {
    return (struct weights){.table = w->table, .data = w->narrow, .type = DTYPE_BF16};
}

/* Rounded matrices one after the other. at: by tensor, where its copy begins; -1: there is none. */
struct weights_i8 {
    unsigned char *data;
    int64_t *at;
    enum dtype others; /* the type of tensors without a copy */
};

static void weights_i8_free(struct weights_i8 *i8, struct device *dev) {
    if (!i8) return;
    device_release(dev, i8->data);
    memory_free(i8->at);
    memory_free(i8);
}

/* Determines where each copy begins, and how many bytes all have. */
static enum status place_copies(struct weights_i8 *i8, int64_t *bytes, const struct params *table,
                                bool (*wanted)(const char *name)) {
    *bytes = 0;
    for (int i = params_count(table) - 1; i >= 0; i--) {
        const struct param *t = params_at(table, i), *next = i + 1 < params_count(table) ? t + 1 : NULL;
        i8->at[i] = t->rows > 1 && wanted(t->name) ? 0 : -1;
        const bool spans = next && i8->at[i] == 0 && next->rows == t->rows && next->cols == t->cols;
        if (spans && t->rows % MATMUL_I8_PANEL != 0)
            return fail(STATUS_UNSUPPORTED,
                        "%s: has %lld rows, and 8-bit weights need a multiple of %d: use --dtype auto or f32", t->name,
                        (long long)t->rows, MATMUL_I8_PANEL);
    }
    for (int i = 0; i < params_count(table); i++) {
        const struct param *t = params_at(table, i);
        if (i8->at[i] < 0) continue;
        i8->at[i] = *bytes;
        *bytes += matmul_i8_bytes(t->rows, t->cols);
    }
    return STATUS_OK;
}

/* Rounds the matrices into `packed`, host memory. */
static void pack_copies(const struct weights_i8 *i8, struct device *dev, unsigned char *packed,
                        const struct params *table) {
    const float *from = params_at(table, 0)->data;
    assert(from);
    for (int i = 0; i < params_count(table); i++) {
        const struct param *t = params_at(table, i);
        if (i8->at[i] >= 0) matmul_cpu.pack_i8(dev, packed + i8->at[i], mat_f32(from, t->rows, t->cols));
        from += t->rows * t->cols;
    }
}

/* Uploads `packed`, and its numbers as bf16 in the layout of the other weights. */
static enum status upload_copies(struct weights *w, const struct weights_i8 *i8, struct device *dev,
                                 unsigned char *packed, int64_t bytes) {
    const struct params *table = w->table;
    uint16_t *numbers = NULL, *to;
    device_upload(dev, i8->data, packed, (size_t)bytes);
    TRY(memory_allocate_zero(&numbers, (size_t)params_elements(table)));
    to = numbers;
    for (int i = 0; i < params_count(table); i++) {
        const struct param *t = params_at(table, i);
        if (i8->at[i] >= 0) matmul_cpu.unpack_i8(dev, to, mat_dense(packed + i8->at[i], DTYPE_I8, t->rows, t->cols));
        to += t->rows * t->cols;
    }
    const size_t all = (size_t)params_elements(table) * sizeof *numbers;
    enum status status = device_allocate(dev, &w->narrow, all);
    if (status == STATUS_OK) device_upload(dev, w->narrow, numbers, all);
    memory_free(numbers); /* device_upload has copied it (device.h) */
    return status;
}

enum status weights_round(struct weights *w, struct device *dev, bool (*wanted)(const char *name)) {
    struct weights_i8 *i8;
    unsigned char *packed = NULL;
    int64_t bytes;
    enum status status;
    assert(w->type == (dev->shares_memory ? DTYPE_F32 : DTYPE_BF16) && !w->i8 && !w->narrow);
    TRY(memory_allocate_zero(&i8, 1));
    i8->others = w->type;
    TRY_GOTO(status, memory_allocate(&i8->at, (size_t)params_count(w->table)), out);
    TRY_GOTO(status, place_copies(i8, &bytes, w->table, wanted), out);
    TRY_GOTO(status, device_allocate(dev, &i8->data, bytes), out);
    if (!dev->shares_memory) TRY_GOTO(status, memory_allocate_aligned(&packed, (size_t)bytes), out);
    pack_copies(i8, dev, packed ? packed : i8->data, w->table);
    if (packed) TRY_GOTO(status, upload_copies(w, i8, dev, packed, bytes), out);
    memory_free(packed);
    w->i8 = i8;
    return STATUS_OK;
out:
    memory_free(packed);
    weights_i8_free(i8, dev);
    return status;
}

struct weights weights_rounded(const struct weights *w) {
    if (!w->i8) return (struct weights){0};
    return (struct weights){.table = w->table, .data = w->data, .type = DTYPE_I8, .i8 = w->i8};
}

void weights_release(struct weights *w, struct device *dev) {
    device_release(dev, w->narrow);
    w->narrow = NULL;
    weights_i8_free(w->i8, dev);
    w->i8 = NULL;
    if (w->data && w->data != (const void *)params_at(w->table, 0)->data) device_release(dev, w->data);
    w->data = NULL;
}

struct mat weights_tensor(const struct weights *w, const char *name) {
    int64_t at = 0;
    for (int i = 0; i < params_count(w->table); i++) {
        const struct param *t = params_at(w->table, i);
        if (strcmp(t->name, name) == 0) {
            if (w->type == DTYPE_I8 && w->i8->at[i] >= 0)
                return mat_dense(w->i8->data + w->i8->at[i], DTYPE_I8, t->rows, t->cols);
            const enum dtype type = w->type == DTYPE_I8 ? w->i8->others : w->type;
            return mat_dense((unsigned char *)w->data + at * dtype_bytes(type), type, t->rows, t->cols);
        }
        at += t->rows * t->cols;
    }
    assert(!"the config has such a tensor");
    return (struct mat){0};
}
