/* test_topk_on_device.c -- the best landmarks on a GPU: every pair of types, few and many queries, more results than
 * fit a list, equal landmarks, any number of visible landmarks; then the sampling of training, the weights and their
 * gradient. */
#include "tests/device/on_device.h"
#include "tests/ref/ref_sample.h"
#include "tests/ref/ref_sample_case.h"
#include "tests/ref/search/ref_topk.h"

/* The k best of the first `visible` landmarks of l [e, d] for each of the queries q [n, d]. */
struct search {
    const float *q, *l;
    const int64_t *visible;
    int64_t n, e, d;
    int k;
    enum dtype query_type, type;
    int pad;
};

static void topk_run(int64_t **index, float **score, const struct search *s) {
    int64_t n = s->n, k = s->k;
    struct mat ms = put_plain(NULL, DTYPE_F32, 1, n * k);
    int64_t *poison = malloc((size_t)(n * k + 1) * sizeof *poison);
    memset(poison, 255, (size_t)(n * k) * sizeof *poison);
    int64_t *index_device = put_bytes(poison, (size_t)(n * k) * sizeof *poison);
    gpu->ops->topk->forward(gpu, index_device, ms.data, put(s->q, s->query_type, n, s->d, s->pad, 0),
                            put(s->l, s->type, s->e, s->d, s->pad, 0),
                            put_bytes(s->visible, (size_t)n * sizeof *s->visible), s->k);
    device_download(gpu, poison, index_device, (size_t)(n * k) * sizeof *poison);
    *index = poison;
    *score = take(ms);
    drop_all();
}

/* Scores of all pairs in double and, for the tolerance, in float32; both use plain loops, so all processors share the
 * rows. */
struct oracle {
    double *ref;
    float *naive;
    const float *q, *l;
    int64_t e, d;
};
static void oracle_rows(void *context, int64_t begin, int64_t end, int worker) {
    const struct oracle *o = context;
    (void)worker;
    ref_scores(o->ref + begin * o->e, o->q + begin * o->d, o->l, end - begin, o->e, o->d);
    naive_scores(o->naive + begin * o->e, o->q + begin * o->d, o->l, end - begin, o->e, o->d);
}
static struct threads *pool;
static void oracle(double *ref, float *naive, const float *q, const float *l, int64_t n, int64_t e, int64_t d) {
    struct oracle o = {ref, naive, q, l, e, d};
    threads_for(pool, n, 1, oracle_rows, &o);
}

static void compare(int64_t n, int64_t e, int64_t d, int k, bool ties, enum dtype query_type, enum dtype type,
                    int pad) {
    float *q = normals(n * d, 1.0f, query_type), *l = normals(e * d, 1.0f, type), *naive = zeros(n * e, 4), *score[2];
    double *ref = zeros(n * e, 8), worst = 0.0;
    int64_t *index[2], *visible = zeros(n, sizeof *visible);
    for (int64_t r = 0; r < n; r++)
        visible[r] = r == 0 ? e : r == 1 ? 0 : (int64_t)rng_below(&on_rng, (uint64_t)e + 1);
    for (int64_t i = 3; i < e && ties; i++)
        if (i % 4) memcpy(l + i * d, l + (i - i % 4) * d, (size_t)d * sizeof *l);
    oracle(ref, naive, q, l, n, e, d);
    for (int64_t i = 0; i < n * e; i++)
        worst = fmax(worst, fabs((double)naive[i] - ref[i]));
    /* Queries of a wider type than the landmarks: two parts of 8 (bf16) or 11 (fp16) bits represent a number up to
     * 2^-17 (2^-23). */
    if (query_type == DTYPE_F32 && type == DTYPE_BF16) worst += 0x1p-17 * 4.0;
    for (int i = 0; i < 2; i++) {
        topk_run(&index[i], &score[i], &(struct search){q, l, visible, n, e, d, k, query_type, type, pad});
        for (int64_t r = 0; r < n; r++)
            ref_check_topk(index[i] + r * k, score[i] + r * k, ref + r * e, visible[r], k, 2.0 * worst + 1e-6);
    }
    CHECK_SAME(index[0], index[1], n * k);
    CHECK_SAME(score[0], score[1], n * k);
    for (int i = 0; i < 2; i++)
        free(index[i]), free(score[i]);
    free(q), free(l), free(naive), free(ref), free(visible);
}

