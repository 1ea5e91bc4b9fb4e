/* carve.h -- one piece of memory dealt out in parts, 256-byte aligned: run the same calls first with base NULL to count,
 * then on the memory itself. */
#pragma once
#include "kernels/device.h"

struct carve { unsigned char *base; size_t used; };

static inline void *carve_bytes(struct carve *c, int64_t count, size_t size) {
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += ((size_t)count * size + 255) / 256 * 256;
    return piece;
}
static inline struct mat carve_mat(struct carve *c, enum dtype type, int64_t rows, int64_t cols) {
    return mat_dense(carve_bytes(c, rows * cols, (size_t)dtype_bytes(type)), type, rows, cols);
}
