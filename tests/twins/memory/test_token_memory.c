/* test_token_memory.c -- forward, backward, weights, distribution, contributors and the mixture against the oracle:
 * slots, own past and both, one row and many, no entry, one entry, rings that wrap, widths that do not fill a vector;
 * finite differences of the oracle, NaN that must be kept, distant keys that must not overflow. */
#include "base/half.h"
#include "tests/ref/ref_token_memory_case.h"
#include "tests/twins/twins.h"

static float as_is(float x) {
    return x;
}
static float as_bf16(float x) {
    return half_from_bf16(half_to_bf16(x));
}
static float as_f16(float x) {
    return half_from_f16(half_to_f16(x));
}

/* A memory in the op's arguments. */
struct bound {
    struct token_memory memory;
    struct guarded states;
    float *square[2];
    void *half[2];
    struct gca_inverse inverse;
};

static struct mat keys_as(const float *from, int64_t rows, int64_t d, enum dtype type, void **half) {
    if (type == DTYPE_F32) return mat_f32(from, rows, d);
    uint16_t *to = *half = malloc((size_t)(rows * d + 1) * sizeof *to);
    for (int64_t i = 0; i < rows * d; i++)
        to[i] = type == DTYPE_BF16 ? half_to_bf16(from[i]) : half_to_f16(from[i]);
    return mat_dense(to, type, rows, d);
}

static struct bound bind_case(int device, const struct memory_case *c, enum dtype type) {
    struct memory_shape s = c->shape;
    struct bound b = {.states = guarded_make(s.n, s.d, c->states)};
    struct memory_slots *slots = &b.memory.slots;
    struct memory_past *past = &b.memory.past;
    struct device *dev = twin_device[device];
    b.memory.tau = &c->m.tau;
    if (s.k) {
        slots->keys = keys_as(c->slot_key, c->slot_keys, s.d, type, &b.half[0]);
        slots->value = c->slot_value, slots->slot = c->slot, slots->row_begin = c->row_begin;
        slots->slot_rows = s.slot_rows, slots->blocks = s.blocks, slots->k = s.k, slots->block_rows = c->block_rows;
        slots->square = b.square[0] = zero_array(c->slot_keys);
        dev->ops->token_memory->squares(dev, b.square[0], slots->keys);
        int32_t *begin = calloc((size_t)s.slots + 1, sizeof *begin);
        int32_t *reader = calloc((size_t)(s.blocks * s.k) + 1, sizeof *reader);
        dev->ops->gca->invert(dev, begin, reader, c->slot, (int64_t)s.blocks * s.k, s.slots);
        b.inverse = (struct gca_inverse){begin, reader, s.slots};
    }
    if (s.limit) {
        past->keys = keys_as(c->past_key, c->past_keys, s.d, type, &b.half[1]);
        past->value = c->past_value, past->limit = s.limit;
        past->length = s.length, past->first = s.first, past->ring = s.ring;
        past->square = b.square[1] = zero_array(c->past_keys);
        dev->ops->token_memory->squares(dev, b.square[1], past->keys);
    }
    return b;
}
static void unbind(struct bound *b) {
    guarded_drop(&b->states);
    for (int i = 0; i < 2; i++)
        free(b->square[i]), free(b->half[i]);
    free((void *)b->inverse.begin), free((void *)b->inverse.entry);
}

struct results {
    float *stats, *dstates, *dslots, *dpast, dtau;
};
static struct token_memory_stats stats_of(float *at, int64_t n) {
    return (struct token_memory_stats){at, at + n, at + 2 * n, at + 3 * n, at + 4 * n};
}

/* Gradients start at 0.5, because the op adds to them. */
static float *halves(int64_t n) {
    float *a = zero_array(n);
    for (int64_t i = 0; i < n; i++)
        a[i] = 0.5f;
    return a;
}
static void take_gradient(float *out, struct guarded *g, float *start) {
    guarded_take(out, g);
    for (int64_t i = 0; i < g->m.rows * g->m.cols; i++)
        out[i] -= 0.5f;
    free(start);
}

