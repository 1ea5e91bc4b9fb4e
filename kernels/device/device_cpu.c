/* device_cpu.c -- opens the CPU device: pool, scratch, and one serial device for each worker of the pool.
 *
 * OpenBLAS is limited to one thread: products are divided over the device's pool, so that OpenBLAS's threads do not
 * compete with it and results do not depend on the number of threads. */
#include "base/memory.h"
#include "kernels/device/device.h"
#include "kernels/device/device_internal.h"
#include "kernels/linear/blas_cpu.h"
#include "kernels/linear/matmul_amx.h"
#include "kernels/linear/matmul_bf16.h"
#include "kernels/linear/matmul_i8.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

/* A device and its states, and those of the serial devices, in one piece. */
struct device_memory {
    struct device device;
    struct device_cpu state;
    struct device_cpu worker[];
};

static void rope_tables(struct device_rope *rope, float *memory) {
    rope->cosine = memory;
    rope->sine = memory + DEVICE_ROPE_MAX;
}

static const struct device_runtime runtime;

enum status device_open_cpu(struct device **out, int threads) {
    struct threads *pool = NULL;
    void *memory = NULL;
    struct device_memory *m = NULL;
    unsigned char *scratch = NULL;
    struct device *serial = NULL;
    enum status s;
    TRY_GOTO(s, threads_create(&pool, threads), out);
    size_t workers = (size_t)threads_count(pool);
    TRY_GOTO(s, memory_allocate_zero_bytes(&memory, 1, sizeof *m + workers * sizeof *m->worker), out);
    m = memory;
    size_t table_bytes = 2 * DEVICE_ROPE_MAX * sizeof(float);
    TRY_GOTO(s, memory_allocate_zero(&serial, workers), out);
    TRY_GOTO(s, memory_allocate_aligned(&scratch, workers * DEVICE_SCRATCH_BYTES + (workers + 1) * table_bytes), out);

    blas_cpu_open();
    unsigned char *tables = scratch + workers * DEVICE_SCRATCH_BYTES;
    bool amx = matmul_amx.open(), bf16 = matmul_bf16.open(), fused = matmul_bf16_fused.open();
    const int i8 = matmul_i8.open();
    m->state = (struct device_cpu){.workers = (int)workers,
                                   .amx = amx,
                                   .bf16 = bf16,
                                   .bf16_fused = fused,
                                   .i8 = i8,
                                   .scratch = scratch,
                                   .serial = serial};
    rope_tables(&m->state.rope, (float *)(void *)tables);
    for (size_t w = 0; w < workers; w++) {
        m->worker[w] = (struct device_cpu){.workers = 1,
                                           .amx = amx,
                                           .bf16 = bf16,
                                           .bf16_fused = fused,
                                           .i8 = i8,
                                           .scratch = scratch + w * DEVICE_SCRATCH_BYTES};
        rope_tables(&m->worker[w].rope, (float *)(void *)(tables + (w + 1) * table_bytes));
        serial[w] = (struct device){
            .ops = &ops_cpu, .runtime = &runtime, .state = &m->worker[w], .name = "cpu", .shares_memory = true};
    }
    m->device = (struct device){.ops = &ops_cpu,
                                .runtime = &runtime,
                                .threads = pool,
                                .state = &m->state,
                                .name = "cpu",
                                .shares_memory = true};
    *out = &m->device;
    return STATUS_OK;
out:
    memory_free(serial);
    memory_free(m);
    threads_free(pool);
    return s;
}

static void cpu_close(struct device *dev) {
    struct device_cpu *state = device_cpu(dev);
    assert(state->serial); /* not a worker's own device */
    threads_free(dev->threads);
    memory_free(state->scratch);
    memory_free(state->serial);
    memory_free(dev); /* the first member of struct device_memory */
}

static struct device *cpu_worker(struct device *dev, int worker) {
    struct device_cpu *state = device_cpu(dev);
    if (!state->serial) return dev; /* already a worker's device */
    assert(worker >= 0 && worker < state->workers);
    return &state->serial[worker];
}

static enum status cpu_sync(struct device *dev) {
    (void)dev; /* CPU ops are complete when they return, and cannot fail */
    return STATUS_OK;
}

/* Allocates zeroed pages without touching them, so that a large pool that is rarely filled stays cheap. So this uses
 * the zeroing allocation and aligns by hand; the true address is stored before the result. */
static enum status cpu_allocate(struct device *dev, void **out, size_t bytes) {
    (void)dev;
    unsigned char *raw;
    if (bytes > SIZE_MAX - 128) return fail(STATUS_NO_MEMORY, "%zu bytes cannot be addressed", bytes);
    TRY(memory_allocate_zero(&raw, bytes + 128));
    unsigned char *aligned = raw + 64 + (64 - (uintptr_t)raw % 64) % 64;
    memcpy(aligned - sizeof raw, &raw, sizeof raw);
    *out = aligned;
    return STATUS_OK;
}

static void cpu_release(struct device *dev, void *memory) {
    (void)dev;
    unsigned char *raw;
    memcpy(&raw, (unsigned char *)memory - sizeof raw, sizeof raw);
    memory_free(raw);
}

static void cpu_copy(struct device *dev, void *to, const void *from, size_t bytes) {
    (void)dev;
    memcpy(to, from, bytes);
}

static void cpu_copy_rows(struct device *dev, struct mat to, struct mat from) {
    (void)dev;
    size_t size = (size_t)dtype_bytes(to.type);
    unsigned char *out = to.data;
    const unsigned char *in = from.data;
    for (int64_t r = 0; r < to.rows; r++)
        memcpy(out + (size_t)(r * to.stride) * size, in + (size_t)(r * from.stride) * size, (size_t)to.cols * size);
}

static void cpu_clear(struct device *dev, void *memory, size_t bytes) {
    (void)dev;
    memset(memory, 0, bytes);
}

static const struct device_runtime runtime = {
    .close = cpu_close,
    .sync = cpu_sync,
    .fault = cpu_sync,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .allocate_host = cpu_allocate,
    .release_host = cpu_release,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .copy_rows = cpu_copy_rows,
    .clear = cpu_clear,
    .worker = cpu_worker,
};
