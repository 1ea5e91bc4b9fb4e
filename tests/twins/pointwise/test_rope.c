/* test_rope.c -- head sizes that fill vectors or do not, several periods on one device (which keeps its table), and a
 * shape too large for the table. */
#include "tests/twins/twins.h"

static void compare(int64_t n, int heads, int dim, int period, float theta) {
    int64_t all = n * heads * dim;
    float *x = random_array(all, 1.0f), *naive = zero_array(all), *twin[DEVICES];
    double *ref = double_array(all);
    ref_rope(ref, x, n, heads, dim, period, theta);
    naive_rope(naive, x, n, heads, dim, period, theta);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded g = guarded_make(n, (int64_t)heads * dim, x);
        twin_device[i]->ops->rope->forward(twin_device[i], g.m, heads, period, theta);
        twin[i] = zero_array(all);
        guarded_take(twin[i], &g);
    }
    CHECK_TWIN(twin[0], naive, ref, all);
    CHECK_BITS(twin[0], twin[1], all);
    free(x), free(naive), free(ref), free(twin[0]), free(twin[1]);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    compare(128, 2, 64, 64, 10000.0f);
    compare(130, 3, 32, 65, 10000.0f);
    compare(128, 2, 64, 64, 500.0f);
    compare(7, 1, 2, 3, 10000.0f);
    compare(50, 2, 38, 20, 10000.0f);
    compare(40, 1, 64, 1000, 10000.0f); /* 32 * 1000 angles: no table */
    compare(64, 2, 64, 64, 10000.0f);
    return twins_close();
}
