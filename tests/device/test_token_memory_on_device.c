/* test_token_memory_on_device.c -- token memories on a GPU against the oracle: tensor cores' full tiles (bf16,
 * 16 rows and more) and any other shape, slots, own past and both; every case twice, with the same bits. */
#include "tests/device/on_device.h"
#include "tests/ref/ref_token_memory_case.h"

static float round_f16(float x) {
    return as_type(x, DTYPE_F16);
}
static float round_f32(float x) {
    return x;
}

struct bound {
    struct token_memory memory;
    struct mat states;
    const int32_t *target;
    const float *dlog_p, *dlse;
    struct gca_inverse inverse;
};
static void *put_ints(const int32_t *a, int64_t n) {
    return put_bytes(a, (size_t)(n ? n : 1) * sizeof *a);
}
static const float *put_squares(struct mat keys) {
    float *square = put_plain(NULL, DTYPE_F32, 1, keys.rows).data;
    gpu->ops->token_memory->squares(gpu, square, keys);
    return square;
}
static struct bound bind_case(const struct memory_case *c, enum dtype type, int pad) {
    struct memory_shape s = c->shape;
    struct bound b = {.states = put(c->states, type, s.n, s.d, pad, 0)};
    struct memory_slots *slots = &b.memory.slots;
    struct memory_past *past = &b.memory.past;
    b.memory.tau = put_bytes(&c->shape.tau, sizeof(float));
    b.target = put_ints(c->target, s.n);
    b.dlog_p = put_bytes(c->dlog_p, (size_t)s.n * 4), b.dlse = put_bytes(c->dlse, (size_t)s.n * 4);
    if (s.k) {
        slots->keys = put(c->slot_key, type, c->slot_keys, s.d, pad, 0);
        slots->value = put_ints(c->slot_value, c->slot_keys), slots->slot = put_ints(c->slot, (int64_t)s.blocks * s.k);
        slots->row_begin = put_bytes(c->row_begin, (size_t)(s.blocks + 1) * sizeof *c->row_begin);
        slots->slot_rows = s.slot_rows, slots->blocks = s.blocks, slots->k = s.k, slots->block_rows = c->block_rows;
        slots->square = put_squares(slots->keys);
        int32_t *begin = zeros(s.slots + 1, 4), *reader = zeros((int64_t)s.blocks * s.k, 4);
        int32_t *on_begin = put_ints(begin, s.slots + 1), *on_reader = put_ints(reader, (int64_t)s.blocks * s.k);
        gpu->ops->gca->invert(gpu, on_begin, on_reader, slots->slot, (int64_t)s.blocks * s.k, s.slots);
        b.inverse = (struct gca_inverse){on_begin, on_reader, s.slots};
        free(begin), free(reader);
    }
    if (s.limit) {
        past->keys = put(c->past_key, type, c->past_keys, s.d, pad, 0);
        past->value = put_ints(c->past_value, c->past_keys), past->limit = s.limit;
        past->length = s.length, past->first = s.first, past->ring = s.ring;
        past->square = put_squares(past->keys);
    }
    return b;
}

/* |twin - ref| <= 3 |naive - ref|_max + share of size[i] + constant. */
static void check_sized(const char *what, const float *twin, const float *naive, const double *ref, const double *size,
                        int64_t n, double share, double constant) {
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(ref[i])) worst = fmax(worst, fabs((double)naive[i] - ref[i]));
    for (int64_t i = 0; i < n; i++) {
        double tolerance =
            3.0 * worst + (size ? share * size[i] : 0.0) + constant * (1.0 + (isfinite(ref[i]) ? fabs(ref[i]) : 0.0));
        if (isfinite(ref[i]) ? fabs((double)twin[i] - ref[i]) <= tolerance : (double)twin[i] == ref[i]) continue;
        fprintf(stderr, "%s: index %lld of %lld: %.9g, ref %.9g, tolerance %g\n", what, (long long)i, (long long)n,
                (double)twin[i], ref[i], tolerance);
        test_fail(__FILE__, __LINE__, "op differs from its reference");
    }
}

struct results {
    float *stats, *dstates, *dslots, *dpast, *dtau, *w, *p, *weight;
    int32_t *column;
};
enum { TOP = 4 };

static struct token_memory_stats stats_of(struct mat m) {
    float *at = m.data;
    int64_t n = m.cols;
    return (struct token_memory_stats){at, at + n, at + 2 * n, at + 3 * n, at + 4 * n};
}
/* Gradients are added to earlier values: to 0 here, so that all their digits are compared. */
static struct mat put_gradient(int64_t rows, int64_t cols, int pad) {
    float *zero = zeros(rows * cols, 4);
    struct mat m = put(zero, DTYPE_F32, rows, cols, pad, 0);
    free(zero);
    return m;
}