static struct results compute(int device, const struct memory_case *c, enum dtype type) {
    struct memory_shape s = c->shape;
    struct device *dev = twin_device[device];
    struct bound b = bind_case(device, c, type);
    struct results r = {zero_array(CASE_STATS * s.n), zero_array(s.n * s.d), zero_array(c->slot_keys * s.d),
                        zero_array(c->past_keys * s.d), 0.0f};
    struct guarded out = guarded_make(CASE_STATS, s.n, NULL);
    float *stats = zero_array(CASE_STATS * s.n), *start[3];
    const struct token_memory_stats to = {mat_row(out.m, 0), mat_row(out.m, 1), mat_row(out.m, 2), mat_row(out.m, 3),
                                          mat_row(out.m, 4)};
    dev->ops->token_memory->forward(dev, to, b.states.m, &b.memory, c->target);
    guarded_take(r.stats, &out);
    memcpy(stats, r.stats, (size_t)(CASE_STATS * s.n) * sizeof *stats);
    start[0] = halves(s.n * s.d), start[1] = halves(c->slot_keys * s.d), start[2] = halves(c->past_keys * s.d);
    struct guarded g[3] = {guarded_make(s.n, s.d, start[0]), guarded_make(c->slot_keys, s.d, start[1]),
                           guarded_make(c->past_keys, s.d, start[2])};
    const struct token_memory_gradients gradients = {g[0].m, g[1].m, g[2].m, &r.dtau, c->dlog_p, c->dlse, b.inverse};
    dev->ops->token_memory->backward(dev, &gradients, b.states.m, &b.memory, c->target, stats_of(stats, s.n));
    take_gradient(r.dstates, &g[0], start[0]);
    take_gradient(r.dslots, &g[1], start[1]);
    take_gradient(r.dpast, &g[2], start[2]);
    free(stats);
    unbind(&b);
    return r;
}
static void drop_results(struct results *r) {
    free(r->stats), free(r->dstates), free(r->dslots), free(r->dpast);
}

/* Gradients were added to 0.5: tolerance for one rounding of it. */
#define CHECK_ADDED(twin, naive, ref, n)                                                                               \
    check_twin(__FILE__, __LINE__, twin, naive, ref, n, (struct tolerance){4.0, 2e-6, 1e-6, 1e-6})

static void check_few(const struct memory_case *c, enum dtype type);

/* A logarithm of a sum of exponentials of -distance / tau: tolerance for one rounding of the largest of these. */
static void check_stats(const struct memory_case *c, const float *stats) {
    int64_t n = c->shape.n;
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(c->stats[2 * n + i])) largest = fmax(largest, c->stats[2 * n + i] / (double)c->shape.tau);
    struct tolerance t = {4.0, 2e-6, 1e-6, 0x1p-22 * largest};
    for (int i = 0; i < CASE_STATS; i++)
        check_twin(__FILE__, __LINE__, stats + i * n, c->naive_stats + i * n, c->stats + i * n, n, t);
}

static void compare_as(struct memory_shape s, enum dtype type) {
    struct memory_case c = memory_case_make(&twin_rng, s,
                                            type == DTYPE_F32    ? as_is
                                            : type == DTYPE_BF16 ? as_bf16
                                                                 : as_f16);
    struct results twin[DEVICES];
    memory_case_solve(&c);
    for (int i = 0; i < DEVICES; i++)
        twin[i] = compute(i, &c, type);
    check_stats(&c, twin[0].stats);
    for (int64_t r = 0; r < s.n; r++)
        CHECK(twin[0].stats[2 * s.n + r] >= 0.0f); /* also of keys that equal the state */
    CHECK_ADDED(twin[0].dstates, c.naive_dstates, c.dstates, s.n * s.d);
    CHECK_ADDED(twin[0].dslots, c.naive_dslots, c.dslots, c.slot_keys * s.d);
    CHECK_ADDED(twin[0].dpast, c.naive_dpast, c.dpast, c.past_keys * s.d);
    CHECK_ADDED(&twin[0].dtau, &c.naive_dtau, &c.dtau, 1);
    CHECK_BITS(twin[0].stats, twin[1].stats, CASE_STATS * s.n);
    CHECK_BITS(twin[0].dstates, twin[1].dstates, s.n * s.d);
    CHECK_BITS(twin[0].dslots, twin[1].dslots, c.slot_keys * s.d);
    CHECK_BITS(twin[0].dpast, twin[1].dpast, c.past_keys * s.d);
    CHECK_BITS(&twin[0].dtau, &twin[1].dtau, 1);
    check_few(&c, type);
    for (int i = 0; i < DEVICES; i++)
        drop_results(&twin[i]);
    memory_case_free(&c);
}
static void compare(struct memory_shape s) {
    compare_as(s, DTYPE_F32);
}

