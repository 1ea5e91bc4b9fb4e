/* carve.h -- one piece of memory dealt out in parts, 256-byte aligned: run the same calls first with base NULL to count,
 * then on the memory itself (carve_device does both). */
#pragma once
#include "kernels/device/device.h"

struct carve { unsigned char *base; size_t used; };

static inline void *carve_bytes(struct carve *c, int64_t count, size_t size) {
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += ((size_t)count * size + 255) / 256 * 256;
    return piece;
}
/* Memory of the device for all that deal(of, carve) takes, dealt out. *memory and *bytes are whoever calls's own. */
static inline enum status carve_device(struct device *dev, void **memory, size_t *bytes, void (*deal)(void *of, struct carve *c),
                                       void *of) {
    struct carve count = {0};
    deal(of, &count);
    TRY(device_allocate_bytes(dev, memory, count.used));
    *bytes = count.used;
    struct carve real = {.base = (unsigned char *)*memory};
    deal(of, &real);
    return STATUS_OK;
}
static inline struct mat carve_mat(struct carve *c, enum dtype type, int64_t rows, int64_t cols) {
    return mat_dense(carve_bytes(c, rows * cols, (size_t)dtype_bytes(type)), type, rows, cols);
}
