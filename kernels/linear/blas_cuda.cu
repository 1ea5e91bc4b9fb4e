/* blas_cuda.cu -- products through cuBLASLt: the kernel for a shape is requested once and kept.
 *
 * cuBLASLt is loaded when a GPU is opened. Its static tables take 0.1 s of processor time and 100 MB of memory, which a
 * program on the CPU would pay, too, if it were linked.
 *
 * cuBLASLt is column-major: a row-major y = a b is its y^T = b^T a^T, so a and b are exchanged. Its selection of a
 * kernel depends on the shape alone, and this file provides the workspace, so results have the same bits each time.
 * Rates: docs/kernels/linear.md. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/library_cuda.cuh"
#include <cublasLt.h>
#include <string.h>
extern "C" {
#include "base/memory.h"
#include "kernels/linear/blas_cuda_internal.h"
#include "kernels/linear/blas_library_internal.h"
}

enum { CHOICES = 512, WORKSPACE_BYTES = 64 << 20 };

/* The inputs of cuBLASLt's selection. They are compared as bytes, so the struct is zeroed before it is filled. */
struct shape {
    int64_t m, n, k, lda, ldb, ldy, ldc;
    int type, y_type, flags, alignment, base_alignment; /* the last: 0 where base is y */
};

struct choice {
    struct shape shape;
    cublasLtMatmulAlgo_t algorithm;
    bool taken;
};

struct library {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtGetStatusString) text;
    decltype(&cublasLtMatmulDescCreate) product_create;
    decltype(&cublasLtMatmulDescDestroy) product_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) product_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmul) matmul;
};

struct blas_cuda {
    struct library lt;
    cublasLtHandle_t handle;
    void *workspace;
    struct choice choices[CHOICES]; /* open addressing; when full, the first slot is overwritten */
};

#define BLAS_NAME_OF(version) "libcublasLt.so." #version
#define BLAS_NAME(version) BLAS_NAME_OF(version)

