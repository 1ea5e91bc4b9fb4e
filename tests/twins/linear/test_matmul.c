/* test_matmul.c -- every number of rows around the border between the loop for few rows and the path for many, odd
 * sizes, edges of tiles; with OpenBLAS, and with AMX tiles if the processor has them. */
#include "kernels/device/device_internal.h"
#include "tests/twins/twins.h"

enum { FORWARD, PACKED, EACH, ADD }; /* ADD: to another matrix */

/* y [n, outs] of x [n, in] and w [outs, in], added to `old` unless it is NULL. */
struct product {
    const float *x, *w, *old;
    int64_t n, outs, in;
};

static void matmul_run(float *out, int device, int op, struct product p) {
    struct device *dev = twin_device[device];
    struct guarded y = guarded_make(p.n, p.outs, op == ADD ? NULL : p.old), base = guarded_make(p.n, p.outs, p.old),
                   gx = guarded_make(p.n, p.in, p.x), gw = guarded_make(p.outs, p.in, p.w);
    if (op == FORWARD) {
        dev->ops->matmul->forward(dev, y.m, gx.m, gw.m, p.old != NULL);
    } else if (op == EACH) {
        dev->ops->matmul->forward_each(dev, y.m, gx.m, gw.m, p.old != NULL);
    } else if (op == ADD) {
        dev->ops->matmul->forward_add(dev, y.m, base.m, gx.m, gw.m);
    } else {
        int64_t elements = dev->ops->matmul->packed_elements(p.outs, p.in);
        struct guarded packed = guarded_packed(elements);
        dev->ops->matmul->pack(dev, packed.m.data, gw.m);
        dev->ops->matmul->forward_packed(dev, y.m, gx.m, packed.m.data, p.old != NULL);
        guarded_drop(&packed);
    }
    guarded_take(out, &y);
    guarded_drop(&base);
    guarded_drop(&gx);
    guarded_drop(&gw);
}

static void compare(int64_t n, int64_t outs, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f), *old = random_array(n * outs, 1.0f);
    float *naive = zero_array(n * outs), *twin[DEVICES] = {zero_array(n * outs), zero_array(n * outs)};
    double *ref = double_array(n * outs);
    for (int accumulate = 0; accumulate < 2; accumulate++)
        for (int op = FORWARD; op <= (accumulate ? ADD : EACH); op++) {
            const float *add = accumulate ? old : NULL;
            ref_matmul(ref, x, w, n, outs, in, add);
            naive_matmul(naive, x, w, n, outs, in, add);
            for (int d = 0; d < DEVICES; d++)
                matmul_run(twin[d], d, op, (struct product){x, w, add, n, outs, in});
            CHECK_TWIN(twin[0], naive, ref, n * outs);
            CHECK_BITS(twin[0], twin[1], n * outs);
        }
    free(x), free(w), free(old), free(naive), free(twin[0]), free(twin[1]), free(ref);
}

/* A product of 2f columns, and its first half gated by its second. */
static void gated(int64_t n, int64_t f, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(2 * f * in, 0.3f), *naive = zero_array(2 * n * f);
    float *twin[DEVICES][2];
    double *ref = double_array(2 * n * f);
    ref_matmul(ref, x, w, n, 2 * f, in, NULL);
    naive_matmul(naive, x, w, n, 2 * f, in, NULL);
    for (int d = 0; d < DEVICES; d++) {
        struct guarded both = guarded_make(n, 2 * f, NULL), y = guarded_make(n, f, NULL), gx = guarded_make(n, in, x),
                       gw = guarded_make(2 * f, in, w);
        twin_device[d]->ops->matmul->forward_gated(twin_device[d], y.m, both.m, gx.m, gw.m);
        twin[d][0] = zero_array(2 * n * f), twin[d][1] = zero_array(n * f);
        guarded_take(twin[d][0], &both), guarded_take(twin[d][1], &y);
        guarded_drop(&gx), guarded_drop(&gw);
    }
    CHECK_TWIN(twin[0][0], naive, ref, 2 * n * f);
    for (int64_t r = 0; r < n; r++) /* the gated values take the first n * f numbers */
        for (int64_t c = 0; c < f; c++) {
            double g = ref[r * 2 * f + c];
            float h = naive[r * 2 * f + c];
            ref[r * f + c] = g / (1.0 + exp(-g)) * ref[r * 2 * f + f + c];
            naive[r * f + c] = h / (1.0f + expf(-h)) * naive[r * 2 * f + f + c];
        }
    CHECK_TWIN(twin[0][1], naive, ref, n * f);
    CHECK_BITS(twin[0][0], twin[1][0], 2 * n * f);
    CHECK_BITS(twin[0][1], twin[1][1], n * f);
    for (int i = 0; i < 2 * DEVICES; i++)
        free(twin[i / 2][i % 2]);
    free(x), free(w), free(naive), free(ref);
}

