/* test_blas.c -- products of two views on one thread, by blas_cpu.c's own loop and by the selected one: transposed or
 * not, with scales, added to y, at the edges of panels, slices and blocks. */
#include "kernels/linear/blas_cpu.h"
#include "tests/twins/twins.h"

/* scale a b + keep y for a [n, k] and b [k, m], in float or in double. */
#define PLAIN(name, type)                                                                                              \
    static void name(type *out, const float *a, const float *b, const float *y, const int64_t size[3], float scale,    \
                     float keep) {                                                                                     \
        for (int64_t r = 0; r < size[0]; r++)                                                                          \
            for (int64_t c = 0; c < size[1]; c++) {                                                                    \
                type sum = 0;                                                                                          \
                for (int64_t i = 0; i < size[2]; i++)                                                                  \
                    sum += (type)a[r * size[2] + i] * (type)b[i * size[1] + c];                                        \
                out[r * size[1] + c] = (type)scale * sum + (keep != 0 ? (type)keep * (type)y[r * size[1] + c] : 0);    \
            }                                                                                                          \
    }
PLAIN(naive_product, float)
PLAIN(ref_product, double)

static float *transposed(const float *from, int64_t rows, int64_t cols) {
    float *to = zero_array(rows * cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
    return to;
}

/* size: rows and columns of y, depth. */
static void compare(const int64_t size[3], float scale, float keep) {
    const int64_t n = size[0], m = size[1], k = size[2];
    float *a = random_array(n * k, 1.0f), *b = random_array(k * m, 0.3f), *old = random_array(n * m, 1.0f);
    float *at = transposed(a, n, k), *bt = transposed(b, k, m), *naive = zero_array(n * m), *twin = zero_array(n * m);
    double *ref = double_array(n * m);
    if (keep == 0) /* with keep 0 it is not read */
        for (int64_t i = 0; i < n * m; i++)
            old[i] = NAN;
    naive_product(naive, a, b, old, size, scale, keep);
    ref_product(ref, a, b, old, size, scale, keep);
    for (int way = 0; way < 8; way++) {
        const bool a_transposed = way & 1, b_transposed = way & 2, own = way & 4;
        struct guarded y = guarded_make(n, m, old);
        struct guarded ga = a_transposed ? guarded_make(k, n, at) : guarded_make(n, k, a);
        struct guarded gb = b_transposed ? guarded_make(m, k, bt) : guarded_make(k, m, b);
        const struct blas_product p = {.y = y.m,
                                       .a = ga.m,
                                       .b = gb.m,
                                       .a_transposed = a_transposed,
                                       .b_transposed = b_transposed,
                                       .scale = scale,
                                       .keep = keep};
        (own ? blas_cpu_product_own : blas_cpu_product)(p);
        guarded_take(twin, &y);
        guarded_drop(&ga);
        guarded_drop(&gb);
        CHECK_TWIN(twin, naive, ref, n * m);
    }
    free(a), free(b), free(old), free(at), free(bt), free(naive), free(twin), free(ref);
}

/* Depth 0: y is keep * y. */
static void test_empty(void) {
    const float old[] = {1, 2, 3, 4, 5, 6};
    for (int keep = 0; keep < 3; keep++) {
        float out[6], want[6];
        struct guarded y = guarded_make(2, 3, old), a = guarded_make(2, 0, NULL), b = guarded_make(0, 3, NULL);
        for (int i = 0; i < 6; i++)
            want[i] = (float)keep * old[i];
        blas_cpu_product_own((struct blas_product){.y = y.m, .a = a.m, .b = b.m, .scale = 1, .keep = (float)keep});
        guarded_take(out, &y);
        CHECK_BITS(out, want, 6);
        guarded_drop(&a);
        guarded_drop(&b);
    }
}

int main(int argc, char **argv) {
    static const int64_t sizes[][3] = {{1, 1, 1},     {1, 33, 17},   {2, 15, 128},   {7, 31, 129},   {8, 32, 128},
                                       {9, 16, 257},  {17, 70, 31},  {37, 100, 300}, {64, 64, 64},   {255, 33, 130},
                                       {256, 40, 40}, {259, 65, 16}, {530, 17, 97},  {16, 200, 1000}};
    twins_open(argc, argv);
    test_empty();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        compare(sizes[i], 1, 0);
        compare(sizes[i], 1, 1);
        compare(sizes[i], 0.125f, 0);
        compare(sizes[i], -2, 0.5f);
    }
    return twins_close();
}
