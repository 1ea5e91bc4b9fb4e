/* matmul_cuda.cu -- the Linear layer by cuBLASLt (blas_cuda.cu).
 *
 * Bound by arithmetic from some 300 rows on, by reading w below. Best measured (H100, 65536 rows, bf16): 75 to 99 % of
 * the rate of a product of 8192^3 (docs/kernels/linear.md).
 *
 * Packed is a dense copy of w. Its products, and those of forward_each, use no workspace, so that no sum over `in` is
 * split over blocks: a row of y has the same bits whatever rows are computed with it. With bf16 on Hopper this holds
 * for every tile of cuBLASLt, so the tile is selected for the number of rows. On other GPUs one kernel serves all
 * numbers of rows. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/linear/gated_backward_cuda.cuh"
#include "kernels/linear/gated_product_cuda.cuh"
extern "C" {
#include "kernels/linear/blas_cuda_internal.h"
}

enum {
    PACKED_ROWS = 4096, /* packed products use the kernel for this number of rows */
    FEW_ROWS = 1024,    /* up to this many rows: the kernel for their own number */
    GATED_ROWS = 4096   /* from this many rows on the gate, or its backward, is in the product's kernel */
};

static void matmul_forward(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate) {
    blas_cuda_product(dev, "matmul.forward",
                      {.y = y, .a = x, .b = w, .b_transposed = true, .accumulate = accumulate, .scale = 1.0f});
}

static void matmul_forward_add(struct device *dev, struct mat y, struct mat base, struct mat x, struct mat w) {
    assert(base.rows == y.rows && base.cols == y.cols && base.type == y.type);
    blas_cuda_product(dev, "matmul.forward_add",
                      {.y = y, .a = x, .b = w, .base = base, .b_transposed = true, .accumulate = true, .scale = 1.0f});
}

static void matmul_forward_gated(struct device *dev, struct mat gated, struct mat both, struct mat x, struct mat w) {
    int64_t f = gated.cols;
    assert(gated.rows == both.rows && both.cols == 2 * f && gated.type == both.type);
    if (x.rows >= GATED_ROWS && gated_product(dev, "matmul.forward_gated", gated, both, x, w)) return;
    matmul_forward(dev, both, x, w, false);
    dev->ops->elementwise->swiglu(dev, gated, mat_cols(both, 0, f), mat_cols(both, f, f));
}

static void matmul_backward_input(struct device *dev, struct mat dx, struct mat dy, struct mat w, bool accumulate) {
    blas_cuda_product(dev, "matmul.backward_input",
                      {.y = dx, .a = dy, .b = w, .accumulate = accumulate, .scale = 1.0f});
}

static void matmul_backward_gated(struct device *dev, struct mat both, struct mat dgated, struct mat dy, struct mat w) {
    int64_t f = dgated.cols;
    struct mat gate = mat_cols(both, 0, f), up = mat_cols(both, f, f);
    assert(dgated.rows == both.rows && both.cols == 2 * f && dgated.type == both.type && w.cols == f);
    if (dy.rows >= GATED_ROWS && gated_backward(dev, "matmul.backward_gated", both, dy, w)) return;
    matmul_backward_input(dev, dgated, dy, w, false);
    dev->ops->elementwise->swiglu_backward(dev, gate, up, dgated, gate, up);
}

static void matmul_backward_weight(struct device *dev, struct mat dw, struct mat dy, struct mat x) {
    assert(dw.type == DTYPE_F32);
    blas_cuda_product(dev, "matmul.backward_weight",
                      {.y = dw, .a = dy, .b = x, .a_transposed = true, .accumulate = true, .scale = 1.0f});
}

static int64_t matmul_packed_elements(int64_t out, int64_t in) {
    return out * in;
}

static void matmul_pack(struct device *dev, float *packed, struct mat w) {
    size_t row = (size_t)(w.cols * dtype_bytes(w.type));
    if (w.rows && w.cols)
        (void)cudaMemcpy2DAsync(packed, row, w.data, (size_t)(w.stride * dtype_bytes(w.type)), row, (size_t)w.rows,
                                cudaMemcpyDeviceToDevice, device_cuda_stream(dev));
    device_cuda_check(dev, "matmul.pack");
}

/* The next power of two, so that a growing number of rows uses few kernels. */
static int64_t rows_as(struct device *dev, enum dtype type, int64_t rows) {
    int64_t as = 64;
    if (rows > FEW_ROWS || type != DTYPE_BF16 || !device_cuda_hopper(dev)) return PACKED_ROWS;
    while (as < rows)
        as *= 2;
    return as;
}

static void matmul_whatever_rows(struct device *dev, const char *op, struct mat y, struct mat x, struct mat w,
                                 bool accumulate) {
    blas_cuda_product(dev, op,
                      {.y = y,
                       .a = x,
                       .b = w,
                       .b_transposed = true,
                       .accumulate = accumulate,
                       .scale = 1.0f,
                       .rows_as = rows_as(dev, x.type, y.rows)});
}

static void matmul_forward_packed(struct device *dev, struct mat y, struct mat x, const float *packed,
                                  bool accumulate) {
    matmul_whatever_rows(dev, "matmul.forward_packed", y, x, mat_dense((void *)packed, x.type, y.cols, x.cols),
                         accumulate);
}

static void matmul_forward_each(struct device *dev, struct mat y, struct mat x, struct mat w, bool accumulate) {
    matmul_whatever_rows(dev, "matmul.forward_each", y, x, w, accumulate);
}

/* Neither rounds nor bytes. */
static bool matmul_rounds(struct device *) {
    return false;
}

extern "C" const struct matmul_ops matmul_cuda = {
    .forward = matmul_forward,
    .forward_each = matmul_forward_each,
    .forward_add = matmul_forward_add,
    .forward_gated = matmul_forward_gated,
    .backward_input = matmul_backward_input,
    .backward_gated = matmul_backward_gated,
    .backward_weight = matmul_backward_weight,
    .packed_elements = matmul_packed_elements,
    .pack = matmul_pack,
    .forward_packed = matmul_forward_packed,
    .pack_i8 = nullptr,
    .unpack_i8 = nullptr,
    .rounds = matmul_rounds,
    .pack_rounded = matmul_pack,
    .forward_rounded = matmul_forward_packed,
};
