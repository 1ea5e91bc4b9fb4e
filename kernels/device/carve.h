/* carve.h -- divides one allocation into 256-byte aligned parts. The same calls run twice: first with base NULL, which
 * only counts, then on the memory (carve_device does both). */
#pragma once
#include "kernels/device/device.h"

struct carve { unsigned char *base; size_t used; };

static inline void *carve_bytes(struct carve *c, int64_t count, size_t size) {
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += ((size_t)count * size + 255) / 256 * 256;
    return piece;
}
/* Allocates device memory for all parts that divide(of, carve) takes, and divides it. The caller owns *memory
 * (device_release). */
static inline enum status carve_device(struct device *dev, void **memory, size_t *bytes,
                                       void (*divide)(void *of, struct carve *c), void *of) {
    struct carve count = {0};
    divide(of, &count);
    TRY(device_allocate_bytes(dev, memory, count.used));
    *bytes = count.used;
    struct carve real = {.base = (unsigned char *)*memory};
    divide(of, &real);
    return STATUS_OK;
}
static inline struct mat carve_mat(struct carve *c, enum dtype type, int64_t rows, int64_t cols) {
    return mat_dense(carve_bytes(c, rows * cols, (size_t)dtype_bytes(type)), type, rows, cols);
}
