/* weights.c -- the tensors of a model in device memory. */
#include "model/weights.h"
#include "base/half.h"
#include "base/memory.h"
#include <assert.h>
#include <string.h>

struct weights weights_of_params(const struct params *p) {
    return (struct weights){.table = p, .data = (void *)params_at(p, 0)->data, .type = DTYPE_F32};
}

enum status weights_create(struct weights *out, struct device *dev, const struct params *table, enum dtype type) {
    *out = (struct weights){.table = table, .type = type};
    return device_allocate(dev, &out->data, (size_t)params_elements(table) * (size_t)dtype_bytes(type));
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
    for (size_t i = 0; i < n; i++)
        rounded[i] = half_to_bf16(from[i]);
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
static bool fits(const float *x, int64_t n) {
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
        if (!fits(from, n)) {
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

void weights_release(struct weights *w, struct device *dev) {
    device_release(dev, w->narrow);
    w->narrow = NULL;
    if (w->data && w->data != (const void *)params_at(w->table, 0)->data) device_release(dev, w->data);
    w->data = NULL;
}

struct mat weights_tensor(const struct weights *w, const char *name) {
    int64_t at = 0;
    for (int i = 0; i < params_count(w->table); i++) {
        const struct param *t = params_at(w->table, i);
        if (strcmp(t->name, name) == 0)
            return mat_dense((unsigned char *)w->data + at * dtype_bytes(w->type), w->type, t->rows, t->cols);
        at += t->rows * t->cols;
    }
    assert(!"the config has such a tensor");
    return (struct mat){0};
}