/* A packed row's bits depend on the row alone: it is computed alone, and at any position among others. */
static void row_among_others(int64_t n, int64_t outs, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f);
    float *all = zero_array(n * outs), *alone = zero_array(n * outs);
    matmul_run(all, 1, PACKED, (struct product){x, w, NULL, n, outs, in});
    for (int64_t first = 0, m = 1; first < n; first += m, m = 1 + (m * 5 + 2) % 11) {
        if (m > n - first) m = n - first;
        matmul_run(alone, 0, PACKED, (struct product){x + first * in, w, NULL, m, outs, in});
        CHECK_BITS(alone, all + first * outs, m * outs);
    }
    free(x), free(w), free(all), free(alone);
}

/* Weights that are exact in bf16, passed as bf16 to products of few rows: the same bits. */
static void narrow(int64_t outs, int64_t in) {
    float *x = random_array(MATMUL_FEW_ROWS * in, 1.0f), *w = random_array(outs * in, 0.3f);
    uint16_t *halves = truncate_to_bf16(w, outs * in);
    for (int64_t n = 1; n <= MATMUL_FEW_ROWS; n++)
        for (int add = 0; add < 2; add++) {
            float *old = random_array(n * outs, 1.0f), *wide = zero_array(n * outs);
            struct guarded y = guarded_make(n, outs, old), gx = guarded_make(n, in, x);
            matmul_run(wide, 0, FORWARD, (struct product){x, w, add ? old : NULL, n, outs, in});
            twin_device[1]->ops->matmul->forward(twin_device[1], y.m, gx.m, mat_dense(halves, DTYPE_BF16, outs, in),
                                                 add);
            guarded_take(old, &y);
            guarded_drop(&gx);
            CHECK_BITS(old, wide, n * outs);
            free(old), free(wide);
        }
    free(x), free(w), free(halves);
}

/* A row of forward_each has the bits of forward with that row alone, among any number of others, from float32 and bf16
 * weights. */
static void each_alone(int64_t n, int64_t outs, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f), *old = random_array(n * outs, 1.0f);
    float *all = zero_array(n * outs), *narrow_all = zero_array(n * outs), *alone = zero_array(outs);
    uint16_t *halves = truncate_to_bf16(w, outs * in);
    for (int add = 0; add < 2; add++) {
        struct guarded y = guarded_make(n, outs, add ? old : NULL), gx = guarded_make(n, in, x);
        matmul_run(all, 1, EACH, (struct product){x, w, add ? old : NULL, n, outs, in});
        twin_device[0]->ops->matmul->forward_each(twin_device[0], y.m, gx.m, mat_dense(halves, DTYPE_BF16, outs, in),
                                                  add);
        guarded_take(narrow_all, &y);
        guarded_drop(&gx);
        CHECK_BITS(narrow_all, all, n * outs);
        for (int64_t row = 0; row < n; row++) {
            matmul_run(alone, 0, FORWARD,
                       (struct product){x + row * in, w, add ? old + row * outs : NULL, 1, outs, in});
            CHECK_BITS(alone, all + row * outs, outs);
        }
    }
    free(x), free(w), free(old), free(all), free(narrow_all), free(alone), free(halves);
}

static void all_shapes(void) {
    for (int64_t n = 1; n <= 33; n += n < 10 ? 1 : 11) {
        each_alone(n, 70, 17);
        each_alone(n, 33, 130);
        each_alone(n, 300, 64);
        each_alone(n, 9, 3000);
    }
    for (int64_t n = 1; n <= 10; n++) {
        compare(n, 33, 17);
        compare(n, 64, 64);
        compare(n, 5, 130);
    }
    gated(1, 5, 7);
    gated(70, 33, 40);
    compare(1, 1, 1);
    compare(3, 2000, 16);
    compare(257, 40, 31);
    compare(300, 1030, 48);
    compare(65, 3, 400);
    narrow(33, 17);
    narrow(64, 64);
    narrow(5, 130);
    row_among_others(150, 70, 300);
    row_among_others(23, 32, 64);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    bool amx = device_cpu(twin_device[0])->amx;
    all_shapes();
    for (int d = 0; d < DEVICES && amx; d++)
        device_cpu_without_amx(twin_device[d]);
    if (amx) all_shapes();
    return twins_close();
}