/* Stays open as long as the program. */
static void *open_library(void) {
    return dlopen(BLAS_NAME(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
}

void blas_cuda_load(void) {
    (void)open_library();
}

static enum status load(struct library *out) {
    void *library = open_library();
    if (!library)
        return fail(STATUS_UNSUPPORTED,
                    "cuBLASLt was not found (%s): install it or put its folder into LD_LIBRARY_PATH, or use "
                    "--device cpu",
                    dlerror());
    const struct library_symbol symbols[] = {
        {"cublasLtCreate", (void **)&out->create},
        {"cublasLtDestroy", (void **)&out->destroy},
        {"cublasLtGetStatusString", (void **)&out->text},
        {"cublasLtMatmulDescCreate", (void **)&out->product_create},
        {"cublasLtMatmulDescDestroy", (void **)&out->product_destroy},
        {"cublasLtMatmulDescSetAttribute", (void **)&out->product_set},
        {"cublasLtMatrixLayoutCreate", (void **)&out->layout_create},
        {"cublasLtMatrixLayoutDestroy", (void **)&out->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", (void **)&out->preference_create},
        {"cublasLtMatmulPreferenceDestroy", (void **)&out->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", (void **)&out->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", (void **)&out->heuristic},
        {"cublasLtMatmul", (void **)&out->matmul},
    };
    return library_symbols(library, symbols, ARRAY_LEN(symbols), "cuBLASLt", "install another version");
}

enum status blas_cuda_open(struct blas_cuda **out) {
    struct blas_cuda *blas = NULL;
    TRY(memory_allocate_zero(&blas, 1));
    const enum status loaded = load(&blas->lt);
    if (loaded != STATUS_OK) {
        memory_free(blas);
        return loaded;
    }
    cublasStatus_t status = blas->lt.create(&blas->handle);
    cudaError_t error = status == CUBLAS_STATUS_SUCCESS ? cudaMalloc(&blas->workspace, WORKSPACE_BYTES) : cudaSuccess;
    if (status == CUBLAS_STATUS_SUCCESS && error == cudaSuccess) {
        *out = blas;
        return STATUS_OK;
    }
    const char *why = error == cudaSuccess ? blas->lt.text(status) : cudaGetErrorString(error);
    blas_cuda_close(blas);
    return fail(STATUS_IO, "GPU: cuBLASLt: %s", why);
}

void blas_cuda_close(struct blas_cuda *blas) {
    if (!blas) return;
    (void)cudaFree(blas->workspace);
    if (blas->handle) (void)blas->lt.destroy(blas->handle);
    memory_free(blas);
}

static void blas_check(struct device *dev, const char *op, cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) device_cuda_fault(dev, op, device_cuda_blas(dev)->lt.text(status));
    device_cuda_check(dev, op);
}

static cudaDataType_t type_of(enum dtype type) {
    return type == DTYPE_F32 ? CUDA_R_32F : type == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static int alignment_of(const void *p) {
    return (int)((uintptr_t)p & -(uintptr_t)p) < 256 && p ? (int)((uintptr_t)p & -(uintptr_t)p) : 256;
}

/* The descriptors of one call, created and destroyed with it: they are plain memory of the host. */
struct problem {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, base, y;
    cublasStatus_t status;
};

static void blas_keep_status(struct problem *q, cublasStatus_t status) {
    if (q->status == CUBLAS_STATUS_SUCCESS) q->status = status;
}

/* first is cuBLASLt's A (b here), second its B (a here). */
static struct problem blas_describe(const struct library *lt, const struct blas_product *p, int64_t rows) {
    struct problem q = {};
    cublasOperation_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int64_t a_rows = p->a_transposed ? p->a.rows : rows;
    int64_t a_cols = p->a_transposed ? rows : p->a.cols;
    blas_keep_status(&q, lt->product_create(&q.product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    blas_keep_status(&q, lt->product_set(q.product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    blas_keep_status(&q,
                     lt->product_set(q.product, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    blas_keep_status(&q, lt->layout_create(&q.b, type_of(p->b.type), (uint64_t)p->b.cols, (uint64_t)p->b.rows,
                                                    p->b.stride));
    blas_keep_status(
        &q, lt->layout_create(&q.a, type_of(p->a.type), (uint64_t)a_cols, (uint64_t)a_rows, p->a.stride));
    blas_keep_status(&q, lt->layout_create(&q.base, type_of(p->y.type), (uint64_t)p->y.cols, (uint64_t)rows,
                                                    p->base.stride));
    blas_keep_status(
        &q, lt->layout_create(&q.y, type_of(p->y.type), (uint64_t)p->y.cols, (uint64_t)rows, p->y.stride));
    return q;
}

static void blas_destroy(const struct library *lt, struct problem *q) {
    if (q->y) (void)lt->layout_destroy(q->y);
    if (q->base) (void)lt->layout_destroy(q->base);
    if (q->a) (void)lt->layout_destroy(q->a);
    if (q->b) (void)lt->layout_destroy(q->b);
    if (q->product) (void)lt->product_destroy(q->product);
}

static cublasStatus_t blas_request(struct blas_cuda *blas, struct choice *c, const struct blas_product *p,
                                   int64_t rows) {
    const struct library *lt = &blas->lt;
    struct problem q = blas_describe(lt, p, rows);
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    size_t workspace = p->rows_as ? 0 : WORKSPACE_BYTES; /* a sum split over blocks would depend on the rows */
    uint32_t first = (uint32_t)alignment_of(p->b.data), second = (uint32_t)alignment_of(p->a.data),
             third = (uint32_t)alignment_of(p->base.data), fourth = (uint32_t)alignment_of(p->y.data);
    blas_keep_status(&q, lt->preference_create(&preference));
    blas_keep_status(&q, lt->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                              &workspace, sizeof workspace));
    const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t values[] = {first, second, third, fourth};
    for (int i = 0; i < 4; i++)
        blas_keep_status(&q, lt->preference_set(preference, names[i], &values[i], sizeof values[i]));
    if (q.status == CUBLAS_STATUS_SUCCESS)
        blas_keep_status(&q, lt->heuristic(blas->handle, q.product, q.b, q.a, q.base, q.y, preference,
                                                            1, &found, &count));
    if (q.status == CUBLAS_STATUS_SUCCESS && count == 0) blas_keep_status(&q, CUBLAS_STATUS_NOT_SUPPORTED);
    if (preference) (void)lt->preference_destroy(preference);
    blas_destroy(lt, &q);
    c->algorithm = found.algo;
    c->taken = q.status == CUBLAS_STATUS_SUCCESS;
    return q.status;
}

static uint64_t hash(const struct shape *s) {
    const unsigned char *p = (const unsigned char *)s;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

static struct choice *choice_for(struct blas_cuda *blas, const struct shape *shape) {
    uint64_t home = hash(shape) % CHOICES;
    for (uint64_t i = 0; i < CHOICES; i++) {
        struct choice *c = &blas->choices[(home + i) % CHOICES];
        if (!c->taken || memcmp(&c->shape, shape, sizeof *shape) == 0) return c;
    }
    blas->choices[home].taken = false;
    return &blas->choices[home];
}

static struct shape shape_of(const struct blas_product *p, int64_t rows, int64_t k) {
    struct shape s;
    memset(&s, 0, sizeof s);
    s.m = p->y.cols, s.n = rows, s.k = k;
    s.lda = p->b.stride, s.ldb = p->a.stride, s.ldy = p->y.stride, s.ldc = p->base.stride;
    s.type = p->a.type, s.y_type = p->y.type;
    s.flags = p->a_transposed | p->b_transposed << 1 | (p->rows_as != 0) << 2;
    s.alignment = alignment_of(p->a.data) | alignment_of(p->b.data) << 10 | alignment_of(p->y.data) << 20;
    s.base_alignment = p->base.data == p->y.data ? 0 : alignment_of(p->base.data);
    return s;
}

void blas_cuda_product(struct device *dev, const char *op, struct blas_product p) {
    struct blas_cuda *blas = device_cuda_blas(dev);
    int64_t k = p.a_transposed ? p.a.rows : p.a.cols;
    assert((p.a_transposed ? p.a.cols : p.a.rows) == p.y.rows);
    assert((p.b_transposed ? p.b.cols : p.b.rows) == k && (p.b_transposed ? p.b.rows : p.b.cols) == p.y.cols);
    assert(p.a.type == p.b.type && (p.y.type == p.a.type || p.y.type == DTYPE_F32));
    if (p.y.rows == 0 || p.y.cols == 0) return;
    if (!p.base.data) p.base = p.y;
    int64_t rows = p.rows_as ? p.rows_as : p.y.rows;
    struct shape shape = shape_of(&p, rows, k);
    struct choice *c = choice_for(blas, &shape);
    if (!c->taken) {
        c->shape = shape;
        blas_check(dev, op, blas_request(blas, c, &p, rows));
        if (!c->taken) return;
    }
    struct problem q = blas_describe(&blas->lt, &p, p.y.rows);
    float keep_y = p.accumulate ? 1.0f : 0.0f;
    if (q.status == CUBLAS_STATUS_SUCCESS)
        blas_keep_status(&q, blas->lt.matmul(blas->handle, q.product, &p.scale, p.b.data, q.b, p.a.data, q.a, &keep_y,
                                            p.base.data, q.base, p.y.data, q.y, &c->algorithm, blas->workspace,
                                            p.rows_as ? 0 : WORKSPACE_BYTES, device_cuda_stream(dev)));
    blas_destroy(&blas->lt, &q);
    blas_check(dev, op, q.status);
}
