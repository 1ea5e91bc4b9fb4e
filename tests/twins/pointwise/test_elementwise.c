/* test_elementwise.c -- conversion, add and SwiGLU, each output in separate memory, in the first input, in the second;
 * rows into slots. */
#include "base/half.h"
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

/* Of every kind of fp16: numbers, those too small and too large for it, and those between two. */
static void halved(int64_t n, int64_t cols) {
    float *x = random_array(n * cols, 1.0f);
    for (int64_t i = 0; i < n * cols; i++)
        x[i] *= ldexpf(1.0f, (int)(i % 48) - 30);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gx = guarded_make(n, cols, x), gy = guarded_make(n, cols, NULL);
        const struct mat y = {.data = gy.m.data, .type = DTYPE_F16, .rows = n, .cols = cols, .stride = 2 * gy.m.stride};
        twin_device[i]->ops->elementwise->convert(twin_device[i], y, gx.m);
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < cols; c++)
                CHECK_EQ(((const uint16_t *)y.data)[r * y.stride + c], half_to_f16(mat_row(gx.m, r)[c]));
        guarded_drop(&gx), guarded_drop(&gy);
    }
    free(x);
}

/* Every slot but one is filled, in mixed order; the remaining one must not change. */
static void placed(int64_t chunks, int positions, int slot_rows, int live, int64_t cols, bool named) {
    int64_t rows = (chunks + 1) * slot_rows;
    float *x = random_array(chunks * positions * cols, 1.0f), *pool = random_array(rows * cols, 1.0f);
    float *want = zero_array(rows * cols), *got = zero_array(rows * cols);
    int32_t *slot = malloc((size_t)chunks * sizeof *slot);
    memcpy(want, pool, (size_t)(rows * cols) * sizeof *want);
    for (int64_t c = 0; c < chunks; c++) {
        slot[c] = named ? (int32_t)((c * 3 + 1) % (chunks + 1)) : (int32_t)c;
        for (int64_t i = 0; i < slot_rows * cols; i++)
            want[slot[c] * slot_rows * cols + i] = i < live * cols ? x[c * positions * cols + i] : 0.0f;
    }
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gx = guarded_make(chunks * positions, cols, x), gp = guarded_make(rows, cols, pool);
        struct elementwise_slots s = {.slot = named ? slot : NULL,
                                      .chunks = chunks,
                                      .positions = positions,
                                      .slot_rows = slot_rows,
                                      .live = live};
        twin_device[i]->ops->elementwise->write_slots(twin_device[i], gp.m, gx.m, s);
        guarded_take(got, &gp);
        guarded_drop(&gx);
        CHECK_BITS(got, want, rows * cols);
    }
    free(x), free(pool), free(want), free(got), free(slot);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    for (int alias = 0; alias < 2; alias++) {
        converted(1, 1, alias);
        converted(700, 33, alias);
    }
    halved(1, 1);
    halved(700, 33);
    for (int named = 0; named < 2; named++) {
        placed(1, 64, 64, 63, 8, named);
        placed(4, 65, 64, 64, 33, named); /* 3 c + 1 modulo 5 names each slot once */
        placed(9, 5, 7, 3, 1, named);
    }
    for (int swiglu = 0; swiglu < 2; swiglu++)
        for (int alias = 0; alias < 3; alias++) {
            compare(1, 1, 1.0f, swiglu, alias);
            compare(3, 31, 3.0f, swiglu, alias);
            compare(700, 33, 1.0f, swiglu, alias);
            compare(5, 64, 60.0f, swiglu, alias); /* e^-x from 0 to beyond float's range */
        }
    return twins_close();
}
