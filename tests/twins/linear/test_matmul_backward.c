/* test_matmul_backward.c -- both gradients of a Linear layer, shapes around a tile, with and without accumulation;
 * and the gradient of a SwiGLU's gate and up through the Linear layer that follows it. */
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

/* both [n, 2f]: gate and up, and their gradients afterwards. */
static void compare_gated(int64_t n, int64_t d, int64_t f) {
    float *dy = random_array(n * d, 1.0f), *w = random_array(d * f, 0.3f), *w_transposed = transposed(w, d, f),
          *both = random_array(n * 2 * f, 2.0f), *naive = zero_array(n * 2 * f), *twin[DEVICES];
    float *naive_dgated = zero_array(n * f);
    double *ref = double_array(n * 2 * f), *dgated = double_array(n * f);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gy = guarded_make(n, d, dy), gw = guarded_make(d, f, w), gb = guarded_make(n, 2 * f, both),
                       scratch = guarded_make(n, f, NULL);
        twin_device[i]->ops->matmul->backward_gated(twin_device[i], gb.m, scratch.m, gy.m, gw.m);
        twin[i] = zero_array(n * 2 * f);
        guarded_take(twin[i], &gb);
        guarded_drop(&gy), guarded_drop(&gw), guarded_drop(&scratch);
    }
    ref_matmul(dgated, dy, w_transposed, n, f, d, NULL);
    naive_matmul(naive_dgated, dy, w_transposed, n, f, d, NULL);
    for (int64_t i = 0; i < n * f; i++) {
        int64_t gate = i / f * 2 * f + i % f, up = gate + f;
        double s = 1.0 / (1.0 + exp(-(double)both[gate]));
        float h = 1.0f / (1.0f + expf(-both[gate]));
        ref[gate] = dgated[i] * both[up] * s * (1.0 + both[gate] * (1.0 - s)), ref[up] = dgated[i] * both[gate] * s;
        naive[gate] = naive_dgated[i] * both[up] * h * (1.0f + both[gate] * (1.0f - h));
        naive[up] = naive_dgated[i] * both[gate] * h;
    }
    CHECK_GRADIENT(twin[0], naive, ref, n * 2 * f);
    CHECK_BITS(twin[0], twin[1], n * 2 * f);
    free(dy), free(w), free(w_transposed), free(both), free(naive), free(naive_dgated), free(ref), free(dgated),
        free(twin[0]), free(twin[1]);
}

int main(int argc, char **argv) {
    static const int64_t shapes[][3] = {{1, 1, 1},    {1, 64, 33},    {3, 17, 48},   {8, 100, 64}, {257, 40, 19},
                                        {90, 300, 7}, {40, 31, 1030}, {300, 64, 64}, {0, 5, 6}};
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            compare(shapes[i][0], shapes[i][1], shapes[i][2], accumulate);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        compare_gated(shapes[i][0], shapes[i][1], shapes[i][2]);
    return twins_close();
}
