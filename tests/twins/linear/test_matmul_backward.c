/* test_matmul_backward.c -- both gradients of a Linear layer, shapes around a tile, with and without accumulation. */
#include "tests/twins/twins.h"

static float *transposed(const float *a, int64_t rows, int64_t cols) {
    float *t = zero_array(rows * cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            t[c * rows + r] = a[r * cols + c];
    return t;
}

static void compare(int64_t n, int64_t out, int64_t in, bool accumulate) {
    float *x = random_array(n * in, 1.0f), *w = random_array(out * in, 1.0f), *dy = random_array(n * out, 1.0f);
    float *before = random_array(n * in, 1.0f), *before_w = random_array(out * in, 1.0f);
    float *w_transposed = transposed(w, out, in), *dy_transposed = transposed(dy, n, out),
          *x_transposed = transposed(x, n, in);
    float *naive = zero_array(n * in), *naive_w = zero_array(out * in), *dx[DEVICES], *dw[DEVICES];
    double *ref = double_array(n * in), *ref_w = double_array(out * in);
    for (int i = 0; i < DEVICES; i++) {
        const struct matmul_ops *ops = twin_device[i]->ops->matmul;
        struct guarded gx = guarded_make(n, in, x), gw = guarded_make(out, in, w), gy = guarded_make(n, out, dy);
        struct guarded gdx = guarded_make(n, in, before), gdw = guarded_make(out, in, before_w);
        ops->backward_input(twin_device[i], gdx.m, gy.m, gw.m, accumulate);
        ops->backward_weight(twin_device[i], gdw.m, gy.m, gx.m);
        dx[i] = zero_array(n * in);
        dw[i] = zero_array(out * in);
        guarded_take(dx[i], &gdx);
        guarded_take(dw[i], &gdw);
        guarded_drop(&gx), guarded_drop(&gw), guarded_drop(&gy);
    }
    ref_matmul(ref, dy, w_transposed, n, in, out, accumulate ? before : NULL);
    naive_matmul(naive, dy, w_transposed, n, in, out, accumulate ? before : NULL);
    ref_matmul(ref_w, dy_transposed, x_transposed, out, in, n, before_w);
    naive_matmul(naive_w, dy_transposed, x_transposed, out, in, n, before_w);
    CHECK_TWIN(dx[0], naive, ref, n * in);
    CHECK_TWIN(dw[0], naive_w, ref_w, out * in);
    CHECK_BITS(dx[0], dx[1], n * in);
    CHECK_BITS(dw[0], dw[1], out * in);
    free(x), free(w), free(dy), free(before), free(before_w), free(w_transposed), free(dy_transposed),
        free(x_transposed);
    free(naive), free(naive_w), free(ref), free(ref_w), free(dx[0]), free(dx[1]), free(dw[0]), free(dw[1]);
}

int main(int argc, char **argv) {
    static const int64_t shapes[][3] = {{1, 1, 1},    {1, 64, 33},    {3, 17, 48},   {8, 100, 64}, {257, 40, 19},
                                        {90, 300, 7}, {40, 31, 1030}, {300, 64, 64}, {0, 5, 6}};
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            compare(shapes[i][0], shapes[i][1], shapes[i][2], accumulate);
    return twins_close();
}