/* Queries of very different magnitudes, and such numbers within a query: each result is right up to its own rounding.
 * One query is zero. With `infinite`, one has an infinity and one a NaN, which must not change the others or any other
 * memory. */
static void magnitudes(int64_t n, int64_t e, int64_t d, int k, enum dtype query_type, enum dtype type, bool infinite) {
    float *q = normals(n * d, 1.0f, query_type), *l = normals(e * d, 1.0f, type), *naive = zeros(n * e, 4), *score;
    double *ref = zeros(n * e, 8);
    int64_t *index, *visible = zeros(n, sizeof *visible), zero = n / 2,
                    odd[] = {infinite ? 1 : -1, infinite ? n - 1 : -1};
    for (int64_t r = 0; r < n; r++) {
        int power = (int)rng_below(&on_rng, 101) - 50;
        for (int64_t i = 0; i < d; i++)
            q[r * d + i] = r == zero ? 0.0f : ldexpf(q[r * d + i], power - (int)(i % 3 * 12));
        visible[r] = e;
    }
    oracle(ref, naive, q, l, n, e, d);
    if (infinite) q[odd[0] * d + d / 2] = -INFINITY, q[odd[1] * d] = NAN;
    topk_run(&index, &score, &(struct search){q, l, visible, n, e, d, k, query_type, type, 0});
    for (int64_t r = 0; r < n; r++) {
        double worst = 0.0, square = 0.0;
        for (int64_t i = 0; i < e; i++)
            worst = fmax(worst, fabs((double)naive[r * e + i] - ref[r * e + i]));
        for (int64_t i = 0; i < d; i++)
            square += (double)q[r * d + i] * (double)q[r * d + i];
        double size = sqrt(square / (double)d);
        if (r != odd[0] && r != odd[1])
            ref_check_topk(index + r * k, score + r * k, ref + r * e, e, k, 2.0 * worst + 0x1p-17 * size);
        for (int64_t j = r * k; j < (r + 1) * k && query_type == DTYPE_F32 && r != odd[0] && r != odd[1]; j++)
            CHECK(fabs((double)score[j] - ref[r * e + index[j]]) <= 2.0 * worst + 0x1p-23 * size);
        for (int64_t j = r * k; j < (r + 1) * k; j++)
            CHECK(index[j] >= -1 && index[j] < e);
    }
    free(q), free(l), free(naive), free(ref), free(visible), free(index), free(score);
}

static void all_magnitudes(void) {
    static const int64_t shapes[][3] = {{9, 3000, 256},  {32, 2000, 768},  {33, 2000, 768}, {64, 3000, 200},
                                        {65, 3000, 136}, {256, 1200, 768}, {300, 900, 40},  {1024, 3000, 64}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int infinite = 0; infinite < 2 && (!on_short || i % 3 == 1); infinite++) {
            const int64_t *s = shapes[i];
            int k = i % 2 ? 8 : 20;
            magnitudes(s[0], s[1], s[2], k, DTYPE_F32, DTYPE_F16, infinite);
            if (!infinite) magnitudes(s[0], s[1], s[2], k, DTYPE_BF16, DTYPE_F16, false);
        }
}

/* Small integers, whose sums are exact in any order: many equal scores in all parts of the landmarks, of which the
 * first are found, whichever block scans them. With `negative` all scores are below 0. */
static void integers(int64_t n, int64_t e, int64_t d, int k, bool negative, enum dtype query_type, enum dtype type) {
    float *q = zeros(n * d, sizeof *q), *l = zeros(e * d, sizeof *l), *naive = zeros(n * e, 4), *score;
    double *ref = zeros(n * e, 8), last;
    int64_t *index, *visible = zeros(n, sizeof *visible), *best = zeros(k + 1, sizeof *best);
    for (int64_t i = 0; i < n * d; i++)
        q[i] = (float)(int)rng_below(&on_rng, 3) - (negative ? 0.0f : 1.0f);
    for (int64_t i = 0; i < e * d; i++)
        l[i] = (float)(int)rng_below(&on_rng, 4) - (negative ? 4.0f : 2.0f);
    for (int64_t r = 0; r < n; r++)
        visible[r] = r % 3 ? e : (int64_t)rng_below(&on_rng, (uint64_t)e + 1);
    oracle(ref, naive, q, l, n, e, d);
    topk_run(&index, &score, &(struct search){q, l, visible, n, e, d, k, query_type, type, 0});
    for (int64_t r = 0; r < n; r++) {
        const double *row = ref + r * e;
        int64_t count = 0;
        for (int64_t i = 0; i < visible[r]; i++) {
            int64_t at = count < k ? count++ : k;
            for (; at > 0 && row[best[at - 1]] < row[i]; at--)
                best[at] = best[at - 1];
            best[at] = i;
        }
        last = INFINITY;
        for (int64_t i = 0; i < k; i++) {
            CHECK_EQ(index[r * k + i], i < count ? best[i] : -1);
            CHECK(i < count ? fabs((double)score[r * k + i] - row[best[i]]) < 1e-5 : score[r * k + i] == -INFINITY);
            CHECK((double)score[r * k + i] <= last);
            last = (double)score[r * k + i];
        }
    }
    free(q), free(l), free(naive), free(ref), free(visible), free(index), free(score), free(best);
}

