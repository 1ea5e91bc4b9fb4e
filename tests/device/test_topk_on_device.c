/* test_topk_on_device.c -- the best landmarks on a GPU: every pair of types, few and many queries, more places than a
 * list holds, equal landmarks, visibility cut anywhere; then the weights and their gradient. */
#include "tests/device/on_device.h"

/* Row by row: order and ties, each score right for its landmark, and nothing better left out. */
static void check_row(const int64_t *index, const float *score, const double *ref, int64_t visible, int k,
                      double tolerance) {
    bool *taken = calloc((size_t)visible + 1, 1);
    int64_t wanted = visible < k ? visible : k;
    for (int64_t i = 0; i < k; i++) {
        if (i >= wanted) {
            CHECK_EQ(index[i], -1);
            CHECK(score[i] == -INFINITY);
            continue;
        }
        CHECK(index[i] >= 0 && index[i] < visible && !taken[index[i]]);
        taken[index[i]] = true;
        if (fabs((double)score[i] - ref[index[i]]) > tolerance)
            fprintf(stderr, "score %.9g, ref %.9g, tolerance %g\n", (double)score[i], ref[index[i]], tolerance);
        CHECK(fabs((double)score[i] - ref[index[i]]) <= tolerance);
        if (i) CHECK(score[i - 1] > score[i] || (score[i - 1] == score[i] && index[i - 1] < index[i]));
    }
    for (int64_t e = 0; e < visible && wanted == k; e++)
        if (!taken[e]) CHECK(ref[e] <= (double)score[k - 1] + tolerance);
    free(taken);
}

static void run(int64_t **index, float **score, const float *q, const float *l, const int64_t *visible, int64_t n,
                int64_t e, int64_t d, int k, enum dtype query_type, enum dtype type, int pad) {
    struct mat ms = put_plain(NULL, DTYPE_F32, 1, n * k);
    int64_t *poison = malloc((size_t)(n * k + 1) * sizeof *poison);
    memset(poison, 255, (size_t)(n * k) * sizeof *poison);
    int64_t *there = put_bytes(poison, (size_t)(n * k) * sizeof *poison);
    gpu->ops->topk->forward(gpu, there, ms.data, put(q, query_type, n, d, pad, 0), put(l, type, e, d, pad, 0),
                            put_bytes(visible, (size_t)n * sizeof *visible), k);
    device_download(gpu, poison, there, (size_t)(n * k) * sizeof *poison);
    *index = poison;
    *score = take(ms);
    drop_all();
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
    ref_scores(ref, q, l, n, e, d);
    naive_scores(naive, q, l, n, e, d);
    for (int64_t i = 0; i < n * e; i++)
        worst = fmax(worst, fabs((double)naive[i] - ref[i]));
    /* Queries wider than the landmarks: two parts of 8 (bf16) or 11 (fp16) bits keep all but 2^-17 (2^-23) of a number.
     */
    if (query_type == DTYPE_F32 && type == DTYPE_BF16) worst += 0x1p-17 * 4.0;
    for (int i = 0; i < 2; i++) {
        run(&index[i], &score[i], q, l, visible, n, e, d, k, query_type, type, pad);
        for (int64_t r = 0; r < n; r++)
            check_row(index[i] + r * k, score[i] + r * k, ref + r * e, visible[r], k, 2.0 * worst + 1e-6);
    }
    CHECK_SAME(index[0], index[1], n * k);
    CHECK_SAME(score[0], score[1], n * k);
    for (int i = 0; i < 2; i++)
        free(index[i]), free(score[i]);
    free(q), free(l), free(naive), free(ref), free(visible);
}

static void forward(void) {
    static const enum dtype kinds[][2] = {{DTYPE_F32, DTYPE_F32},  {DTYPE_BF16, DTYPE_BF16}, {DTYPE_BF16, DTYPE_F16},
                                          {DTYPE_F32, DTYPE_BF16}, {DTYPE_F32, DTYPE_F16},   {DTYPE_BF16, DTYPE_F32}};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        enum dtype q = kinds[i][0], l = kinds[i][1];
        if (on_short) {
            compare(9, 700, 256, 8, true, q, l, 8);
            compare(70, 900, 64, 8, true, q, l, 0);
            compare(3, 600, 128, 40, false, q, l, 0);
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
        compare(130, 20000, 136, 14, false, q, l, 8);
        compare(6, 3000, 128, 50, true, q, l, 0); /* two rounds of a list */
        compare(5, 900, 33, 8, false, q, l, 3);   /* nothing fits vectors */
        compare(70, 2500, 64, 8, true, q, l, 0);
        compare(1100, 4000, 32, 8, false, q, l, 0); /* several tiles */
        compare(80, 700, 128, 100, false, q, l, 0);
    }
}

static void back(int64_t n, int64_t e, int64_t d, int k, enum dtype type) {
    float *q = normals(n * d, 1.0f, type), *l = normals(e * d, 1.0f, type), *score = normals(n * k, 2.0f, DTYPE_F32);
    float *dweight = normals(n * k, 1.0f, DTYPE_F32), *base = normals((n + e) * d, 1.0f, DTYPE_F32), *got[2][3];
    float *naive_w = zeros(n * k, 4), *naive = zeros((n + e) * d, 4);
    double *ref_w = zeros(n * k, 8), *ref = zeros((n + e) * d, 8);
    int64_t *index = zeros(n * k, sizeof *index);
    for (int64_t i = 0; i < n * k; i++) { /* row 0 is empty; rows 1, 2, .. have empty places behind */
        bool empty = i / k == 0 || (i / k % 3 == 1 && i % k >= k / 2);
        index[i] = empty ? -1 : (i / k * 5 + i % k * 3) % e;
        if (empty) score[i] = -INFINITY;
    }
    ref_weigh(ref_w, score, n, k);
    naive_weigh(naive_w, score, n, k);
    for (int64_t i = 0; i < (n + e) * d; i++)
        naive[i] = base[i], ref[i] = (double)base[i];
    ref_topk_backward(ref, ref + n * d, dweight, naive_w, index, q, l, n, d, k);
    naive_topk_backward(naive, naive + n * d, dweight, naive_w, index, q, l, n, d, k);
    for (int pass = 0; pass < 2; pass++) {
        struct mat mw = put_plain(NULL, DTYPE_F32, 1, n * k), given = put_plain(naive_w, DTYPE_F32, 1, n * k);
        struct mat mq = put_plain(base, DTYPE_F32, n, d), ml = put_plain(base + n * d, DTYPE_F32, e, d);
        gpu->ops->topk->weigh(gpu, mw.data, put_plain(score, DTYPE_F32, 1, n * k).data, n, k);
        gpu->ops->topk->backward(gpu, mq, ml, put_plain(dweight, DTYPE_F32, 1, n * k).data, given.data,
                                 put_bytes(index, (size_t)(n * k) * sizeof *index), put_plain(q, type, n, d),
                                 put_plain(l, type, e, d), k);
        got[pass][0] = take(mw), got[pass][1] = take(mq), got[pass][2] = take(ml);
        drop_all();
    }
    CHECK_ON("topk.weigh", got[0][0], naive_w, ref_w, n * k, DTYPE_F32);
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
    forward();
    for (int t = 0; t < 2; t++) {
        back(2, 3, 8, 1, t ? DTYPE_BF16 : DTYPE_F32);
        back(100, 50, 96, 8, t ? DTYPE_BF16 : DTYPE_F32);
        back(700, 2000, 768, 8, t ? DTYPE_BF16 : DTYPE_F32);
    }
    return on_device_close();
}