/* ---- weights, distribution, contributors ---- */

static void check_contributors(const struct memory_case *c, const struct token_memory *memory, const float *w) {
    enum { K = 3 };
    const float threshold = 0.01f;
    int64_t n = c->shape.n, columns = ref_token_memory_columns(&c->m);
    int32_t *column = malloc((size_t)(n * K) * sizeof *column);
    float *weight = zero_array(n * K);
    const struct token_memory_ops *op = twin_device[0]->ops->token_memory;
    op->contributors(twin_device[0], column, weight, mat_f32(w, n, columns), memory, c->target, K, threshold);
    for (int64_t r = 0; r < n; r++) {
        int64_t taken[K] = {-1, -1, -1};
        for (int i = 0; i < K; i++) {
            int64_t best = -1;
            for (int64_t p = 0; p < columns; p++) {
                int past;
                int64_t at = ref_token_memory_key(&c->m, r, p, &past);
                float x = w[r * columns + p];
                if (at < 0 || (past ? c->past_value : c->slot_value)[at] != c->target[r] || !(x >= threshold)) continue;
                if (p == taken[0] || p == taken[1]) continue;
                if (best < 0 || x > w[r * columns + best]) best = p;
            }
            CHECK_EQ(column[r * K + i], best);
            CHECK(weight[r * K + i] == (best < 0 ? 0.0f : w[r * columns + best]));
            taken[i] = best;
        }
    }
    free(column), free(weight);
}

static void check_few(const struct memory_case *c, enum dtype type) {
    int64_t n = c->shape.n, columns = ref_token_memory_columns(&c->m);
    float *w = zero_array(n * columns), *p = zero_array(n * CASE_WORDS), *naive = zero_array(n * CASE_WORDS);
    double *ref = double_array(n * CASE_WORDS);
    struct bound b = bind_case(0, c, type);
    struct guarded weights = guarded_make(n, columns, NULL), words = guarded_make(n, CASE_WORDS, NULL);
    const struct token_memory_ops *op = twin_device[0]->ops->token_memory;
    op->weights(twin_device[0], weights.m, b.states.m, &b.memory);
    op->distribution(twin_device[0], words.m, weights.m, &b.memory);
    guarded_take(w, &weights);
    guarded_take(p, &words);
    for (int64_t i = 0; i < n * columns; i++) {
        int past;
        int64_t at = ref_token_memory_key(&c->m, i / columns, i % columns, &past);
        if (at < 0) {
            CHECK(w[i] == 0.0f);
            continue;
        }
        int64_t to = i / columns * CASE_WORDS + (past ? c->past_value : c->slot_value)[at];
        ref[to] += c->w[i], naive[to] += c->naive_w[i];
    }
    CHECK_GRADIENT(w, c->naive_w, c->w, n * columns);
    CHECK_GRADIENT(p, naive, ref, n * CASE_WORDS);
    for (int64_t r = 0; r < n; r++) { /* forward and distribution agree on the target */
        double log_p = c->target[r] < 0 ? -INFINITY : log(ref[r * CASE_WORDS + c->target[r]]);
        CHECK(log_p == c->stats[r] || fabs(log_p - c->stats[r]) < 1e-9 * (1.0 + fabs(log_p)));
    }
    check_contributors(c, &b.memory, w);
    unbind(&b);
    free(w), free(p), free(naive), free(ref);
}

/* ---- the oracle's gradients against finite differences of its own forward ---- */

