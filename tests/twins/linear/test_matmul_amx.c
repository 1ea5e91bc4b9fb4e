/* test_matmul_amx.c -- products on AMX tiles (kernels/linear/matmul_amx.h) if the processor has them: against the
 * oracle and against the path without tiles; the promises for numbers that are no sum of three bf16 numbers; a row's
 * bits depend on the row alone. */
#include "kernels/device/device_internal.h"
#include "kernels/linear/matmul_amx.h"
#include "tests/twins/twins.h"

enum { FORWARD, PACKED, WAYS };

/* y [n, outs] of x [n, in] and w [outs, in], added to `old` unless it is NULL. */
struct product {
    const float *x, *w, *old;
    int64_t n, outs, in;
};

static void multiply(float *out, struct device *dev, int way, struct product p) {
    struct guarded y = guarded_make(p.n, p.outs, p.old), gx = guarded_make(p.n, p.in, p.x),
                   gw = guarded_make(p.outs, p.in, p.w);
    if (way == PACKED) {
        struct guarded packed = guarded_packed(dev->ops->matmul->packed_elements(p.outs, p.in));
        dev->ops->matmul->pack(dev, packed.m.data, gw.m);
        dev->ops->matmul->forward_packed(dev, y.m, gx.m, packed.m.data, p.old != NULL);
        guarded_drop(&packed);
    } else {
        dev->ops->matmul->forward(dev, y.m, gx.m, gw.m, p.old != NULL);
    }
    guarded_take(out, &y);
    guarded_drop(&gx);
    guarded_drop(&gw);
}

/* With tiles and without. */
static void compare(struct device *plain, int64_t n, int64_t outs, int64_t in, bool exact) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f), *old = random_array(n * outs, 1.0f);
    float *naive = zero_array(n * outs), *twin[DEVICES] = {zero_array(n * outs), zero_array(n * outs)};
    double *ref = double_array(n * outs);
    if (exact) free(truncate_to_bf16(w, outs * in));
    for (int accumulate = 0; accumulate < 2; accumulate++)
        for (int way = 0; way < WAYS; way++) {
            const float *add = accumulate ? old : NULL;
            ref_matmul(ref, x, w, n, outs, in, add);
            naive_matmul(naive, x, w, n, outs, in, add);
            for (int d = 0; d < DEVICES; d++)
                multiply(twin[d], twin_device[d], way, (struct product){x, w, add, n, outs, in});
            CHECK_TWIN(twin[0], naive, ref, n * outs);
            CHECK_BITS(twin[0], twin[1], n * outs);
            multiply(twin[1], plain, way, (struct product){x, w, add, n, outs, in});
            CHECK_TWIN(twin[1], naive, ref, n * outs);
        }
    free(x), free(w), free(old), free(naive), free(twin[0]), free(twin[1]), free(ref);
}

/* A sum of the last bits of x: three parts have all 24 bits. */
static void last_bits(void) {
    enum { N = 16, IN = 2 };
    float x[N * IN], w[IN] = {1.0f, -1.0f}, y[N];
    for (int r = 0; r < N; r++) {
        float base = ldexpf(1.0f, r * 8 - 60);
        x[2 * r] = nextafterf(base, INFINITY);
        x[2 * r + 1] = base;
    }
    for (int way = 0; way < WAYS; way++) {
        multiply(y, twin_device[0], way, (struct product){x, w, NULL, N, 1, IN});
        for (int r = 0; r < N; r++)
            CHECK(y[r] == x[2 * r] - x[2 * r + 1]);
    }
}

/* The error of a sum by numbers too small for a part: 2^-125 of the other factor for each term. */
static void small_numbers(bool exact) {
    enum { N = 40, OUTS = 33, IN = 50 };
    float *x = random_array(N * IN, 1.0f), *w = random_array(OUTS * IN, 1.0f), *y = zero_array(N * OUTS);
    double *ref = double_array(N * OUTS);
    for (int64_t i = 0; i < N * IN; i++)
        x[i] = ldexpf(x[i], -100 - (int)(i % 50)); /* most lose a part, or all parts */
    if (exact) free(truncate_to_bf16(w, OUTS * IN));
    ref_matmul(ref, x, w, N, OUTS, IN, NULL);
    for (int way = 0; way < WAYS; way++) {
        multiply(y, twin_device[0], way, (struct product){x, w, NULL, N, OUTS, IN});
        for (int64_t r = 0; r < N; r++)
            for (int64_t o = 0; o < OUTS; o++) {
                double sizes = 0.0, lost = 0.0;
                for (int64_t i = 0; i < IN; i++) {
                    sizes += fabs((double)x[r * IN + i] * (double)w[o * IN + i]);
                    lost += 0x1p-125 * (fabs((double)w[o * IN + i]) + 1.0); /* and the rounding of such small sums */
                }
                CHECK(fabs((double)y[r * OUTS + o] - ref[r * OUTS + o]) <= sizes * IN * 0x1p-23 + lost);
            }
    }
    free(x), free(w), free(y), free(ref);
}

