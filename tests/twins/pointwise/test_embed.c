/* test_embed.c -- rows by id; negative ids read the pad row. The op copies, so results are equal bit for bit. */
#include "tests/twins/twins.h"

static void compare(int64_t n, int64_t words, int64_t d, int32_t pad) {
    float *table = random_array(words * d, 1.0f), *out = zero_array(n * d);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = i % 5 == 3 ? -100 + (int32_t)(i % 2) * 99 : (int32_t)rng_below(&twin_rng, (uint64_t)words);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded x = guarded_make(n, d, NULL), t = guarded_make(words, d, table);
        twin_device[i]->ops->embed->forward(twin_device[i], x.m, t.m, ids, pad);
        guarded_take(out, &x);
        guarded_drop(&t);
        for (int64_t r = 0; r < n; r++)
            CHECK_BITS(out + r * d, table + (ids[r] < 0 ? pad : ids[r]) * d, d);
    }
    free(table), free(out), free(ids);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(1, 1, 1, 0);
    compare(4, 7, 33, 6);
    compare(1000, 50, 96, 0);
    return twins_close();
}