static struct results compute(const struct memory_case *c, enum dtype type, int pad) {
    struct memory_shape s = c->shape;
    struct bound b = bind_case(c, type, pad);
    const struct token_memory_ops *op = gpu->ops->token_memory;
    int64_t columns = ref_token_memory_columns(&c->m);
    struct mat stats = put_plain(NULL, DTYPE_F32, CASE_STATS, s.n), dstates = put_gradient(s.n, s.d, pad);
    struct mat dslots = put_gradient(c->slot_keys, s.d, pad), dpast = put_gradient(c->past_keys, s.d, pad);
    struct mat dtau = put_gradient(1, 1, 0), w = put(NULL, DTYPE_F32, s.n, columns, 3, 1),
               p = put(NULL, DTYPE_F32, s.n, CASE_WORDS, 1, 0);
    struct results r = {.column = zeros(s.n * TOP, 4)};
    float *weight = put_plain(NULL, DTYPE_F32, 1, s.n * TOP).data;
    int32_t *column = put_ints(r.column, s.n * TOP);
    op->forward(gpu, stats_of(stats), b.states, &b.memory, b.target);
    const struct token_memory_gradients g = {dstates, dslots, dpast, dtau.data, b.dlog_p, b.dlse, b.inverse};
    op->backward(gpu, &g, b.states, &b.memory, b.target, stats_of(stats));
    op->weights(gpu, w, b.states, &b.memory);
    op->distribution(gpu, p, w, &b.memory);
    op->contributors(gpu, column, weight, w, &b.memory, b.target, TOP, 0.01f);
    device_download(gpu, r.column, column, (size_t)(s.n * TOP) * 4);
    r.weight = take_floats(weight, s.n * TOP);
    r.stats = take(stats), r.dstates = take(dstates), r.dslots = take(dslots), r.dpast = take(dpast),
    r.dtau = take(dtau);
    r.w = take(w), r.p = take(p);
    drop_all();
    return r;
}
static void drop_results(struct results *r) {
    free(r->stats), free(r->dstates), free(r->dslots), free(r->dpast), free(r->dtau), free(r->w), free(r->p),
        free(r->weight);
    free(r->column);
}

/* Weights, and the results computed from them. */
static void check_few(const struct memory_case *c, const struct results *r) {
    int64_t n = c->shape.n, columns = ref_token_memory_columns(&c->m);
    float *naive = zeros(n * CASE_WORDS, 4);
    double *ref = zeros(n * CASE_WORDS, 8);
    for (int64_t i = 0; i < n * columns; i++) {
        int past;
        int64_t at = ref_token_memory_key(&c->m, i / columns, i % columns, &past);
        if (at < 0) {
            CHECK(r->w[i] == 0.0f);
            continue;
        }
        int64_t to = i / columns * CASE_WORDS + (past ? c->past_value : c->slot_value)[at];
        ref[to] += c->w[i], naive[to] += c->naive_w[i];
    }
    check_sized("token_memory.weights", r->w, c->naive_w, c->w, NULL, n * columns, 0.0, 4e-6);
    check_sized("token_memory.distribution", r->p, naive, ref, NULL, n * CASE_WORDS, 0.0, 4e-6);
    for (int64_t row = 0; row < n; row++) {
        float last = INFINITY;
        for (int i = 0; i < TOP; i++) { /* the best by the twin's own weights */
            int32_t column = r->column[row * TOP + i];
            float x = column < 0 ? 0.0f : r->w[row * columns + column], best = 0.0f;
            CHECK(r->weight[row * TOP + i] == x && x <= last && (column < 0 || x >= 0.01f));
            for (int64_t p = 0; p < columns; p++) {
                int past, taken = 0;
                int64_t at = ref_token_memory_key(&c->m, row, p, &past);
                for (int j = 0; j < i; j++)
                    taken |= r->column[row * TOP + j] == p;
                if (at < 0 || taken || (past ? c->past_value : c->slot_value)[at] != c->target[row]) continue;
                if (r->w[row * columns + p] > best && r->w[row * columns + p] >= 0.01f) best = r->w[row * columns + p];
            }
            CHECK(x == best);
            last = x;
        }
    }
    free(naive), free(ref);
}

