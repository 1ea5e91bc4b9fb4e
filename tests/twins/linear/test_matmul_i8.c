/* test_matmul_i8.c -- products with 8-bit weights (matmul.h) on every path that the processor has: against the oracle
 * with weights and inputs that this test rounds itself; the same bits on all paths, for a row alone and among others,
 * from forward, forward_each and forward_add; the weights' numbers, unpacked; views over adjacent matrices; the loss of
 * a rounded table. */
#include "base/half.h"
#include "kernels/device/device_internal.h"
#include "kernels/linear/matmul_i8.h"
#include "tests/twins/twins.h"

enum { FORWARD, EACH, ADD, X_STEPS = 32512 };

/* y [n, outs] of x [n, in] and rounded w [outs, in], added to `old` unless it is NULL. */
struct product {
    const float *x, *old;
    void *w;
    int64_t n, outs, in;
};

static void *packed_make(struct device *dev, const float *w, int64_t outs, int64_t in) {
    const size_t bytes = (size_t)matmul_i8_bytes(outs, in);
    void *packed = aligned_alloc(64, bytes + 64);
    struct guarded gw = guarded_make(outs, in, w);
    memset(packed, 0x5a, bytes + 64);
    dev->ops->matmul->pack_i8(dev, packed, gw.m);
    guarded_drop(&gw);
    for (size_t i = 0; i < 64; i++)
        CHECK_EQ(((unsigned char *)packed)[bytes + i], 0x5a);
    return packed;
}

static void multiply(float *out, struct device *dev, int op, struct product p) {
    struct guarded y = guarded_make(p.n, p.outs, op == ADD ? NULL : p.old), base = guarded_make(p.n, p.outs, p.old),
                   gx = guarded_make(p.n, p.in, p.x);
    const struct mat w = mat_dense(p.w, DTYPE_I8, p.outs, p.in);
    if (op == FORWARD)
        dev->ops->matmul->forward(dev, y.m, gx.m, w, p.old != NULL);
    else if (op == EACH)
        dev->ops->matmul->forward_each(dev, y.m, gx.m, w, p.old != NULL);
    else
        dev->ops->matmul->forward_add(dev, y.m, base.m, gx.m, w);
    guarded_take(out, &y);
    guarded_drop(&base);
    guarded_drop(&gx);
}

static void use_path(enum matmul_i8_path path) {
    for (int d = 0; d < DEVICES; d++)
        device_cpu_use_i8(twin_device[d], path);
}

/* Rounds rows to `limit` steps of each block's largest number, as the header states it. */
static float *rounded_copy(const float *x, int64_t rows, int64_t cols, int limit) {
    float *copy = zero_array(rows * cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t first = 0; first < cols; first += MATMUL_I8_BLOCK) {
            const int64_t n = cols - first < MATMUL_I8_BLOCK ? cols - first : MATMUL_I8_BLOCK;
            const float *from = x + r * cols + first;
            float largest = 0.0f;
            for (int64_t i = 0; i < n; i++)
                largest = fmaxf(largest, fabsf(from[i]));
            if (largest < 1e-30f) continue;
            const float factor = (float)limit / largest, scale = largest * (1.0f / (float)limit);
            for (int64_t i = 0; i < n; i++)
                copy[r * cols + first + i] = nearbyintf(from[i] * factor) * scale;
        }
    return copy;
}

/* The sum and the largest of |a| in each block of each row. */
struct block_size {
    double sum, largest;
};
static struct block_size *block_sizes(const float *a, int64_t rows, int64_t cols) {
    const int64_t blocks = (cols + MATMUL_I8_BLOCK - 1) / MATMUL_I8_BLOCK;
    struct block_size *sizes = calloc((size_t)(rows * blocks), sizeof *sizes);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i++) {
            struct block_size *s = sizes + r * blocks + i / MATMUL_I8_BLOCK;
            const double size = fabs((double)a[r * cols + i]);
            s->sum += size;
            s->largest = size > s->largest ? size : s->largest;
        }
    return sizes;
}

