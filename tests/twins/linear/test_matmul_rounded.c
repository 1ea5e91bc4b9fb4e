/* test_matmul_rounded.c -- packed products rounded to bf16 (matmul.h), on AMX tiles, on vectors of AVX512_BF16, by
 * fused multiply-adds, in plain C and without all: against the oracle with inputs that were rounded first; a row's bits
 * depend on the row alone. */
#include "base/half.h"
#include "kernels/device/device_internal.h"
#include "tests/twins/twins.h"

/* y [n, outs] of x [n, in] and w [outs, in], added to `old` unless it is NULL. */
struct product {
    const float *x, *w, *old;
    int64_t n, outs, in;
};

static void multiply(float *out, struct device *dev, bool rounded, struct product p) {
    const struct matmul_ops *ops = dev->ops->matmul;
    struct guarded y = guarded_make(p.n, p.outs, p.old), gx = guarded_make(p.n, p.in, p.x),
                   gw = guarded_make(p.outs, p.in, p.w), packed = guarded_packed(ops->packed_elements(p.outs, p.in));
    (rounded ? ops->pack_rounded : ops->pack)(dev, packed.m.data, gw.m);
    (rounded ? ops->forward_rounded : ops->forward_packed)(dev, y.m, gx.m, packed.m.data, p.old != NULL);
    guarded_take(out, &y);
    guarded_drop(&gx);
    guarded_drop(&gw);
    guarded_drop(&packed);
}

static float *rounded_copy(const float *x, int64_t n) {
    float *copy = zero_array(n);
    for (int64_t i = 0; i < n; i++)
        copy[i] = half_from_bf16(half_to_bf16(x[i]));
    return copy;
}

static void compare(int64_t n, int64_t outs, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f), *old = random_array(n * outs, 1.0f);
    float *naive = zero_array(n * outs), *twin[DEVICES] = {zero_array(n * outs), zero_array(n * outs)};
    float *rx = rounded_copy(x, n * in), *rw = rounded_copy(w, outs * in);
    double *ref = double_array(n * outs);
    const bool rounds = twin_device[0]->ops->matmul->rounds(twin_device[0]);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        const float *add = accumulate ? old : NULL;
        ref_matmul(ref, rounds ? rx : x, rounds ? rw : w, n, outs, in, add);
        naive_matmul(naive, rounds ? rx : x, rounds ? rw : w, n, outs, in, add);
        for (int d = 0; d < DEVICES; d++)
            multiply(twin[d], twin_device[d], true, (struct product){x, w, add, n, outs, in});
        CHECK_TWIN(twin[0], naive, ref, n * outs);
        CHECK_BITS(twin[0], twin[1], n * outs);
        multiply(twin[1], device_worker(twin_device[1], 1), true, (struct product){x, w, add, n, outs, in});
        CHECK_BITS(twin[0], twin[1], n * outs);
        if (rounds) continue;
        multiply(twin[1], twin_device[1], false, (struct product){x, w, add, n, outs, in});
        CHECK_BITS(twin[0], twin[1], n * outs);
    }
    free(x), free(w), free(old), free(naive), free(twin[0]), free(twin[1]), free(ref), free(rx), free(rw);
}

/* A row is computed alone, and at any position among others. */
static void row_among_others(int64_t n, int64_t outs, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f);
    float *all = zero_array(n * outs), *part = zero_array(n * outs);
    multiply(all, twin_device[1], true, (struct product){x, w, NULL, n, outs, in});
    for (int64_t first = 0, m = 1; first < n; first += m, m = 1 + (m * 5 + 2) % 11) {
        if (m > n - first) m = n - first;
        multiply(part, twin_device[0], true, (struct product){x + first * in, w, NULL, m, outs, in});
        CHECK_BITS(part, all + first * outs, m * outs);
    }
    free(x), free(w), free(all), free(part);
}

/* Halfway between two bf16 numbers: the even one is taken, of x and of w. The products are exact. */
static void nearest_even(void) {
    enum { N = 9, OUTS = 3 };
    const float number[] = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 1.0f + 0x1p-8f + 0x1p-20f};
    const float expected[] = {1.0f, 1.0f + 0x1p-6f, 1.0f + 0x1p-7f};
    float x[N], w[OUTS], y[N * OUTS];
    if (!twin_device[0]->ops->matmul->rounds(twin_device[0])) return;
    for (int r = 0; r < N; r++)
        x[r] = r < 3 ? number[r] : 1.0f;
    for (int o = 0; o < OUTS; o++)
        w[o] = number[o];
    multiply(y, twin_device[0], true, (struct product){x, w, NULL, N, OUTS, 1});
    for (int r = 0; r < N; r++)
        for (int o = 0; o < OUTS; o++)
            CHECK(y[r * OUTS + o] == (r < 3 ? expected[r] : 1.0f) * expected[o]);
}

/* Infinity or NaN in x or w: every sum that includes it is not finite; the others keep their bits. */
static void no_numbers(float odd, bool in_w) {
    enum { N = 35, OUTS = 70, IN = 75, ROW = 19, AT = 33 };
    float *x = random_array(N * IN, 1.0f), *w = random_array(OUTS * IN, 1.0f);
    float *before = zero_array(N * OUTS), *y = zero_array(N * OUTS);
    multiply(before, twin_device[0], true, (struct product){x, w, NULL, N, OUTS, IN});
    *(in_w ? w + ROW * IN + AT : x + ROW * IN + AT) = odd;
    multiply(y, twin_device[0], true, (struct product){x, w, NULL, N, OUTS, IN});
    for (int64_t r = 0; r < N; r++)
        for (int64_t o = 0; o < OUTS; o++) {
            if ((in_w ? o : r) == ROW)
                CHECK(!isfinite(y[r * OUTS + o]));
            else if (!device_cpu(twin_device[0])->amx || !in_w) /* one weight can change AMX's path of all panels */
                CHECK(y[r * OUTS + o] == before[r * OUTS + o]);
        }
    free(x), free(w), free(before), free(y);
}

