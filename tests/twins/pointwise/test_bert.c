/* test_bert.c -- the ops of BERT-type encoders: odd widths, in place, with and without the summand before LayerNorm,
 * rows of equal numbers, GELU far from zero, means of unequal numbers of rows. */
#include "tests/twins/twins.h"

/* in_place: 0 elsewhere, 1 over x, 2 over the residual. */
static void compare_norm(int64_t n, int64_t d, float scale, bool with_residual, bool with_bias, int in_place) {
    const float eps = 1e-12f;
    float *x = random_array(n * d, scale), *add = random_array(n * d, scale), *bias = random_array(d, 1.0f);
    float *w = random_array(d, 1.0f), *b = random_array(d, 1.0f), *naive = zero_array(n * d), *twin[DEVICES];
    double *ref = double_array(n * d);
    const struct ref_rows shape = {n, d, eps};
    const struct mat none = {0};
    ref_layer_norm(ref, x, with_residual ? add : NULL, with_bias ? bias : NULL, w, b, shape);
    naive_layer_norm(naive, x, with_residual ? add : NULL, with_bias ? bias : NULL, w, b, shape);
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded gx = guarded_make(n, d, x), ga = guarded_make(n, d, add), gy = guarded_make(n, d, NULL);
        struct guarded *y = in_place == 1 ? &gx : in_place == 2 ? &ga : &gy;
        twin[i] = zero_array(n * d);
        dev->ops->bert->layer_norm(dev, y->m, gx.m, with_residual ? ga.m : none, with_bias ? mat_f32(bias, 1, d) : none,
                                   (struct bert_norm){mat_f32(w, 1, d), mat_f32(b, 1, d), eps});
        guarded_take(twin[i], y);
        if (y != &gx) guarded_drop(&gx);
        if (y != &ga) guarded_drop(&ga);
        if (y != &gy) guarded_drop(&gy);
    }
    CHECK_TWIN(twin[0], naive, ref, n * d);
    CHECK_BITS(twin[0], twin[1], n * d);
    free(x), free(add), free(bias), free(w), free(b), free(naive), free(ref);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i]);
}

static void compare_biased(int64_t n, int64_t d, float scale, bool gelu, bool in_place) {
    float *x = random_array(n * d, scale), *bias = random_array(d, 0.5f), *naive = zero_array(n * d), *twin[DEVICES];
    double *ref = double_array(n * d);
    if (gelu) {
        ref_gelu(ref, x, bias, n, d);
        naive_gelu(naive, x, bias, n, d);
    }
    for (int64_t i = 0; i < n * d && !gelu; i++) {
        ref[i] = (double)x[i] + (double)bias[i % d];
        naive[i] = x[i] + bias[i % d];
    }
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded gx = guarded_make(n, d, x), gy = guarded_make(n, d, NULL);
        struct mat to = in_place ? gx.m : gy.m;
        twin[i] = zero_array(n * d);
        (gelu ? dev->ops->bert->gelu : dev->ops->bert->add_bias)(dev, to, gx.m, mat_f32(bias, 1, d));
        guarded_take(twin[i], in_place ? &gx : &gy);
        guarded_drop(in_place ? &gy : &gx);
    }
    CHECK_TWIN(twin[0], naive, ref, n * d);
    CHECK_BITS(twin[0], twin[1], n * d);
    free(x), free(bias), free(naive), free(ref);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i]);
}

/* Small results of GELU must have right digits: far below zero the absolute tolerance of compare_biased would accept
 * anything. */
static void gelu_tail(void) {
    enum { N = 17 };
    float x[N], zero[N] = {0}, y[N];
    double ref[N];
    for (int i = 0; i < N; i++)
        x[i] = -0.3f * (float)i;
    ref_gelu(ref, x, zero, 1, N);
    twin_device[0]->ops->bert->gelu(twin_device[0], mat_f32(y, 1, N), mat_f32(x, 1, N), mat_f32(zero, 1, N));
    for (int i = 0; i < N; i++)
        CHECK(fabs((double)y[i] - ref[i]) <= 1e-7 * (1.0 + fabs((double)x[i])));
    x[0] = 40.0f, x[1] = -40.0f, x[2] = NAN;
    twin_device[0]->ops->bert->gelu(twin_device[0], mat_f32(y, 1, N), mat_f32(x, 1, N), mat_f32(zero, 1, N));
    CHECK(y[0] == 40.0f && y[1] == 0.0f && isnan(y[2]));
}

static void compare_mean(int64_t m, int64_t d, bool unit) {
    int64_t *begin = calloc((size_t)m + 1, sizeof *begin);
    for (int64_t i = 0; i < m; i++)
        begin[i + 1] = begin[i] + 1 + (int64_t)rng_below(&twin_rng, 90);
    float *x = random_array(begin[m] * d, 1.0f), *naive = zero_array(m * d), *twin[DEVICES];
    double *ref = double_array(m * d);
    for (int64_t i = 0; i < d && m > 1; i++)
        for (int64_t row = begin[1]; row < begin[2]; row++)
            x[row * d + i] = 0.0f; /* a result without rows */
    ref_mean(ref, x, begin, m, d, unit);
    naive_mean(naive, x, begin, m, d, unit);
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded gx = guarded_make(begin[m], d, x), gy = guarded_make(m, d, NULL);
        twin[i] = zero_array(m * d);
        dev->ops->bert->mean(dev, gy.m, gx.m, begin, unit);
        guarded_take(twin[i], &gy);
        guarded_drop(&gx);
    }
    CHECK_TWIN(twin[0], naive, ref, m * d);
    CHECK_BITS(twin[0], twin[1], m * d);
    free(begin), free(x), free(naive), free(ref);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i]);
}

int main(int argc, char **argv) {
    static const int64_t widths[] = {1, 15, 16, 17, 64, 96, 387};
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        int64_t d = widths[i];
        for (int in_place = 0; in_place < 2; in_place++) {
            compare_norm(1, d, 1.0f, in_place, !in_place, in_place);
            compare_norm(300, d, 3.0f, true, true, 2 * in_place);
            for (int gelu = 0; gelu < 2; gelu++) {
                compare_biased(1, d, 1.0f, gelu, in_place);
                compare_biased(300, d, 3.0f, gelu, in_place);
            }
            compare_mean(1, d, in_place);
            compare_mean(40, d, in_place);
        }
        compare_norm(9, d, 1.0f, false, false, 0);
    }
    gelu_tail();
    return twins_close();
}