/* The greatest distance from the unrounded product, as a share of sum |x| |w|: half a step of 1/127 of a block's
 * largest weight, and of 1/X_STEPS of its largest input. */
static void check_distance(const float *y, const double *exact, const float *w, struct product p) {
    const int64_t blocks = (p.in + MATMUL_I8_BLOCK - 1) / MATMUL_I8_BLOCK;
    struct block_size *sx = block_sizes(p.x, p.n, p.in), *sw = block_sizes(w, p.outs, p.in);
    for (int64_t r = 0; r < p.n; r++)
        for (int64_t o = 0; o < p.outs; o++) {
            double limit = 1e-5;
            for (int64_t b = 0; b < blocks; b++) {
                const struct block_size in = sx[r * blocks + b], of = sw[o * blocks + b];
                limit += 1.01 * (in.sum * of.largest / 254 + of.sum * in.largest / (2 * X_STEPS));
            }
            CHECK(fabs((double)y[r * p.outs + o] - exact[r * p.outs + o]) <= limit);
        }
    free(sx), free(sw);
}

/* The ops first .. last on every path. */
static void compare_ops(int first, int last, const float *w, struct product p) {
    const int64_t numbers = p.n * p.outs;
    float *naive = zero_array(numbers), *twin[DEVICES] = {zero_array(numbers), zero_array(numbers)};
    float *rx = rounded_copy(p.x, p.n, p.in, X_STEPS), *rw = rounded_copy(w, p.outs, p.in, 127),
          *y = zero_array(numbers);
    double *ref = double_array(numbers);
    bool any = false;
    ref_matmul(ref, rx, rw, p.n, p.outs, p.in, p.old);
    naive_matmul(naive, rx, rw, p.n, p.outs, p.in, p.old);
    for (int path = 0; path < I8_PATHS; path++) {
        if (!matmul_i8.has((enum matmul_i8_path)path)) continue;
        use_path((enum matmul_i8_path)path);
        for (int op = first; op <= last; op++) {
            for (int d = 0; d < DEVICES; d++)
                multiply(twin[d], twin_device[d], op, p);
            CHECK_TWIN(twin[0], naive, ref, numbers);
            CHECK_BITS(twin[0], twin[1], numbers);
            if (!any) memcpy(y, twin[0], (size_t)numbers * sizeof *y);
            any = true;
            CHECK_BITS(twin[0], y, numbers);
        }
        multiply(twin[1], device_worker(twin_device[1], 1), first, p);
        CHECK_BITS(twin[1], y, numbers);
    }
    CHECK(any);
    if (!p.old) {
        ref_matmul(ref, p.x, w, p.n, p.outs, p.in, NULL);
        check_distance(y, ref, w, p);
    }
    free(naive), free(twin[0]), free(twin[1]), free(ref), free(rx), free(rw), free(y);
}

/* The numbers of packed weights are those that the test rounds, as bf16. */
static void check_unpacked(void *packed, const float *w, int64_t outs, int64_t in) {
    float *rounded = rounded_copy(w, outs, in, 127);
    uint16_t *numbers = calloc((size_t)(outs * in), sizeof *numbers);
    for (int d = 0; d < DEVICES; d++) {
        twin_device[d]->ops->matmul->unpack_i8(twin_device[d], numbers, mat_dense(packed, DTYPE_I8, outs, in));
        for (int64_t i = 0; i < outs * in; i++)
            CHECK(half_from_bf16(numbers[i]) == half_from_bf16(half_to_bf16(rounded[i]))); /* either zero */
    }
    free(rounded), free(numbers);
}

static void compare(int64_t n, int64_t outs, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f), *old = random_array(n * outs, 1.0f);
    void *packed = packed_make(twin_device[1], w, outs, in);
    check_unpacked(packed, w, outs, in);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        const struct product p = {x, accumulate ? old : NULL, packed, n, outs, in};
        compare_ops(FORWARD, accumulate ? ADD : EACH, w, p);
    }
    free(x), free(w), free(old), free(packed);
}