static void topk_forward(void) {
    static const enum dtype kinds[][2] = {{DTYPE_F32, DTYPE_F32},  {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F16},
                                          {DTYPE_F32, DTYPE_BF16}, {DTYPE_F32, DTYPE_F16},   {DTYPE_BF16, DTYPE_F32}};
    static const int counts[] = {14, 15, 16, 31, 32, 33};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        enum dtype q = kinds[i][0], l = kinds[i][1];
        if (on_short) {
            compare(9, 700, 256, 8, true, q, l, 8);
            compare(70, 900, 64, 8, true, q, l, 0);
            compare(3, 600, 128, 40, false, q, l, 0);
            compare(70, 900, 64, 32, true, q, l, 0);
            integers(70, 3000, 64, 8, i % 2, q, l);
            continue;
        }
        for (int ties = 0; ties < 2; ties++) {
            compare(1, 1, 128, 8, ties, q, l, 0);
            compare(1, 70001, 128, 8, ties, q, l, 0);
            compare(3, 20, 128, 8, ties, q, l, 0);
            compare(9, 5000, 256, 8, ties, q, l, 8);
        }
        compare(17, 3000, 768, 8, false, q, l, 0);
        compare(40, 3000, 384, 4, false, q, l, 0);
        compare(64, 2000, 1024, 8, false, q, l, 0);
        compare(37, 70001, 64, 8, true, q, l, 0);
        compare(33, 9000, 768, 8, false, q, l, 0);
        compare(130, 20000, 136, 14, false, q, l, 8);
        compare(200, 1300, 776, 8, true, q, l, 8);
        compare(1024, 2000, 72, 8, true, q, l, 8);
        compare(2000, 9000, 40, 8, false, q, l, 0); /* several tiles for each block */
        for (int negative = 0; negative < 2; negative++) {
            integers(300, 20000, 40, 8, negative, q, l);
            integers(1100, 9000, 24, 20, negative, q, l);
            integers(64, 9000, 24, 32, negative, q, l);
        }
        for (size_t j = 0; j < ARRAY_LEN(counts); j++) { /* the capacity of each kind of list, one less, one more */
            compare(64, 3000, 128, counts[j], j % 2 == 0, q, l, 0);
            compare(90, 20, 64, counts[j], true, q, l, 8); /* more results than landmarks */
            compare(300, 1500, 136, counts[j], j % 2 == 1, q, l, 0);
        }
        compare(6, 3000, 128, 50, true, q, l, 0); /* two rounds of a list */
        compare(5, 900, 33, 8, false, q, l, 3);   /* no row fits vectors */
        compare(70, 2500, 64, 8, true, q, l, 0);
        compare(1100, 4000, 32, 8, false, q, l, 0); /* several tiles */
        compare(80, 700, 128, 100, false, q, l, 0);
        compare(100, 3000, 24, 40, false, q, l, 0);
    }
}

static const void *put_range(const void *range, int64_t n, size_t size) {
    return range ? put_bytes(range, (size_t)n * size) : NULL;
}