static void compare(struct memory_shape s, enum dtype type, int pad) {
    struct memory_case c = memory_case_make(&on_rng, s,
                                            type == DTYPE_F32    ? round_f32
                                            : type == DTYPE_BF16 ? store_bf16
                                                                 : round_f16);
    struct results r[2];
    memory_case_solve(&c);
    for (int pass = 0; pass < 2; pass++)
        r[pass] = compute(&c, type, pad);
    double *states = zeros(s.n * s.d, 8), *slots = zeros(c.slot_keys * s.d, 8), *past = zeros(c.past_keys * s.d, 8),
           tau = 0.0;
    ref_token_memory_backward(states, slots, past, &tau, c.dlog_p, c.dlse, 1, &c.m);
    /* One rounding of the largest -distance / tau; u is rounded to bf16 for the tensor cores. */
    double largest = 0.0, share = type == DTYPE_BF16 ? 0x1p-8 : 0x1p-16;
    for (int64_t i = 0; i < s.n; i++)
        if (isfinite(c.stats[2 * s.n + i])) largest = fmax(largest, c.stats[2 * s.n + i] / (double)s.tau);
    for (int i = 0; i < CASE_STATS; i++)
        check_sized("token_memory.forward", r[0].stats + i * s.n, c.naive_stats + i * s.n, c.stats + i * s.n, NULL, s.n,
                    0.0, 2e-6 + 0x1p-21 * largest);
    check_sized("token_memory.backward, states", r[0].dstates, c.naive_dstates, c.dstates, states, s.n * s.d, share,
                4e-6);
    check_sized("token_memory.backward, slots", r[0].dslots, c.naive_dslots, c.dslots, slots, c.slot_keys * s.d, share,
                4e-6);
    check_sized("token_memory.backward, past", r[0].dpast, c.naive_dpast, c.dpast, past, c.past_keys * s.d, share,
                4e-6);
    check_sized("token_memory.backward, tau", r[0].dtau, &c.naive_dtau, &c.dtau, &tau, 1, 0x1p-16, 4e-6);
    check_few(&c, &r[0]);
    CHECK_SAME(r[0].stats, r[1].stats, CASE_STATS * s.n);
    CHECK_SAME(r[0].dstates, r[1].dstates, s.n * s.d);
    CHECK_SAME(r[0].dslots, r[1].dslots, c.slot_keys * s.d);
    CHECK_SAME(r[0].dpast, r[1].dpast, c.past_keys * s.d);
    CHECK_SAME(r[0].dtau, r[1].dtau, 1);
    CHECK_SAME(r[0].p, r[1].p, s.n * CASE_WORDS);
    for (int pass = 0; pass < 2; pass++)
        drop_results(&r[pass]);
    free(states), free(slots), free(past);
    memory_case_free(&c);
}

/* A NaN in a key reaches the rows that read it, and no other: by tiles (d 64, bf16) and without. */
static void nan_reaches_rows(int64_t d, enum dtype type) {
    struct memory_shape s = {140, d, 4, 64, 2, 2, 140, 0, 140, 8, (float)d / 4};
    struct memory_case c = memory_case_make(&on_rng, s, type == DTYPE_BF16 ? store_bf16 : round_f32);
    memory_case_solve(&c);
    for (int i = 0; i < 4; i++)
        c.slot[i] = i;
    c.slot_value[64 + 4] = 2, c.slot_key[(64 + 4) * d + 3] = NAN;
    struct results r = compute(&c, type, 0);
    for (int64_t row = 0; row < 140; row++) {
        bool reads = row >= c.row_begin[0] && row < c.row_begin[1];
        for (int i = 0; i < CASE_STATS; i++)
            CHECK(isnan(r.stats[i * 140 + row]) == reads);
        for (int v = 0; v < CASE_WORDS; v++)
            CHECK(isnan(r.p[row * CASE_WORDS + v]) == reads);
        CHECK(!reads || isnan(r.dstates[row * d]));
    }
    drop_results(&r);
    memory_case_free(&c);
}