static double scalar_of(struct memory_case *c) {
    int64_t n = c->shape.n;
    double sum = 0.0;
    c->m.tau = c->shape.tau;
    ref_token_memory(c->stats, c->w, &c->m);
    for (int64_t r = 0; r < n; r++) {
        if (c->stats[r] != -INFINITY) sum += (double)c->dlog_p[r] * c->stats[r];
        if (c->stats[n + r] != -INFINITY) sum += (double)c->dlse[r] * c->stats[n + r];
    }
    return sum;
}
static void check_slope(struct memory_case *c, float *x, double slope) {
    float old = *x, high = old + 0x1p-10f, low = old - 0x1p-10f;
    *x = high;
    double up = scalar_of(c);
    *x = low;
    double down = scalar_of(c), found = (up - down) / ((double)high - (double)low);
    *x = old;
    if (fabs(found - slope) > 1e-4 * (1.0 + fabs(slope))) {
        fprintf(stderr, "slope %.9g, difference %.9g\n", slope, found);
        test_fail(__FILE__, __LINE__, "the gradient is not the slope");
    }
}
static void differences(void) {
    struct memory_case c =
        memory_case_make(&twin_rng, (struct memory_shape){20, 6, 3, 5, 3, 2, 10, 4, 14, 6, 3.0f}, as_is);
    memory_case_solve(&c);
    for (int64_t i = 0; i < 20 * 6; i++)
        check_slope(&c, &c.states[i], c.dstates[i]);
    for (int64_t i = 0; i < c.slot_keys * 6; i++)
        check_slope(&c, &c.slot_key[i], c.dslots[i]);
    for (int64_t i = 0; i < c.past_keys * 6; i++)
        check_slope(&c, &c.past_key[i], c.dpast[i]);
    check_slope(&c, &c.shape.tau, c.dtau);
    memory_case_free(&c);
}

/* ---- edges ---- */

static void nan_reaches_rows(void) {
    struct memory_shape s = {40, 16, 4, 9, 2, 2, 40, 0, 40, 8, 4.0f};
    struct memory_case c = memory_case_make(&twin_rng, s, as_is);
    memory_case_solve(&c);
    for (int i = 0; i < 4; i++)
        c.slot[i] = i; /* block 0 reads slots 0 and 1, block 1 slots 2 and 3 */
    c.slot_value[1 * 9 + 4] = 2, c.slot_key[(1 * 9 + 4) * 16 + 3] = NAN;
    c.past_value[39] = 1, c.past_key[39 * 16] = NAN; /* no row reads the last position */
    struct results r = compute(0, &c, DTYPE_F32);
    struct bound b = bind_case(0, &c, DTYPE_F32);
    struct guarded w = guarded_make(40, 2 * 9 + 8, NULL), p = guarded_make(40, CASE_WORDS, NULL);
    const struct token_memory_ops *op = twin_device[0]->ops->token_memory;
    op->weights(twin_device[0], w.m, b.states.m, &b.memory);
    op->distribution(twin_device[0], p.m, w.m, &b.memory);
    for (int64_t row = 0; row < 40; row++) {
        bool reads = row >= c.row_begin[0] && row < c.row_begin[1];
        for (int i = 0; i < CASE_STATS; i++)
            CHECK(isnan(r.stats[i * 40 + row]) == reads);
        for (int v = 0; v < CASE_WORDS; v++)
            CHECK(isnan(mat_row(p.m, row)[v]) == reads);
        CHECK(isnan(r.dstates[row * 16]) == (reads && (c.dlog_p[row] != 0.0f || c.dlse[row] != 0.0f)));
    }
    guarded_drop(&w), guarded_drop(&p);
    unbind(&b), drop_results(&r), memory_case_free(&c);
}

/* Rows without entries: the header's results, and no gradient. */
static void empty_rows(void) {
    struct memory_shape shapes[] = {{3, 8, 1, 4, 1, 1, 3, 0, 3, 0, 2.0f},
                                    {3, 8, 0, 0, 0, 0, 1, 0, 1, 4, 2.0f},
                                    {3, 8, 0, 0, 0, 0, 3, 0, 3, 0, 2.0f}};
    for (int i = 0; i < 3; i++) {
        struct memory_case c = memory_case_make(&twin_rng, shapes[i], as_is);
        for (int64_t j = 0; j < c.slot_keys; j++)
            c.slot_value[j] = -1;
        memory_case_solve(&c);
        struct results r = compute(1, &c, DTYPE_F32);
        for (int64_t row = 0; row < 3; row++) {
            CHECK(r.stats[row] == -INFINITY && r.stats[3 + row] == -INFINITY && r.stats[6 + row] == INFINITY);
            CHECK(r.stats[9 + row] == 0.0f && r.stats[12 + row] == 0.0f);
        }
        for (int64_t j = 0; j < 24; j++)
            CHECK(r.dstates[j] == 0.0f);
        CHECK(r.dtau == 0.0f);
        drop_results(&r);
        memory_case_free(&c);
    }
}

