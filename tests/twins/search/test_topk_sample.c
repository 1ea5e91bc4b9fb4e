/* test_topk_sample.c -- training's sampling: ranges of any size, other sequences, documents that must not overlap,
 * fewer allowed landmarks than k, noise and its distribution; subsample and gather. */
#include "tests/ref/ref_sample.h"
#include "tests/ref/ref_sample_case.h"
#include "tests/twins/twins.h"

static void compare(int64_t n, int64_t e, int64_t d, int k, int kind, bool gumbel, bool ties) {
    float *q = random_array(n * d, 1.0f), *l = random_array(e * d, 1.0f), *naive = zero_array(n * e), *score[DEVICES];
    double *ref = double_array(n * e), worst = 0.0;
    int64_t *index[DEVICES];
    int32_t *slot = malloc((size_t)(n * k) * sizeof *slot);
    struct sample_case c = sample_case_make(n, e, kind, &twin_rng);
    struct topk_rows rows = sample_case_rows(&c);
    uint64_t seed = rng_u64(&twin_rng);
    for (int64_t i = 3; i < e && ties; i++)
        if (i % 4) memcpy(l + i * d, l + (i - i % 4) * d, (size_t)d * sizeof *l);
    ref_scores(ref, q, l, n, e, d);
    naive_scores(naive, q, l, n, e, d);
    for (int64_t i = 0; i < n * e; i++)
        worst = fmax(worst, fabs((double)naive[i] - ref[i]));
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded gq = guarded_make(n, d, q), gl = guarded_make(e, d, l), out = guarded_make(1, n * k, NULL);
        index[i] = malloc((size_t)(n * k) * sizeof **index);
        score[i] = zero_array(n * k);
        struct topk_sampling sampling = {gq.m, gl.m, rows, k, gumbel, seed};
        dev->ops->topk->sample(dev, index[i], i ? slot : NULL, out.m.data, &sampling);
        guarded_take(score[i], &out);
        guarded_drop(&gq);
        guarded_drop(&gl);
        check_sample(index[i], i ? slot : NULL, score[i],
                     (struct sample_check){ref, n, e, k, &rows, gumbel, seed, 2.0 * worst + 1e-6});
    }
    CHECK_BITS(index[0], index[1], n * k);
    CHECK_BITS(score[0], score[1], n * k);
    for (int i = 0; i < DEVICES; i++)
        free(index[i]), free(score[i]);
    free(q), free(l), free(naive), free(ref), free(slot);
    sample_case_free(&c);
}

/* Equal scores: noise alone decides, so all landmarks are found equally often (up to 6 deviations). */
static void spread(void) {
    enum { N = 4000, E = 10 };
    float *q = zero_array(N), *l = random_array(E, 1.0f), *score = zero_array(N);
    int32_t begin[N] = {0}, end[N];
    int64_t index[N], index_again[N], count[E] = {0}, same = 0;
    for (int i = 0; i < N; i++)
        end[i] = E;
    struct topk_rows rows = {.own_begin = begin, .own_end = end, .sequence_end = end};
    struct device *dev = twin_device[1];
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct topk_sampling sampling = {mat_f32(q, N, 1), mat_f32(l, E, 1), rows, 1, true, seed};
        dev->ops->topk->sample(dev, seed == 2 ? index_again : index, NULL, score, &sampling);
        for (int i = 0; i < N && seed == 3; i++)
            count[index[i]]++;
        for (int i = 0; i < N && seed == 2; i++)
            same += index[i] == index_again[i];
    }
    for (int i = 0; i < E; i++)
        CHECK(fabs((double)count[i] - N / E) <= 6.0 * sqrt((double)N / E));
    CHECK(fabs((double)same - N / E) <= 6.0 * sqrt((double)N / E)); /* another seed, another sample */
    free(q), free(l), free(score);
}

static void compare_subsample(int64_t n, int from, int k) {
    int64_t *index = malloc((size_t)(n * from) * sizeof *index), *out = malloc((size_t)(n * k) * sizeof *out);
    float *score = random_array(n * from, 2.0f);
    struct device *dev = twin_device[0];
    for (int64_t i = 0; i < n * from; i++) {
        bool empty = i / from % 4 == 1 && i % from >= from / 3;
        index[i] = empty ? -1 : i % from * 1000003 % 5003 + i / from;
        if (empty) score[i] = -INFINITY;
    }
    dev->ops->topk->subsample(dev, out, index, score, n, from, k, 99);
    check_subsample(out, index, score, n, from, k, 99);
    free(index), free(out), free(score);
}

static void compare_gather(void) {
    static const int32_t table[4][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {-1, -2, -3}};
    static const int64_t index[5] = {2, -1, 0, 0, 1};
    static const int32_t wanted[5][3] = {{7, 8, 9}, {-1, -2, -3}, {1, 2, 3}, {1, 2, 3}, {4, 5, 6}};
    int32_t out[6][3];
    memset(out, 77, sizeof out);
    twin_device[0]->ops->topk->gather(twin_device[0], out[0], table[0], 4, 3, index, 5);
    CHECK(memcmp(out, wanted, sizeof wanted) == 0);
    CHECK_EQ(out[5][0], 0x4d4d4d4d);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    for (int kind = 0; kind < 3; kind++)
        for (int gumbel = 0; gumbel < 2; gumbel++) {
            compare(1, 1, 16, 8, kind, gumbel, false);
            compare(7, 5, 33, 8, kind, gumbel, false);
            compare(70, 1300, 24, 8, kind, gumbel, true);
            compare(33, 513, 64, 1, kind, gumbel, false);
            compare(9, 600, 48, 70, kind, gumbel, true);
        }
    compare(3, 40, 16, TOPK_SAMPLE_MAX, 1, true, false);
    spread();
    compare_subsample(5, 1, 1);
    compare_subsample(40, 32, 8);
    compare_subsample(9, 70, 35);
    compare_gather();
    return twins_close();
}
