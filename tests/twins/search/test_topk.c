/* test_topk.c -- few and many queries, any number of visible landmarks, fewer landmarks than k, equal scores, numbers
 * that are not finite. Scores are compared with the tolerance; the landmark of a slot must be right if its score
 * differs enough in the reference. */
#include "tests/ref/search/ref_topk.h"
#include "tests/twins/twins.h"

/* The k best of the first `visible` landmarks of l [e, d] for each of the queries q [n, d]. */
struct search {
    const float *q, *l;
    const int64_t *visible;
    int64_t n, e, d;
    int k;
};

static void topk_run(int64_t *index, float *score, int device, const struct search *s) {
    int64_t n = s->n, k = s->k;
    struct guarded gq = guarded_make(n, s->d, s->q), gl = guarded_make(s->e, s->d, s->l);
    struct guarded out = guarded_make(1, n * k, NULL);
    int64_t *guarded_index = malloc((size_t)(n * k + 2) * sizeof *guarded_index);
    guarded_index[0] = guarded_index[n * k + 1] = 77;
    twin_device[device]->ops->topk->forward(twin_device[device], guarded_index + 1, out.m.data, gq.m, gl.m, s->visible,
                                            s->k);
    CHECK_EQ(guarded_index[0], 77);
    CHECK_EQ(guarded_index[n * k + 1], 77);
    memcpy(index, guarded_index + 1, (size_t)(n * k) * sizeof *index);
    guarded_take(score, &out);
    guarded_drop(&gq);
    guarded_drop(&gl);
    free(guarded_index);
}

static void compare(int64_t n, int64_t e, int64_t d, int k, bool ties) {
    float *q = random_array(n * d, 1.0f), *l = random_array(e * d, 1.0f), *naive = zero_array(n * e), *score[DEVICES];
    double *ref = double_array(n * e), worst = 0.0;
    int64_t *index[DEVICES], *visible = malloc((size_t)n * sizeof *visible);
    for (int64_t r = 0; r < n; r++)
        visible[r] = r == 0 ? e : r == 1 ? 0 : (int64_t)rng_below(&twin_rng, (uint64_t)e + 1);
    for (int64_t i = 3; i < e && ties; i++)
        if (i % 4) memcpy(l + i * d, l + (i - i % 4) * d, (size_t)d * sizeof *l); /* runs of equal landmarks */
    ref_scores(ref, q, l, n, e, d);
    naive_scores(naive, q, l, n, e, d);
    for (int64_t i = 0; i < n * e; i++)
        worst = fmax(worst, fabs((double)naive[i] - ref[i]));
    for (int i = 0; i < DEVICES; i++) {
        index[i] = malloc((size_t)(n * k) * sizeof **index);
        score[i] = zero_array(n * k);
        topk_run(index[i], score[i], i, &(struct search){q, l, visible, n, e, d, k});
        for (int64_t r = 0; r < n; r++)
            ref_check_topk(index[i] + r * k, score[i] + r * k, ref + r * e, visible[r], k, 2.0 * worst + 1e-6);
    }
    CHECK_BITS(index[0], index[1], n * k);
    CHECK_BITS(score[0], score[1], n * k);
    for (int i = 0; i < DEVICES; i++)
        free(index[i]), free(score[i]);
    free(q), free(l), free(naive), free(ref), free(visible);
}

/* Queries with numbers that are not finite may find anything or nothing; the results of the others do not change. */
static void not_finite(int64_t n, int64_t e, int64_t d, int k) {
    float *q = random_array(n * d, 1.0f), *l = random_array(e * d, 1.0f), *score[2];
    int64_t *index[2], *visible = malloc((size_t)n * sizeof *visible);
    for (int64_t r = 0; r < n; r++)
        visible[r] = e;
    for (int i = 0; i < 2; i++) {
        index[i] = malloc((size_t)(n * k) * sizeof **index);
        score[i] = zero_array(n * k);
        if (i) q[d / 2] = NAN, q[(n - 1) * d] = INFINITY, q[(n - 1) * d + d / 2] = -INFINITY;
        topk_run(index[i], score[i], 0, &(struct search){q, l, visible, n, e, d, k});
    }
    CHECK_BITS(index[0] + k, index[1] + k, (n - 2) * k);
    CHECK_BITS(score[0] + k, score[1] + k, (n - 2) * k);
    for (int64_t i = 0; i < n * k; i++)
        CHECK(index[1][i] >= -1 && index[1][i] < e);
    for (int i = 0; i < 2; i++)
        free(index[i]), free(score[i]);
    free(q), free(l), free(visible);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    for (int64_t n = 1; n <= 9; n += 4)
        for (int ties = 0; ties < 2; ties++) {
            compare(n, 1, 16, 8, ties);
            compare(n, 5, 33, 8, ties);
            compare(n, 9000, 24, 8, ties); /* several ranges, several workers */
            compare(n, 600, 64, 1, ties);
        }
    compare(70, 1500, 48, 8, true);
    compare(33, 513, 16, 50, false);
    compare(8, 4000, 8, 1500, false);
    compare(2, 300, 8, TOPK_MAX, true);
    for (int k = 31; k <= 33; k++) { /* as many as fit a GPU's lists, one less, one more */
        compare(70, 20, 24, k, true);
        compare(5, 900, 24, k, true);
    }
    not_finite(5, 700, 32, 8);
    not_finite(40, 700, 32, 33);
    return twins_close();
}
