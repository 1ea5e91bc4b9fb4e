/* test_loss_contrastive.c -- the contrastive loss, its hits, and its gradients, which are added to earlier values: rows
 * and candidates around the blocks, excluded candidates (also the best one), candidates of their own row alone, rows
 * that do not count. */
#include "tests/ref/ref_backward.h"
#include "tests/twins/twins.h"

struct results {
    float *nll, *hit, *dx, *dtable;
};

static struct results contrastive(struct device *dev, const float *x, const float *table, const float *before,
                                  struct loss_contrast how, int64_t n, int64_t d, int64_t words) {
    struct guarded out = guarded_make(1, n, NULL), hit = guarded_make(1, n, NULL);
    struct guarded gx = guarded_make(n, d, x), t = guarded_make(words, d, table);
    struct guarded dx = guarded_make(n, d, before), dtable = guarded_make(words, d, before + n * d);
    struct results r = {zero_array(n), zero_array(n), zero_array(n * d), zero_array(words * d)};
    dev->ops->loss->contrastive(dev, out.m.data, hit.m.data, dx.m, dtable.m, gx.m, t.m, how);
    guarded_take(r.nll, &out);
    guarded_take(r.hit, &hit);
    guarded_take(r.dx, &dx);
    guarded_take(r.dtable, &dtable);
    guarded_drop(&gx);
    guarded_drop(&t);
    return r;
}

static void check_hits(const float *hit, const float *x, const float *table, struct loss_contrast how, int64_t n,
                       int64_t d, int64_t words) {
    const int32_t *targets = how.targets, *excluded = how.excluded;
    double *score = double_array(n * words);
    int64_t hits = 0;
    ref_scores(score, x, table, n, words, d);
    for (int64_t r = 0; r < n; r++) {
        double best = -INFINITY, own = targets[r] < 0 ? 0.0 : score[r * words + targets[r]];
        for (int64_t w = 0; w < words; w++)
            if (w != excluded[r] && w != targets[r] && how.alone[w] == 0.0f) best = fmax(best, score[r * words + w]);
        if (fabs(own - best) > 1e-5) CHECK(hit[r] == (targets[r] >= 0 && own > best ? 1.0f : 0.0f));
        hits += hit[r] == 1.0f;
    }
    if (n > 20) CHECK(hits > 0 && hits < n);
    free(score);
}

static void compare(int64_t n, int64_t d, int64_t words, float scale, float weight) {
    float *x = random_array(n * d, 1.0f), *table = random_array(words * d, 1.0f);
    float *before = random_array((n + words) * d, 0.1f);
    struct results naive = {zero_array(n), NULL, zero_array(n * d), zero_array(words * d)}, twin[DEVICES];
    double *nll = double_array(n), *dx = double_array(n * d), *dtable = double_array(words * d);
    int32_t *targets = malloc((size_t)n * sizeof *targets), *excluded = malloc((size_t)n * sizeof *excluded);
    float *alone = zero_array(words);
    for (int64_t w = 1; w < words; w += 4)
        alone[w] = 1.0f;
    for (int64_t r = 0; r < n; r++) {
        targets[r] = r % 5 == 4 ? -1 : (int32_t)rng_below(&twin_rng, (uint64_t)words);
        excluded[r] = r % 3 == 0 || words < 2 ? -1 : (int32_t)((targets[r] + 1 + r % (words - 1)) % words);
        if (excluded[r] == targets[r]) excluded[r] = -1;
        for (int64_t i = 0; i < d && r % 2; i++) { /* the target scores high; the excluded one would score higher */
            if (targets[r] >= 0) x[r * d + i] = 0.3f * x[r * d + i] + table[targets[r] * d + i];
            if (excluded[r] >= 0) x[r * d + i] += 1.5f * table[excluded[r] * d + i];
        }
    }
    for (int64_t i = 0; i < n * d; i++)
        naive.dx[i] = before[i], dx[i] = (double)before[i];
    for (int64_t i = 0; i < words * d; i++)
        naive.dtable[i] = before[n * d + i], dtable[i] = (double)before[n * d + i];
    ref_contrastive(nll, dx, dtable, x, table, targets, excluded, alone, n, d, words, scale, weight, NULL);
    naive_contrastive(naive.nll, naive.dx, naive.dtable, x, table, targets, excluded, alone, n, d, words, scale, weight,
                      NULL);
    struct loss_contrast how = {targets, excluded, alone, scale, weight};
    for (int i = 0; i < DEVICES; i++)
        twin[i] = contrastive(twin_device[i], x, table, before, how, n, d, words);
    CHECK_GRADIENT(twin[0].nll, naive.nll, nll, n);
    CHECK_GRADIENT(twin[0].dx, naive.dx, dx, n * d);
    CHECK_GRADIENT(twin[0].dtable, naive.dtable, dtable, words * d);
    check_hits(twin[0].hit, x, table, how, n, d, words);
    CHECK_BITS(twin[0].nll, twin[1].nll, n);
    CHECK_BITS(twin[0].hit, twin[1].hit, n);
    CHECK_BITS(twin[0].dx, twin[1].dx, n * d);
    CHECK_BITS(twin[0].dtable, twin[1].dtable, words * d);
    for (int64_t i = 0; i < n * d; i++)
        if (targets[i / d] < 0) CHECK(twin[0].dx[i] == before[i] && twin[0].nll[i / d] == 0.0f);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i].nll), free(twin[i].hit), free(twin[i].dx), free(twin[i].dtable);
    free(naive.nll), free(naive.dx), free(naive.dtable), free(nll), free(dx), free(dtable);
    free(x), free(table), free(before), free(targets), free(excluded), free(alone);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 16, 1, 0.25f, 1.0f);
    compare(5, 33, 7, 0.2f, 0.5f);
    compare(64, 48, 512, 0.14f, 1.0f);
    compare(130, 64, 513, 0.125f, 0.01f);
    compare(70, 32, 5000, 0.18f, 0.1f); /* logits fill the scratch: fewer rows in a block */
    return twins_close();
}