/* The largest numbers stay finite, because truncation never rounds up. */
static void large_numbers(void) {
    enum { N = 17, IN = 3 };
    float x[N * IN] = {0}, w[IN] = {1.0f, 0.5f, 0.25f}, y[N];
    for (int r = 0; r < N; r++)
        x[r * IN + r % IN] = r % 2 ? -3.4028235e38f : 3.4028235e38f;
    for (int way = 0; way < WAYS; way++) {
        multiply(y, twin_device[0], way, (struct product){x, w, NULL, N, 1, IN});
        for (int r = 0; r < N; r++)
            CHECK(y[r] == x[r * IN + r % IN] * w[r % IN]);
    }
}

/* Infinity or NaN in x or w: every sum that includes it is not finite; the others do not change. */
static void no_numbers(float odd, bool in_w, bool exact) {
    enum { N = 35, OUTS = 40, IN = 70, ROW = 19, AT = 33 };
    float *x = random_array(N * IN, 1.0f), *w = random_array(OUTS * IN, 1.0f);
    float *before = zero_array(N * OUTS), *y = zero_array(N * OUTS);
    if (exact) free(truncate_to_bf16(w, OUTS * IN));
    for (int way = 0; way < WAYS; way++) {
        float *number = in_w ? w + ROW * IN + AT : x + ROW * IN + AT, kept = *number;
        multiply(before, twin_device[0], way, (struct product){x, w, NULL, N, OUTS, IN});
        *number = odd;
        multiply(y, twin_device[0], way, (struct product){x, w, NULL, N, OUTS, IN});
        *number = kept;
        for (int64_t r = 0; r < N; r++)
            for (int64_t o = 0; o < OUTS; o++) {
                bool met = (in_w ? o : r) == ROW;
                CHECK(met ? !isfinite(y[r * OUTS + o]) : isfinite(y[r * OUTS + o]));
                /* One weight that needs more parts changes the path of its panel, or of all panels. */
                if (!met && !in_w) CHECK(y[r * OUTS + o] == before[r * OUTS + o]);
            }
    }
    free(x), free(w), free(before), free(y);
}

static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Both paths: a row alone (from the smallest number of rows that uses tiles on) or at any position among others. */
static void row_among_others(int64_t n, int64_t outs, int64_t in, bool exact) {
    enum { LEAST = 9 };
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f);
    float *all = zero_array(n * outs), *part = zero_array(n * outs);
    if (exact) free(truncate_to_bf16(w, outs * in));
    for (int way = 0; way < WAYS; way++) {
        multiply(all, twin_device[1], way, (struct product){x, w, NULL, n, outs, in});
        for (int64_t first = 0, m = LEAST; first + m <= n; first += m, m = LEAST + (m * 5 + 2) % 31) {
            multiply(part, twin_device[0], way, (struct product){x + first * in, w, NULL, m, outs, in});
            CHECK_BITS(part, all + first * outs, m * outs);
        }
    }
    free(x), free(w), free(all), free(part);
}

int main(int argc, char **argv) {
    static const int64_t shapes[][3] = {{9, 1, 1},     {16, 16, 32},  {17, 33, 31},   {32, 32, 64},    {33, 31, 65},
                                        {48, 100, 96}, {64, 5, 1000}, {31, 40, 1024}, {20, 70, 1025},  {40, 33, 2100},
                                        {129, 97, 40}, {300, 260, 7}, {700, 34, 33},  {1000, 200, 130}};
    twins_open(argc, argv);
    if (!device_cpu(twin_device[0])->amx) test_skip("no AMX: a product has no tiles here");
    struct device *plain;
    CHECK_OK(device_open(&plain, "cpu", 1));
    device_cpu_without_amx(plain);
    for (int exact = 0; exact < 2;
         exact++) { /* weights that are exact in bf16: three products are exact; else six of nine are computed */
        for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
            compare(plain, shapes[i][0], shapes[i][1], shapes[i][2], exact);
        for (int in_w = 0; in_w < 2; in_w++) {
            no_numbers(INFINITY, in_w, exact);
            no_numbers(-INFINITY, in_w, exact);
            no_numbers(NAN, in_w, exact);
            no_numbers(of_bits(0x7f800001u), in_w, exact); /* a NaN whose bits are not in the first part */
        }
        small_numbers(exact);
        row_among_others(150, 70, 300, exact);
        row_among_others(100, 32, 1500, exact);
    }
    last_bits();
    large_numbers();
    device_close(plain);
    return twins_close();
}
