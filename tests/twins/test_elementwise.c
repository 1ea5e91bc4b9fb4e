/* test_elementwise.c -- conversion, add and SwiGLU, each output place in turn: its own, the first input, the second. */
#include "tests/twins/twins.h"

static void compare(int64_t n, int64_t cols, float scale, bool swiglu, int alias) {
    int64_t all = n * cols;
    float *a = random_array(all, scale), *b = random_array(all, 1.0f), *naive = zero_array(all), *twin[DEVICES];
    double *ref = double_array(all);
    (swiglu ? ref_swiglu : ref_add)(ref, a, b, all);
    (swiglu ? naive_swiglu : naive_add)(naive, a, b, all);
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded g[3] = {guarded_make(n, cols, NULL), guarded_make(n, cols, a), guarded_make(n, cols, b)};
        (swiglu ? dev->ops->elementwise->swiglu : dev->ops->elementwise->add)(dev, g[alias].m, g[1].m, g[2].m);
        twin[i] = zero_array(all);
        for (int j = 0; j < 3; j++) {
            if (j == alias)
                guarded_take(twin[i], &g[j]);
            else
                guarded_drop(&g[j]);
        }
    }
    CHECK_TWIN(twin[0], naive, ref, all);
    CHECK_BITS(twin[0], twin[1], all);
    free(a), free(b), free(naive), free(ref), free(twin[0]), free(twin[1]);
}

static void converted(int64_t n, int64_t cols, bool alias) {
    float *x = random_array(n * cols, 1.0f), *y = zero_array(n * cols);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gx = guarded_make(n, cols, x), gy = guarded_make(n, cols, NULL);
        twin_device[i]->ops->elementwise->convert(twin_device[i], alias ? gx.m : gy.m, gx.m);
        guarded_take(y, alias ? &gx : &gy);
        guarded_drop(alias ? &gy : &gx);
        CHECK_BITS(x, y, n * cols);
    }
    free(x), free(y);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    for (int alias = 0; alias < 2; alias++) {
        converted(1, 1, alias);
        converted(700, 33, alias);
    }
    for (int swiglu = 0; swiglu < 2; swiglu++)
        for (int alias = 0; alias < 3; alias++) {
            compare(1, 1, 1.0f, swiglu, alias);
            compare(3, 31, 3.0f, swiglu, alias);
            compare(700, 33, 1.0f, swiglu, alias);
            compare(5, 64, 60.0f, swiglu, alias); /* e^-x from nothing to beyond float's range */
        }
    return twins_close();
}
