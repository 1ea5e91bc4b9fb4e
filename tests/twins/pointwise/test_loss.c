/* test_loss.c -- vocabularies around a block of 512, rows around a block of 128, targets at both ends and left out. */
#include "tests/twins/twins.h"

static void compare(int64_t n, int64_t d, int64_t words, float scale) {
    float *x = random_array(n * d, scale), *table = random_array(words * d, 1.0f), *naive = zero_array(n),
          *twin[DEVICES];
    double *ref = double_array(n);
    int32_t *targets = malloc((size_t)n * sizeof *targets);
    for (int64_t r = 0; r < n; r++) {
        int32_t any = (int32_t)rng_below(&twin_rng, (uint64_t)words);
        targets[r] = r % 4 == 0 ? (int32_t)words - 1 : r % 4 == 1 ? 0 : r % 4 == 2 ? any : -100;
    }
    ref_loss(ref, x, table, targets, n, d, words);
    naive_loss(naive, x, table, targets, n, d, words);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded out = guarded_make(1, n, NULL), gx = guarded_make(n, d, x), t = guarded_make(words, d, table);
        twin_device[i]->ops->loss->forward(twin_device[i], out.m.data, gx.m, t.m, targets);
        twin[i] = zero_array(n);
        guarded_take(twin[i], &out);
        guarded_drop(&gx);
        guarded_drop(&t);
        for (int64_t r = 0; r < n; r++)
            if (targets[r] < 0) CHECK(twin[i][r] == 0.0f);
    }
    CHECK_TWIN(twin[0], naive, ref, n);
    CHECK_BITS(twin[0], twin[1], n);
    free(x), free(table), free(naive), free(ref), free(targets), free(twin[0]), free(twin[1]);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 16, 2, 1.0f);
    compare(1, 33, 511, 1.0f);
    compare(7, 64, 512, 1.0f);
    compare(130, 48, 513, 1.0f);
    compare(129, 32, 1600, 1.0f);
    compare(5, 64, 700, 30.0f);   /* logits in the hundreds */
    compare(40, 4, 270000, 1.0f); /* so large a vocabulary that blocks have fewer rows */
    return twins_close();
}