static void choose(int64_t n, int64_t e, int64_t d, int k, int kind, bool gumbel, enum dtype type) {
    float *q = normals(n * d, 1.0f, type), *l = normals(e * d, 1.0f, type), *naive = zeros(n * e, 4), *score[2];
    double *ref = zeros(n * e, 8), worst = 0.0;
    int64_t *index[2];
    struct sample_case c = sample_case_make(n, e, kind, &on_rng);
    struct topk_rows rows = sample_case_rows(&c);
    uint64_t seed = rng_u64(&on_rng);
    oracle(ref, naive, q, l, n, e, d);
    for (int64_t i = 0; i < n * e; i++)
        worst = fmax(worst, fabs((double)naive[i] - ref[i]));
    for (int pass = 0; pass < 2; pass++) {
        struct topk_rows rows_device = {put_range(c.own_begin, n, 4),      put_range(c.own_end, n, 4),
                                        put_range(c.sequence_end, n, 4),   put_range(c.other_begin, n, 4),
                                        put_range(c.other_end, n, 4),      put_range(c.document_of, e, 8),
                                        put_range(c.document_barred, n, 8)};
        struct mat ms = put_plain(NULL, DTYPE_F32, 1, n * k);
        index[pass] = zeros(n * k, 8);
        int32_t *slot = zeros(n * k, 4), *there_slot = put_bytes(slot, (size_t)(n * k) * 4);
        int64_t *there_index = put_bytes(index[pass], (size_t)(n * k) * 8);
        struct topk_sampling sampling = {.queries = put(q, type, n, d, 8, 0),
                                         .landmarks = put(l, type, e, d, 0, 0),
                                         .rows = rows_device,
                                         .k = k,
                                         .gumbel = gumbel,
                                         .seed = seed};
        gpu->ops->topk->sample(gpu, there_index, pass ? NULL : there_slot, ms.data, &sampling);
        device_download(gpu, index[pass], there_index, (size_t)(n * k) * 8);
        device_download(gpu, slot, there_slot, (size_t)(n * k) * 4);
        score[pass] = take(ms);
        drop_all();
        check_sample(index[pass], pass ? NULL : slot, score[pass],
                     (struct sample_check){ref, n, e, k, &rows, gumbel, seed, 2.0 * worst + 1e-6});
        free(slot);
    }
    CHECK_SAME(index[0], index[1], n * k);
    CHECK_SAME(score[0], score[1], n * k);
    for (int i = 0; i < 2; i++)
        free(index[i]), free(score[i]);
    free(q), free(l), free(naive), free(ref);
    sample_case_free(&c);
}

static void subsample(int64_t n, int from, int k) {
    int64_t *index = zeros(n * from, 8), *out = zeros(n * k, 8);
    float *score = normals(n * from, 2.0f, DTYPE_F32);
    for (int64_t i = 0; i < n * from; i++) {
        bool empty = i / from % 4 == 1 && i % from >= from / 3;
        index[i] = empty ? -1 : i % from * 1000003 % 5003 + i / from;
        if (empty) score[i] = -INFINITY;
    }
    int64_t *out_device = put_bytes(out, (size_t)(n * k) * 8);
    gpu->ops->topk->subsample(gpu, out_device, put_bytes(index, (size_t)(n * from) * 8),
                              put_plain(score, DTYPE_F32, 1, n * from).data, n, from, k, 99);
    device_download(gpu, out, out_device, (size_t)(n * k) * 8);
    CHECK_OK(device_sync(gpu));
    drop_all();
    check_subsample(out, index, score, n, from, k, 99);
    free(index), free(out), free(score);
}

static void take_rows(int64_t rows, int64_t cols, int64_t n) {
    int32_t *table = zeros(rows * cols, 4), *out = zeros(n * cols, 4);
    int64_t *index = zeros(n, 8);
    for (int64_t i = 0; i < rows * cols; i++)
        table[i] = (int32_t)i - 5;
    for (int64_t i = 0; i < n; i++)
        index[i] = (int64_t)rng_below(&on_rng, (uint64_t)rows + 1) - 1;
    int32_t *out_device = put_bytes(out, (size_t)(n * cols) * 4);
    gpu->ops->topk->gather(gpu, out_device, put_bytes(table, (size_t)(rows * cols) * 4), rows, cols,
                           put_bytes(index, (size_t)n * 8), n);
    device_download(gpu, out, out_device, (size_t)(n * cols) * 4);
    CHECK_OK(device_sync(gpu));
    drop_all();
    for (int64_t i = 0; i < n * cols; i++)
        CHECK_EQ(out[i], table[(index[i / cols] < 0 ? rows - 1 : index[i / cols]) * cols + i % cols]);
    free(table), free(out), free(index);
}

