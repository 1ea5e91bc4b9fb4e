/* test_loss_backward.c -- loss and its gradients in one call: vocabularies around a block of 512, rows around one of
 * 128, targets at both ends and left out, few rows with a target as where only answers are predicted, a maximum that
 * rises from block to block, gradients added to earlier values.
 */
#include "tests/ref/ref_backward.h"
#include "tests/twins/twins.h"

struct results {
    float *nll, *dx, *dtable;
};

struct inputs {
    const float *x, *table, *before;
    const int32_t *targets;
    const float *weight;
    int64_t n, d, words;
    float scale;
};

static struct results loss_backward_run(int device, const struct inputs *in) {
    int64_t n = in->n, d = in->d, words = in->words;
    struct guarded out = guarded_make(1, n, NULL), gx = guarded_make(n, d, in->x),
                   t = guarded_make(words, d, in->table);
    struct guarded dx = guarded_make(n, d, NULL), dtable = guarded_make(words, d, in->before);
    struct results r = {zero_array(n), zero_array(n * d), zero_array(words * d)};
    struct loss_rows rows = {.targets = in->targets, .weight = in->weight, .scale = in->scale};
    twin_device[device]->ops->loss->forward_backward(twin_device[device], out.m.data, dx.m, dtable.m, gx.m, t.m, rows);
    guarded_take(r.nll, &out);
    guarded_take(r.dx, &dx);
    guarded_take(r.dtable, &dtable);
    guarded_drop(&gx);
    guarded_drop(&t);
    return r;
}

/* Row by row, each with its own scale; without weights one call for all rows is the same. */
static void loss_reference(struct results *naive, double *dx, double *dtable, const struct inputs *in) {
    for (int64_t r = 0; r < in->n; r++) {
        float scale = in->weight ? in->scale * in->weight[r] : in->scale;
        const float *x = in->x + r * in->d;
        const int32_t *target = in->targets + r;
        ref_loss_backward(dx + r * in->d, dtable, x, in->table, target, 1, in->d, in->words, scale, NULL);
        naive_loss_backward(naive->dx + r * in->d, naive->dtable, x, in->table, target, 1, in->d, in->words, scale,
                            NULL);
    }
}

static void compare(int64_t n, int64_t d, int64_t words, float width, float scale, bool weighted, bool answers) {
    float *x = random_array(n * d, width), *table = random_array(words * d, 1.0f),
          *before = random_array(words * d, 1.0f);
    struct results naive = {zero_array(n), zero_array(n * d), zero_array(words * d)}, twin[DEVICES];
    double *nll = double_array(n), *dx = double_array(n * d), *dtable = double_array(words * d);
    int32_t *targets = malloc((size_t)n * sizeof *targets);
    for (int64_t r = 0; r < n; r++) {
        int32_t any = (int32_t)rng_below(&twin_rng, (uint64_t)words);
        targets[r] = r % 4 == 0 ? (int32_t)words - 1 : r % 4 == 1 ? 0 : r % 4 == 2 ? any : -100;
        if (answers && (r % 300 < 150 || r % 300 > 161)) targets[r] = -1;
    }
    for (int64_t i = 0; i < words * d; i++) {
        naive.dtable[i] = before[i];
        dtable[i] = (double)before[i];
        if (i / d >= 512) table[i] *= 1.5f; /* later blocks have the maximum */
    }
    ref_loss(nll, x, table, targets, n, d, words);
    naive_loss(naive.nll, x, table, targets, n, d, words);
    float *weight = random_array(n, 1.0f);
    const struct inputs in = {x, table, before, targets, weighted ? weight : NULL, n, d, words, scale};
    loss_reference(&naive, dx, dtable, &in);
    for (int i = 0; i < DEVICES; i++)
        twin[i] = loss_backward_run(i, &in);
    CHECK_GRADIENT(twin[0].nll, naive.nll, nll, n); /* few rows: the worst naive error is a poor estimate */
    CHECK_GRADIENT(twin[0].dx, naive.dx, dx, n * d);
    CHECK_GRADIENT(twin[0].dtable, naive.dtable, dtable, words * d);
    CHECK_BITS(twin[0].nll, twin[1].nll, n);
    CHECK_BITS(twin[0].dx, twin[1].dx, n * d);
    CHECK_BITS(twin[0].dtable, twin[1].dtable, words * d);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < d && targets[r] < 0; i++)
            CHECK(twin[0].dx[r * d + i] == 0.0f && twin[0].nll[r] == 0.0f);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i].nll), free(twin[i].dx), free(twin[i].dtable);
    free(naive.nll), free(naive.dx), free(naive.dtable), free(nll), free(dx), free(dtable);
    free(x), free(table), free(before), free(targets), free(weight);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 16, 2, 1.0f, 1.0f, false, false);
    compare(5, 33, 511, 1.0f, 0.25f, true, false);
    compare(7, 64, 512, 1.0f, 1.0f, false, false);
    compare(130, 48, 513, 1.0f, 1.0f / 130, true, false);
    compare(300, 32, 1600, 1.0f, 0.01f, true, false);
    compare(9, 64, 1300, 10.0f, 1.0f, false, false); /* logits in the hundreds */
    compare(700, 32, 1100, 1.0f, 0.05f, true, true); /* blocks without a target, with a few, and at an edge */
    return twins_close();
}