/* Every value is the target: p is 1, and only dlse has a gradient. */
static void all_values_hit(void) {
    struct memory_case c =
        memory_case_make(&twin_rng, (struct memory_shape){70, 24, 5, 40, 2, 3, 70, 0, 70, 30, 6.0f}, as_is);
    for (int64_t i = 0; i < c.slot_keys; i++)
        c.slot_value[i] = 3;
    for (int64_t i = 0; i < c.past_keys; i++)
        c.past_value[i] = 3;
    for (int64_t i = 0; i < 70; i++)
        c.target[i] = 3, c.dlse[i] = 0.0f;
    memory_case_solve(&c);
    struct results r = compute(0, &c, DTYPE_F32);
    for (int64_t i = 0; i < 70; i++)
        CHECK(r.stats[70 + i] == -INFINITY ? r.stats[i] == -INFINITY : r.stats[i] <= 0.0f && r.stats[i] >= -1e-6f);
    for (int64_t i = 0; i < 70 * 24; i++)
        CHECK(fabsf(r.dstates[i]) <= 2e-6f);
    drop_results(&r);
    memory_case_free(&c);
}

/* Distances of 1e8 and more, and targets that are 1e6 tau further away than the nearest entry. */
static void far_keys(void) {
    struct memory_shape s = {8, 16, 2, 6, 1, 2, 8, 0, 8, 0, 0.5f};
    struct memory_case c = memory_case_make(&twin_rng, s, as_is);
    for (int64_t i = 0; i < c.slot_keys; i++) {
        c.slot_value[i] = (int32_t)(i % 2);
        for (int64_t j = 0; j < 16; j++)
            c.slot_key[i * 16 + j] = (i % 2 ? 1e4f : 300.0f) + (float)(i / 2);
    }
    for (int i = 0; i < 2; i++)
        c.slot[i] = i;
    for (int64_t i = 0; i < 8; i++)
        c.target[i] = i % 2;
    memory_case_solve(&c);
    struct results r = compute(0, &c, DTYPE_F32);
    for (int64_t i = 0; i < CASE_STATS * 8; i++)
        CHECK(isfinite(r.stats[i]) && fabs((double)r.stats[i] - c.stats[i]) <= 1e-5 * (1.0 + fabs(c.stats[i])) + 1e-3);
    for (int64_t i = 0; i < 8 * 16; i++)
        CHECK(isfinite(r.dstates[i]));
    drop_results(&r);
    memory_case_free(&c);
}

/* So many entries that the parts of 65 rows do not fit the scratch: two passes. The limit is above the number of
 * entries. */
static void many_parts(void) {
    enum { N = 65, FIRST = 450000, RING = FIRST + N };
    float *states = random_array(N, 1.0f), *keys = random_array(RING, 1.0f), *square = zero_array(RING), out[5][N];
    int32_t *value = calloc(RING, sizeof *value), target[N] = {0};
    const float tau = 0.5f;
    struct token_memory m = {.tau = &tau};
    m.past = (struct memory_past){mat_f32(keys, RING, 1), value, square, N, FIRST, RING, INT32_MAX};
    const struct token_memory_stats to = {out[0], out[1], out[2], out[3], out[4]};
    for (int64_t p = 0; p < RING; p++)
        value[p] = (int32_t)(p % 4);
    twin_device[1]->ops->token_memory->squares(twin_device[1], square, m.past.keys);
    twin_device[1]->ops->token_memory->forward(twin_device[1], to, mat_f32(states, N, 1), &m, target);
    for (int64_t r = 0; r < N; r += 16) { /* the second pass computes the last row */
        double sum = 0.0, hit = 0.0;
        for (int64_t p = 0; p < FIRST + r; p++) {
            double apart = (double)states[r] - (double)keys[p], e = exp(-apart * apart / (double)tau);
            sum += e;
            if (p % 4 == 0) hit += e;
        }
        CHECK(fabs((double)out[0][r] - log(hit / sum)) <= 1e-5 && fabs((double)out[1][r] - log(sum)) <= 1e-5);
    }
    free(states), free(keys), free(square), free(value);
}

