/* on_device.h -- shared by the tests of ops on a GPU: matrices between guards, numbers of the storage type.
 *
 * Every output starts as NaN; a case runs twice and must give the same bits. */
#pragma once
#include "base/half.h"
#include "base/rng.h"
#include "kernels/ops.h"
#include "tests/device/tolerance.h"
#include "tests/test.h"

enum { HELD_MAX = 64, FRONT = 64 };      /* guard elements before a matrix, and as many after it */

struct held { struct mat m; unsigned char *memory; size_t bytes; bool exact; };
static struct device *gpu;
static struct rng on_rng;
static bool on_short;                    /* a second argument selects the short cases, for sanitizers */
static struct held held[HELD_MAX];
static int helds;

static inline float *normals(int64_t n, float scale, enum dtype type) {
    float *a = malloc((size_t)(n + 1) * sizeof *a);
    for (int64_t i = 0; i < n; i++) a[i] = as_type(scale * rng_normal(&on_rng), type);
    return a;
}
static inline void *zeros(int64_t n, size_t size) { return calloc((size_t)n + 1, size); }

static inline void put_number(void *to, float x, enum dtype type) {
    uint16_t bits = type == DTYPE_BF16 ? half_to_bf16(x) : half_to_f16(x);
    if (type == DTYPE_F32) memcpy(to, &x, 4);
    else memcpy(to, &bits, 2);
}
static inline float take_number(const void *from, enum dtype type) {
    float x;
    uint16_t bits;
    if (type == DTYPE_F32) memcpy(&x, from, 4);
    else memcpy(&bits, from, 2), x = type == DTYPE_BF16 ? half_from_bf16(bits) : half_from_f16(bits);
    return x;
}

/* A matrix on the GPU with `pad` elements between rows and a start shifted by `skew` elements. The memory around it,
 * and the matrix if content is NULL, is NaN (bytes 255). */
static inline struct mat put(const float *content, enum dtype type, int64_t rows, int64_t cols, int64_t pad, int skew) {
    struct held h = {.m = {.type = type, .rows = rows, .cols = cols, .stride = cols + pad}};
    int64_t size = dtype_bytes(type);
    h.bytes = (size_t)((2 * FRONT + skew + rows * h.m.stride) * size);
    unsigned char *copy = malloc(h.bytes), *first = copy + (FRONT + skew) * size;
    memset(copy, 255, h.bytes);
    for (int64_t r = 0; r < rows && content; r++)
        for (int64_t c = 0; c < cols; c++) put_number(first + (r * h.m.stride + c) * size, content[r * cols + c], type);
    CHECK(helds < HELD_MAX);
    CHECK_OK(device_allocate(gpu, &h.memory, h.bytes));
    device_upload(gpu, h.memory, copy, h.bytes);
    h.m.data = h.memory + (FRONT + skew) * size;
    held[helds++] = h;
    free(copy);
    return h.m;
}
static inline struct mat put_plain(const float *content, enum dtype type, int64_t rows, int64_t cols) {
    return put(content, type, rows, cols, 0, 0);
}
static inline void *put_bytes(const void *content, size_t bytes) {
    struct held h = {.bytes = bytes, .exact = true};
    CHECK(helds < HELD_MAX);
    CHECK_OK(device_allocate(gpu, &h.memory, bytes));
    device_upload(gpu, h.memory, content, bytes);
    held[helds++] = h;
    return h.memory;
}

/* The matrix as floats; checks that the memory around it has not changed. */
static inline float *take(struct mat m) {
    struct held *h = NULL;
    for (int i = 0; i < helds; i++)
        if (!held[i].exact && held[i].m.data == m.data) h = &held[i];
    CHECK(h != NULL);
    int64_t size = dtype_bytes(m.type), front = (unsigned char *)m.data - h->memory;
    unsigned char *copy = malloc(h->bytes);
    float *out = malloc((size_t)(m.rows * m.cols + 1) * sizeof *out);
    device_download(gpu, copy, h->memory, h->bytes);
    CHECK_OK(device_sync(gpu));
    for (int64_t i = 0; i < (int64_t)h->bytes; i++) {
        int64_t at = (i - front) / size;
        bool inside = i >= front && at < m.rows * m.stride && at % m.stride < m.cols;
        if (!inside && copy[i] != 255) test_fail(__FILE__, __LINE__, "an op wrote outside of its output");
        if (!inside || (i - front) % size != 0) continue;
        out[at / m.stride * m.cols + at % m.stride] = take_number(copy + i, m.type);
    }
    free(copy);
    return out;
}
static inline float *take_floats(const float *from, int64_t n) {
    float *out = malloc((size_t)(n + 1) * sizeof *out);
    device_download(gpu, out, from, (size_t)n * sizeof *out);
    CHECK_OK(device_sync(gpu));
    return out;
}
static inline void drop_all(void) {
    CHECK_OK(device_sync(gpu));
    while (helds) device_release(gpu, held[--helds].memory);
}

/* The first GPU; without one the test is skipped. */
static inline struct device *open_gpu(int threads) {
    struct device *dev;
    const enum status s = device_open(&dev, "cuda", threads);
    if (s == STATUS_UNSUPPORTED) test_skip(status_message());
    CHECK_OK(s);
    return dev;
}

static inline void on_device_open(int argc, char **argv) {
    test_start(argc, argv, 1);
    on_rng = rng_make(test_seed(), 11);
    on_short = argc > 2;
    gpu = open_gpu(1);
}
static inline int on_device_close(void) {
    device_close(gpu);
    return test_done();
}