/* Rows that one thread computes with others: of a worker's device as of its own. */
static void rows_together(void) {
    struct device *dev = twin_device[1], *worker = device_worker(dev, 1);
    const int64_t rows = dev->ops->matmul->rows_together(dev);
    CHECK(rows == (device_cpu(dev)->amx ? 16 : 3) && rows == worker->ops->matmul->rows_together(worker));
}

static void all_shapes(void) {
    static const int64_t rows[] = {1, 2, 5, 6, 7, 16, 63, 126, 129};
    static const int64_t shapes[][2] = {{1, 1},   {3, 2},    {64, 64}, {65, 31},   {63, 33},  {31, 257},
                                        {130, 7}, {70, 256}, {96, 96}, {300, 130}, {130, 600}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (size_t r = TEST_SANITIZED ? i % 2 : 0; r < ARRAY_LEN(rows); r += TEST_SANITIZED ? 2 : 1)
            compare(rows[r], shapes[i][0], shapes[i][1]);
    for (size_t i = 3; i < ARRAY_LEN(shapes) - 1; i += 2) /* several tasks of rows */
        compare(500, shapes[i][0], shapes[i][1]);
    compare(20, 70, 4100); /* more inputs than are rounded at once */
    compare(9, 33, 8193);
    row_among_others(150, 70, 300);
    row_among_others(23, 32, 64);
    row_among_others(40, 65, 4200);
    nearest_even();
    rows_together();
    for (int in_w = 0; in_w < 2; in_w++) {
        no_numbers(INFINITY, in_w);
        no_numbers(NAN, in_w);
    }
}

/* On a processor with AVX512_BF16 plain C and fused multiply-adds have its bits: of any numbers, subnormal ones and
 * infinities among them. */
static float any_float(int range) {
    const uint32_t sign = (uint32_t)rng_below(&twin_rng, 2) << 31, fraction = (uint32_t)rng_below(&twin_rng, 1 << 23);
    const uint32_t exponent = range == 0   ? (uint32_t)rng_below(&twin_rng, 256)
                              : range == 1 ? (uint32_t)rng_below(&twin_rng, 70)
                              : range == 2 ? 120 + (uint32_t)rng_below(&twin_rng, 10)
                                           : (uint32_t)rng_below(&twin_rng, 3);
    const uint32_t bits = sign | exponent << 23 | fraction;
    float x;
    memcpy(&x, &bits, sizeof x);
    return rng_below(&twin_rng, 20) == 0 ? copysignf(0, x) : x;
}

static void check_same_bits(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        CHECK((isnan(a[i]) && isnan(b[i])) || memcmp(&a[i], &b[i], sizeof *a) == 0);
}

static void others_have_its_bits(int64_t n, int64_t outs, int64_t in, int range_x, int range_w) {
    float *x = zero_array(n * in), *w = zero_array(outs * in), *old = random_array(n * outs, 1.0f);
    float *vector = zero_array(n * outs), *plain = zero_array(n * outs), *fused = zero_array(n * outs);
    for (int64_t i = 0; i < n * in; i++)
        x[i] = any_float(range_x);
    for (int64_t i = 0; i < outs * in; i++)
        w[i] = any_float(range_w);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        const struct product p = {x, w, accumulate ? old : NULL, n, outs, in};
        device_cpu_use_bf16(twin_device[0], true, false);
        device_cpu_use_fused(twin_device[0], false);
        multiply(vector, twin_device[0], true, p);
        device_cpu_use_fused(twin_device[0], true);
        multiply(fused, twin_device[0], true, p);
        device_cpu_use_bf16(twin_device[0], true, true);
        multiply(plain, twin_device[0], true, p);
        check_same_bits(vector, plain, n * outs);
        check_same_bits(vector, fused, n * outs);
    }
    free(x), free(w), free(old), free(vector), free(plain), free(fused);
}

static void others_have_all_bits(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 2, 5}, {7, 65, 64}, {9, 130, 33}, {2, 70, 4101}, {2, 3, 8192}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int x = 0; x < 4; x++)
            for (int w = 0; w < 4; w++)
                others_have_its_bits(shapes[i][0], shapes[i][1], shapes[i][2], x, w);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    const bool bf16 = twin_device[0]->ops->matmul->rounds(twin_device[0]), amx = device_cpu(twin_device[0])->amx;
    const bool first = device_cpu(twin_device[0])->bf16_fused;
    all_shapes();
    for (int d = 0; d < DEVICES; d++)
        device_cpu_without_amx(twin_device[d]);
    for (int fused = 0; fused < 2 && bf16; fused++) {
        if (!amx && fused == first) continue; /* was the first */
        for (int d = 0; d < DEVICES; d++)
            device_cpu_use_fused(twin_device[d], fused);
        all_shapes();
    }
    for (int d = 0; d < DEVICES; d++)
        device_cpu_without_bf16(twin_device[d]);
    if (bf16) all_shapes();
    for (int d = 0; d < DEVICES; d++)
        matmul_round_plainly(twin_device[d]);
    CHECK(twin_device[0]->ops->matmul->rounds(twin_device[0]));
    all_shapes();
    if (bf16) others_have_all_bits();
    return twins_close();
}
