/* test_chunk_attention.c -- chunk lengths around a tile of 64, head sizes that do and do not fill vectors, o over q. */
#include "tests/twins/twins.h"

static void compare(int64_t chunks, int positions, int heads, int dim, float scale, bool in_place) {
    int64_t n = chunks * positions, d = (int64_t)heads * dim;
    float *q = random_array(n * d, scale), *k = random_array(n * d, scale), *v = random_array(n * d, 1.0f);
    float *naive = zero_array(n * d), *twin[DEVICES];
    double *ref = double_array(n * d);
    struct ref_chunk_attention shape = {chunks, heads, dim, positions};
    ref_chunk_attention(ref, q, k, v, shape);
    naive_chunk_attention(naive, q, k, v, shape);
    for (int i = 0; i < DEVICES; i++) {
        struct device *dev = twin_device[i];
        struct guarded o = guarded_make(n, d, NULL), gq = guarded_make(n, d, q), gk = guarded_make(n, d, k),
                       gv = guarded_make(n, d, v);
        dev->ops->chunk_attention->forward(dev, in_place ? gq.m : o.m, gq.m, gk.m, gv.m, heads, positions);
        twin[i] = zero_array(n * d);
        guarded_take(twin[i], in_place ? &gq : &o);
        guarded_drop(in_place ? &o : &gq);
        guarded_drop(&gk);
        guarded_drop(&gv);
    }
    CHECK_ATTENTION(twin[0], naive, ref, n * d, scale);
    CHECK_BITS(twin[0], twin[1], n * d);
    free(q), free(k), free(v), free(naive), free(ref), free(twin[0]), free(twin[1]);
}

int main(int argc, char **argv) {
    static const int positions[] = {1, 2, 5, 17, 63, 64, 65, 130};
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(positions); i++) {
        compare(2, positions[i], 2, 64, 1.0f, false);
        compare(3, positions[i], 1, 18, 1.0f, true);
    }
    compare(1, 64, 1, 200, 1.0f, false);
    compare(2, 65, 2, 64, 12.0f, true); /* scores in the hundreds: one key has all weight */
    return twins_close();
}