static void mixtures(void) {
    enum { N = 200 };
    float lm[N], memory[N], gate[N], out[4][N];
    int32_t target[N];
    for (int i = 0; i < N; i++) {
        lm[i] = -fabsf(4.0f * rng_normal(&twin_rng)), memory[i] = -fabsf(4.0f * rng_normal(&twin_rng));
        gate[i] = 3.0f * rng_normal(&twin_rng), target[i] = i % 9 == 8 ? -1 : i;
        if (i % 5 == 0) memory[i] = -INFINITY;
    }
    const struct token_memory_mix to = {out[0], out[1], out[2], out[3]};
    twin_device[0]->ops->token_memory->mix(twin_device[0], to, lm, memory, gate, target, N, 0.25f);
    for (int i = 0; i < N; i++) {
        double d[3], nll = ref_token_memory_mix(&d[0], &d[1], &d[2], lm[i], memory[i], gate[i]);
        double ref[4] = {nll, 0.25 * d[0], 0.25 * d[1], 0.25 * d[2]};
        for (int j = 0; j < 4; j++)
            CHECK(fabs((double)out[j][i] - (target[i] < 0 ? 0.0 : ref[j])) <= 2e-6 * (1.0 + fabs(ref[j])));
    }
    lm[0] = memory[0] = -INFINITY, gate[0] = 100.0f, target[0] = 1; /* both give the target probability 0 */
    lm[1] = -200.0f, memory[1] = -300.0f, gate[1] = -200.0f, target[1] = 1;
    twin_device[0]->ops->token_memory->mix(twin_device[0], to, lm, memory, gate, target, 2, 1.0f);
    CHECK(out[0][0] == INFINITY && out[1][0] == 0.0f && out[2][0] == 0.0f && out[3][0] == 0.0f);
    CHECK(fabsf(out[0][1] - 200.0f) < 1e-3f && out[2][1] == -1.0f && out[3][1] == 0.0f);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    differences();
    /*                            n    d  slots rows blocks k  length first ring limit tau */
    compare((struct memory_shape){1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1.0f});               /* one entry */
    compare((struct memory_shape){1, 16, 3, 7, 1, 2, 1, 9, 12, 6, 4.0f});             /* one row, as in decoding */
    compare((struct memory_shape){1, 48, 40, 63, 1, 40, 1, 2500, 2600, 2100, 12.0f}); /* several parts */
    compare((struct memory_shape){3, 33, 5, 200, 1, 9, 3, 0, 3, 2, 8.0f});
    compare((struct memory_shape){130, 20, 9, 31, 7, 4, 65, 0, 65, 40, 5.0f});
    compare((struct memory_shape){96, 64, 6, 64, 6, 3, 96, 0, 96, 96, 16.0f});
    compare((struct memory_shape){100, 17, 0, 0, 0, 0, 50, 30, 75, 25, 4.0f}); /* the ring ends among these positions */
    compare((struct memory_shape){150, 40, 4, 130, 2, 2, 150, 0, 150, 0, 10.0f});
    compare((struct memory_shape){220, 12, 0, 0, 0, 0, 220, 0, 220, 21, 4.0f});
    compare((struct memory_shape){300, 24, 0, 0, 0, 0, 300, 0, 300, 1000, 6.0f});
    compare_as((struct memory_shape){70, 50, 6, 40, 3, 3, 35, 0, 35, 20, 12.0f}, DTYPE_BF16);
    compare_as((struct memory_shape){70, 50, 6, 40, 3, 3, 35, 0, 35, 20, 12.0f}, DTYPE_F16);
    nan_reaches_rows();
    empty_rows();
    all_values_hit();
    far_keys();
    many_parts();
    mixtures();
    return twins_close();
}
