/* device_internal.h -- the functions of a kind of device, and what the CPU twins use of it (scratch memory of each
 * worker, allocated once). */
#pragma once
#include "kernels/device/device.h"

/* How processes on devices of one kind compute sums (collective.h). identity: 128 bytes that rank 0 makes and all
 * others join with. */
struct device_peers {
    enum status (*identity)(uint8_t out[128]);
    enum status (*join)(void **peers, struct device *dev, const uint8_t identity[128], int rank, int world);
    enum status (*sum)(void *peers, struct device *dev, float *x, int64_t n);    /* in the order of ops */
    void (*leave)(void *peers);
};

/* The calls of device.h for one kind of device. device.c checks memory and copies before it calls them. */
struct device_runtime {
    void (*close)(struct device *dev);
    enum status (*sync)(struct device *dev);
    enum status (*fault)(struct device *dev);
    enum status (*allocate)(struct device *dev, void **out, size_t bytes);
    void (*release)(struct device *dev, void *memory);
    enum status (*allocate_host)(struct device *dev, void **out, size_t bytes);
    void (*release_host)(struct device *dev, void *memory);
    void *(*reach)(struct device *dev, void *memory);     /* NULL: all memory, at its own address */
    void (*upload)(struct device *dev, void *to, const void *from, size_t bytes);
    void (*download)(struct device *dev, void *to, const void *from, size_t bytes);
    void (*copy)(struct device *dev, void *to, const void *from, size_t bytes);
    void (*copy_rows)(struct device *dev, struct mat to, struct mat from);
    void (*clear)(struct device *dev, void *memory, size_t bytes);
    /* All six NULL: sends are uploads, fetches are downloads, and nothing is gained by recording. */
    void (*send)(struct device *dev, void *to, const void *from, size_t bytes);
    void (*send_wait)(struct device *dev);
    void (*fetch)(struct device *dev, void *to, const void *from, size_t bytes);
    void (*fetch_wait)(struct device *dev);
    void (*replay)(struct device *dev, struct device_replay **replay, device_ops *body, void *context);
    void (*replay_free)(struct device_replay *replay);
    struct device *(*worker)(struct device *dev, int worker);
    void (*enter)(struct device *dev);   /* NULL: nothing to do */
    const struct device_peers *peers;    /* NULL: processes sum through shared memory */
};
enum status device_open_cpu(struct device **out, int threads);
enum status device_open_cuda(struct device **out, int threads);    /* device_cuda.cu, or device_nocuda.c's refusal */
bool device_built_cuda(void);
void device_warm_cuda(void);
enum status device_open_cuda_number(struct device **out, int number, int threads); /* the current GPU stays */
int device_count_cuda(void);

/* Scratch of one worker. Ops divide their work so that this is enough for all shapes, and never allocate. Pages that no
 * op touches need no memory. */
enum { DEVICE_SCRATCH_BYTES = 2 << 20 };

/* Cosines and sines of rope for the last shape used, which rarely changes. */
enum { DEVICE_ROPE_MAX = 1 << 14 };      /* period * dh/2 pairs that are kept */
struct device_rope { int period, half; float theta; float *cosine, *sine; };

struct device_cpu {
    int workers;                         /* of this device: 1 for a worker's own */
    bool amx;                            /* products of many rows on tiles (matmul_amx.h) */
    bool bf16;                           /* rounded products are rounded (matmul_bf16.h) */
    bool bf16_plain, bf16_fused;         /* with bf16: by plain C, by fused multiply-adds */
    int i8;                              /* the path of 8-bit products (enum matmul_i8_path) */
    unsigned char *scratch;              /* worker w's begins at w * DEVICE_SCRATCH_BYTES; 64-byte aligned */
    struct device_rope rope;
    struct device *serial;               /* [workers] what device_worker gives; NULL in those themselves */
};

static inline struct device_cpu *device_cpu(struct device *dev) { return (struct device_cpu *)dev->state; }
/* Disables the tiles of float32 and bf16 products, for tests. Call it before anything is packed. */
static inline void device_cpu_without_amx(struct device *dev) {
    device_cpu(dev)->amx = false;
    for (int w = 0; w < device_cpu(dev)->workers && device_cpu(dev)->serial; w++)
        device_cpu(&device_cpu(dev)->serial[w])->amx = false;
}
/* The same for rounded products, which are then those of float32 (bf16 false), or rounded in plain C. */
static inline void device_cpu_use_bf16(struct device *dev, bool bf16, bool plain) {
    device_cpu(dev)->bf16 = bf16, device_cpu(dev)->bf16_plain = plain;
    for (int w = 0; w < device_cpu(dev)->workers && device_cpu(dev)->serial; w++)
        device_cpu_use_bf16(&device_cpu(dev)->serial[w], bf16, plain);
}
static inline void device_cpu_without_bf16(struct device *dev) { device_cpu_use_bf16(dev, false, false); }
static inline void device_cpu_use_fused(struct device *dev, bool fused) {
    device_cpu(dev)->bf16_fused = fused;
    for (int w = 0; w < device_cpu(dev)->workers && device_cpu(dev)->serial; w++)
        device_cpu(&device_cpu(dev)->serial[w])->bf16_fused = fused;
}
/* Takes another path for 8-bit products, which the processor has. */
static inline void device_cpu_use_i8(struct device *dev, int path) {
    device_cpu(dev)->i8 = path;
    for (int w = 0; w < device_cpu(dev)->workers && device_cpu(dev)->serial; w++)
        device_cpu(&device_cpu(dev)->serial[w])->i8 = path;
}
static inline void *device_scratch(struct device *dev, int worker) {
    return device_cpu(dev)->scratch + (size_t)worker * DEVICE_SCRATCH_BYTES;
}
/* Number of consecutive tasks for each thread, so that threads share few cache lines and pages. */
static inline int64_t device_share(const struct device *dev, int64_t n) {
    int64_t threads = threads_count(dev->threads);
    return (n + threads - 1) / threads;
}
/* Panels of outputs of a task, if a product has `down` blocks of rows: at most `most`. With fewer blocks than threads,
 * the tasks are a multiple of the threads, so that no thread waits for the last one. */
static inline int64_t device_panels(const struct device *dev, int64_t panels, int64_t most, int64_t down) {
    const int64_t threads = threads_count(dev->threads), least = (panels + most - 1) / most;
    if (threads == 1 || panels == 0) return panels + (panels == 0);
    const int64_t wanted = down < threads ? (least + threads - 1) / threads * threads : least;
    const int64_t tasks = wanted < panels ? wanted : panels;
    return (panels + tasks - 1) / tasks;
}
