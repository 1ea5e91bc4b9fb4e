/* golden_device.c -- inputs and outputs of ops, in memory of the device. */
#include "base/half.h"
#include "tests/golden/golden.h"

void *golden_put_bytes(struct golden *g, const void *from, int64_t count, size_t size) {
    void *memory;
    CHECK(g->n_device_memory < (int)ARRAY_LEN(g->device_memory));
    CHECK_OK(device_allocate(g->dev, &memory, (size_t)count * size));
    if (from) device_upload(g->dev, memory, from, (size_t)count * size);
    g->device_memory[g->n_device_memory++] = memory;
    return memory;
}

void golden_get_bytes(struct golden *g, void *to, const void *from, int64_t count, size_t size) {
    device_download(g->dev, to, from, (size_t)count * size);
    CHECK_OK(device_sync(g->dev));
}

struct mat golden_put(struct golden *g, const float *from, int64_t rows, int64_t cols, enum dtype type) {
    int64_t n = rows * cols;
    if (type == DTYPE_F32 || !from)
        return mat_dense(golden_put_bytes(g, from, n, (size_t)dtype_bytes(type)), type, rows, cols);
    uint16_t *rounded = golden_zeroed(n, sizeof *rounded);
    for (int64_t i = 0; i < n; i++)
        rounded[i] = half_to_bf16(from[i]);
    struct mat m = mat_dense(golden_put_bytes(g, rounded, n, sizeof *rounded), type, rows, cols);
    free(rounded);
    return m;
}

void golden_get(struct golden *g, float *to, struct mat from) {
    int64_t n = from.rows * from.cols;
    CHECK(from.stride == from.cols);
    if (from.type == DTYPE_F32) {
        golden_get_bytes(g, to, from.data, n, sizeof *to);
        return;
    }
    uint16_t *rounded = golden_zeroed(n, sizeof *rounded);
    golden_get_bytes(g, rounded, from.data, n, sizeof *rounded);
    for (int64_t i = 0; i < n; i++)
        to[i] = half_from_bf16(rounded[i]);
    free(rounded);
}

void golden_drop(struct golden *g) {
    while (g->n_device_memory)
        device_release(g->dev, g->device_memory[--g->n_device_memory]);
}