/* A row is computed alone, and at any position among others. */
static void row_among_others(int64_t n, int64_t outs, int64_t in) {
    float *x = random_array(n * in, 1.0f), *w = random_array(outs * in, 0.3f);
    float *all = zero_array(n * outs), *part = zero_array(n * outs);
    void *packed = packed_make(twin_device[0], w, outs, in);
    multiply(all, twin_device[1], EACH, (struct product){x, NULL, packed, n, outs, in});
    for (int64_t first = 0, m = 1; first < n; first += m, m = 1 + (m * 5 + 2) % 11) {
        if (m > n - first) m = n - first;
        multiply(part, twin_device[0], EACH, (struct product){x + first * in, NULL, packed, m, outs, in});
        CHECK_BITS(part, all + first * outs, m * outs);
    }
    free(x), free(w), free(all), free(part), free(packed);
}

/* Two matrices in adjacent memory are one. */
static void adjacent(int64_t outs, int64_t more, int64_t in) {
    enum { N = 3 };
    float *x = random_array(N * in, 1.0f), *w = random_array((outs + more) * in, 0.3f);
    float *both = zero_array(N * (outs + more)), *one = zero_array(N * (outs + more));
    const int64_t bytes = matmul_i8_bytes(outs, in);
    unsigned char *memory = aligned_alloc(64, (size_t)(bytes + matmul_i8_bytes(more, in)));
    void *packed = packed_make(twin_device[0], w, outs + more, in);
    const struct matmul_ops *ops = twin_device[0]->ops->matmul;
    ops->pack_i8(twin_device[0], memory, mat_f32(w, outs, in));
    ops->pack_i8(twin_device[0], memory + bytes, mat_f32(w + outs * in, more, in));
    multiply(both, twin_device[0], FORWARD, (struct product){x, NULL, memory, N, outs + more, in});
    multiply(one, twin_device[0], FORWARD, (struct product){x, NULL, packed, N, outs + more, in});
    CHECK_BITS(both, one, N * (outs + more));
    free(x), free(w), free(both), free(one), free(packed), free(memory);
}

/* Infinity or NaN in x makes its row NaN, in w its column; the others keep their bits. */
static void no_numbers(float odd, bool in_w) {
    enum { N = 7, OUTS = 40, IN = 150, ROW = 5, AT = 133 };
    float *x = random_array(N * IN, 1.0f), *w = random_array(OUTS * IN, 1.0f);
    float *before = zero_array(N * OUTS), *y = zero_array(N * OUTS);
    void *packed = packed_make(twin_device[0], w, OUTS, IN);
    multiply(before, twin_device[0], FORWARD, (struct product){x, NULL, packed, N, OUTS, IN});
    *(in_w ? w + ROW * IN + AT : x + ROW * IN + AT) = odd;
    void *again = packed_make(twin_device[0], w, OUTS, IN);
    multiply(y, twin_device[0], FORWARD, (struct product){x, NULL, again, N, OUTS, IN});
    for (int64_t r = 0; r < N; r++)
        for (int64_t o = 0; o < OUTS; o++) {
            if ((in_w ? o : r) == ROW)
                CHECK(isnan(y[r * OUTS + o]));
            else
                CHECK(y[r * OUTS + o] == before[r * OUTS + o]);
        }
    free(x), free(w), free(before), free(y), free(packed), free(again);
}

/* Numbers at the ends: blocks of zeros and of tiny numbers count as zero, equal numbers have no error, and the largest
 * sums fit. */