static void mixtures(void) {
    enum { N = 300 };
    float lm[N], memory[N], gate[N];
    int32_t target[N];
    for (int i = 0; i < N; i++) {
        lm[i] = -fabsf(4.0f * rng_normal(&on_rng)), memory[i] = i % 5 ? -fabsf(4.0f * rng_normal(&on_rng)) : -INFINITY;
        gate[i] = 3.0f * rng_normal(&on_rng), target[i] = i % 9 == 8 ? -1 : i;
    }
    struct mat out = put_plain(NULL, DTYPE_F32, 4, N);
    float *at = out.data;
    const struct token_memory_mix to = {at, at + N, at + 2 * N, at + 3 * N};
    gpu->ops->token_memory->mix(gpu, to, put_bytes(lm, sizeof lm), put_bytes(memory, sizeof memory),
                                put_bytes(gate, sizeof gate), put_bytes(target, sizeof target), N, 0.25f);
    float *found = take(out);
    drop_all();
    for (int i = 0; i < N; i++) {
        double g[3], nll = ref_token_memory_mix(&g[0], &g[1], &g[2], lm[i], memory[i], gate[i]);
        double ref[4] = {nll, 0.25 * g[0], 0.25 * g[1], 0.25 * g[2]};
        for (int j = 0; j < 4; j++)
            CHECK(fabs((double)found[j * N + i] - (target[i] < 0 ? 0.0 : ref[j])) <= 4e-6 * (1.0 + fabs(ref[j])));
    }
    free(found);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    /*                             n    d  slots rows blocks k length first ring limit tau */
    mixtures();
    compare((struct memory_shape){1, 16, 3, 7, 1, 2, 1, 9, 12, 6, 4.0f}, DTYPE_F32, 0);
    compare((struct memory_shape){20, 64, 3, 64, 1, 2, 20, 0, 20, 0, 16.0f}, DTYPE_BF16, 0);   /* one tile of rows */
    compare((struct memory_shape){20, 64, 0, 0, 0, 0, 20, 0, 20, 20, 16.0f}, DTYPE_BF16, 0);   /* own past by tiles */
    compare((struct memory_shape){96, 128, 6, 63, 6, 3, 48, 0, 48, 48, 32.0f}, DTYPE_BF16, 8); /* both */
    nan_reaches_rows(64, DTYPE_BF16);
    if (on_short) return on_device_close();
    nan_reaches_rows(24, DTYPE_F32);
    compare((struct memory_shape){1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1.0f}, DTYPE_F32, 0);
    compare((struct memory_shape){3, 33, 5, 200, 1, 9, 3, 0, 3, 2, 8.0f}, DTYPE_F32, 5);
    compare((struct memory_shape){1, 384, 40, 63, 1, 40, 1, 2500, 2600, 2100, 96.0f}, DTYPE_BF16, 0); /* decoding */
    compare((struct memory_shape){130, 20, 9, 31, 7, 4, 65, 0, 65, 40, 5.0f}, DTYPE_F32, 0);
    compare((struct memory_shape){100, 24, 0, 0, 0, 0, 50, 30, 75, 25, 6.0f}, DTYPE_F16,
            0); /* the ring ends among them */
    compare((struct memory_shape){70, 48, 6, 40, 3, 3, 35, 0, 35, 20, 12.0f}, DTYPE_F16, 0);
    compare((struct memory_shape){70, 50, 6, 40, 3, 3, 35, 0, 35, 20, 12.0f}, DTYPE_BF16, 0); /* no full tiles */
    compare((struct memory_shape){300, 192, 9, 127, 4, 5, 150, 0, 150, 70, 48.0f}, DTYPE_BF16, 0);
    compare((struct memory_shape){200, 64, 4, 200, 1, 3, 100, 0, 100, 0, 16.0f}, DTYPE_BF16,
            0); /* a block of four tiles */
    compare((struct memory_shape){257, 320, 0, 0, 0, 0, 257, 0, 257, 1000, 80.0f}, DTYPE_BF16, 0);
    compare((struct memory_shape){300, 64, 0, 0, 0, 0, 150, 75, 230, 33, 16.0f}, DTYPE_BF16,
            0); /* sequences that continue */
    compare((struct memory_shape){258, 64, 0, 0, 0, 0, 129, 0, 129, 200, 16.0f}, DTYPE_BF16,
            0); /* a last tile of one row */
    compare((struct memory_shape){128, 384, 20, 64, 8, 16, 128, 0, 128, 128, 96.0f}, DTYPE_BF16, 0);
    compare((struct memory_shape){100, 768, 12, 127, 2, 9, 100, 0, 100, 60, 192.0f}, DTYPE_BF16, 0);
    compare((struct memory_shape){80, 1024, 12, 127, 5, 9, 80, 0, 80, 80, 256.0f}, DTYPE_BF16, 0);
    compare((struct memory_shape){64, 64, 0, 0, 0, 0, 64, 0, 64, 0, 16.0f}, DTYPE_BF16, 0); /* no entries */
    /* u of all blocks, 16 x 64 MiB, is more than the scratch */
    compare((struct memory_shape){18, 64, 5, 512, 16, 1024, 18, 0, 18, 0, 16.0f}, DTYPE_BF16, 0);
    return on_device_close();
}