static void choices(enum dtype type) {
    for (int kind = 0; kind < 3; kind++)
        for (int gumbel = 0; gumbel < 2; gumbel++) {
            choose(1, 1, 16, 8, kind, gumbel, type);
            choose(70, 1300, 64, 8, kind, gumbel, type);
            choose(9, 600, 48, 70, kind, gumbel, type);
            if (on_short) continue;
            choose(33, 513, 33, 1, kind, gumbel, type);
            choose(300, 2080, 768, 8, kind, gumbel, type);
            choose(40, 70001, 32, 8, kind, gumbel, type);  /* several tiles of columns */
            choose(700, 20000, 16, 8, kind, gumbel, type); /* several tiles of rows */
        }
    subsample(5, 1, 1);
    subsample(300, 32, 8);
    subsample(9, 70, 35);
    take_rows(1, 3, 7);
    take_rows(500, 64, 3000);
}

static void back(int64_t n, int64_t e, int64_t d, int k, enum dtype type) {
    float *q = normals(n * d, 1.0f, type), *l = normals(e * d, 1.0f, type), *score = normals(n * k, 2.0f, DTYPE_F32);
    float *dweight = normals(n * k, 1.0f, DTYPE_F32), *base = normals((n + e) * d, 1.0f, DTYPE_F32), *got[2][3];
    float *naive_w = zeros(n * k, 4), *naive = zeros((n + e) * d, 4);
    double *ref_w = zeros(n * k, 8), *ref = zeros((n + e) * d, 8);
    int64_t *index = zeros(n * k, sizeof *index);
    for (int64_t i = 0; i < n * k; i++) { /* row 0 is empty; rows 1, 2, .. end with empty results */
        bool empty = i / k == 0 || (i / k % 3 == 1 && i % k >= k / 2);
        index[i] = empty ? -1 : (i / k * 5 + i % k * 3) % e;
        if (empty) score[i] = -INFINITY;
    }
    ref_softmax_weights(ref_w, score, n, k);
    naive_softmax_weights(naive_w, score, n, k);
    for (int64_t i = 0; i < (n + e) * d; i++)
        naive[i] = base[i], ref[i] = (double)base[i];
    ref_topk_backward(ref, ref + n * d, dweight, naive_w, index, q, l, n, d, k);
    naive_topk_backward(naive, naive + n * d, dweight, naive_w, index, q, l, n, d, k);
    for (int pass = 0; pass < 2; pass++) {
        struct mat mw = put_plain(NULL, DTYPE_F32, 1, n * k), given = put_plain(naive_w, DTYPE_F32, 1, n * k);
        struct mat mq = put_plain(base, DTYPE_F32, n, d), ml = put_plain(base + n * d, DTYPE_F32, e, d);
        gpu->ops->topk->softmax_weights(gpu, mw.data, put_plain(score, DTYPE_F32, 1, n * k).data, n, k);
        struct topk_weights found = {given.data, put_bytes(index, (size_t)(n * k) * sizeof *index), k};
        gpu->ops->topk->backward(gpu, mq, ml, put_plain(dweight, DTYPE_F32, 1, n * k).data, found,
                                 put_plain(q, type, n, d), put_plain(l, type, e, d));
        got[pass][0] = take(mw), got[pass][1] = take(mq), got[pass][2] = take(ml);
        drop_all();
    }
    CHECK_ON("topk.softmax_weights", got[0][0], naive_w, ref_w, n * k, DTYPE_F32);
    CHECK_ON("topk.backward dqueries", got[0][1], naive, ref, n * d, DTYPE_F32);
    CHECK_ON("topk.backward dlandmarks", got[0][2], naive + n * d, ref + n * d, e * d, DTYPE_F32);
    for (int i = 0; i < 3; i++) {
        CHECK_SAME(got[0][i], got[1][i], i == 0 ? n * k : i == 1 ? n * d : e * d);
        free(got[0][i]), free(got[1][i]);
    }
    free(q), free(l), free(score), free(dweight), free(base), free(naive_w), free(naive), free(ref_w), free(ref),
        free(index);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    CHECK_OK(threads_create(&pool, 0));
    bool search = argc > 2 && strcmp(argv[2], "search") == 0; /* the whole of that one */
    if (search) on_short = false;
    topk_forward();
    all_magnitudes();
    for (int t = 0; t < 2 && !search; t++) {
        choices(t ? DTYPE_BF16 : DTYPE_F32);
        back(2, 3, 8, 1, t ? DTYPE_BF16 : DTYPE_F32);
        back(100, 50, 96, 8, t ? DTYPE_BF16 : DTYPE_F32);
        back(700, 2000, 768, 8, t ? DTYPE_BF16 : DTYPE_F32);
    }
    threads_free(pool);
    return on_device_close();
}