static void extremes(void) {
    enum { IN = 2 * MATMUL_I8_BLOCK, OUTS = 17 };
    float x[IN], w[OUTS * IN], y[OUTS];
    for (int64_t i = 0; i < IN; i++)
        x[i] = i % 2 ? -2.0f : 2.0f;
    for (int64_t i = 0; i < OUTS * IN; i++)
        w[i] = (i % 2 ? -0.5f : 0.5f) * (i / IN == 3 ? -1.0f : 1.0f);
    for (int64_t i = 0; i < IN; i++) {
        w[5 * IN + i] = i % 3 == 0 ? 1e-31f : 0.0f;
        w[6 * IN + i] = i % 2 ? 1e30f : -1e30f;
    }
    void *packed = packed_make(twin_device[0], w, OUTS, IN);
    multiply(y, twin_device[0], FORWARD, (struct product){x, NULL, packed, 1, OUTS, IN});
    for (int o = 0; o < OUTS; o++) {
        const double expected = o == 3 ? -128.0 : o == 5 ? 0.0 : o == 6 ? -256e30 : 128.0;
        CHECK_CLOSE(&y[o], &(float){(float)expected}, 1, 1e-6 * fabs(expected));
    }
    memset(x, 0, sizeof x);
    multiply(y, twin_device[0], FORWARD, (struct product){x, NULL, packed, 1, OUTS, IN});
    for (int o = 0; o < OUTS; o++)
        CHECK(y[o] == 0.0f);
    free(packed);
}

/* nll of a rounded table, from the logits of the product. */
static void loss(int64_t n, int64_t d, int64_t words) {
    float *x = random_array(n * d, 1.0f), *table = random_array(words * d, 1.0f), *logits = zero_array(n * words);
    float *nll[DEVICES] = {zero_array(n), zero_array(n)}, *naive = zero_array(n);
    double *ref = double_array(n);
    int32_t *targets = malloc((size_t)n * sizeof *targets);
    void *packed = packed_make(twin_device[0], table, words, d);
    multiply(logits, twin_device[0], FORWARD, (struct product){x, NULL, packed, n, words, d});
    for (int64_t r = 0; r < n; r++) {
        double top = -INFINITY, sum = 0;
        targets[r] = r % 5 == 4 ? -100 : (int32_t)rng_below(&twin_rng, (uint64_t)words);
        for (int64_t i = 0; i < words; i++)
            top = fmax(top, (double)logits[r * words + i]);
        for (int64_t i = 0; i < words; i++)
            sum += exp((double)logits[r * words + i] - top);
        ref[r] = targets[r] < 0 ? 0.0 : top + log(sum) - (double)logits[r * words + targets[r]];
        naive[r] = (float)ref[r];
    }
    for (int i = 0; i < DEVICES; i++)
        twin_device[i]->ops->loss->forward(twin_device[i], nll[i], mat_f32(x, n, d),
                                           mat_dense(packed, DTYPE_I8, words, d), targets);
    CHECK_TWIN(nll[0], naive, ref, n);
    CHECK_BITS(nll[0], nll[1], n);
    free(x), free(table), free(logits), free(nll[0]), free(nll[1]), free(naive), free(ref), free(targets);
    free(packed);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 33, 64, 65, 200};
    static const int64_t shapes[][2] = {{1, 1},    {3, 2},     {16, 64},  {17, 65},  {31, 33},  {48, 128},
                                        {64, 100}, {130, 257}, {33, 640}, {600, 70}, {96, 1024}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (size_t r = TEST_SANITIZED ? i % 2 : 0; r < ARRAY_LEN(rows); r += TEST_SANITIZED ? 2 : 1)
            compare(rows[r], shapes[i][0], shapes[i][1]);
    compare(70, 18, 9000); /* so many inputs that fewer than 64 rows fit in a thread's scratch */
    compare(17, 5, 31744);
    for (int path = 0; path < I8_PATHS; path++) {
        if (!matmul_i8.has((enum matmul_i8_path)path)) continue;
        use_path((enum matmul_i8_path)path);
        row_among_others(150, 70, 300);
        row_among_others(23, 32, 64);
        adjacent(32, 7, 100);
        adjacent(16, 32, 64);
        extremes();
        for (int in_w = 0; in_w < 2; in_w++) {
            no_numbers(INFINITY, in_w);
            no_numbers(-NAN, in_w);
        }
        loss(1, 64, 512);
        loss(9, 33, 530);
        loss(140, 40, 1700);
    }
    return twins_close();
}
