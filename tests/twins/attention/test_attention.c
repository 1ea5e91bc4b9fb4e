/* test_attention.c -- the window's two edges, the ring's end at every position, the beginning of the text, one query or
 * many; a text cut into calls equals one call; keys and values in bf16. */
#include "base/half.h"
#include "tests/twins/twins.h"

struct text {
    int64_t n;
    int heads, dim;
    float *q, *k, *v;
    bool halves; /* keys and values in bf16 */
};

/* The same numbers, which bf16 holds, as bf16. */
static struct mat halves_of(struct mat m) {
    uint16_t *halves = malloc((size_t)(m.rows * m.cols) * sizeof *halves);
    for (int64_t r = 0; r < m.rows; r++)
        half_to_bf16_row(halves + r * m.cols, mat_row(m, r), (size_t)m.cols);
    return mat_dense(halves, DTYPE_BF16, m.rows, m.cols);
}

/* Positions first .. first+n-1 with a ring of `ring` rows that has the rows that the header demands, and garbage
 * elsewhere. */
static void attention_run(float *out, int device, const struct text *t, int64_t first, int64_t n, int64_t ring,
                          int window, bool in_place) {
    struct device *dev = twin_device[device];
    int64_t d = (int64_t)t->heads * t->dim;
    float *garbage = random_array(ring * d, 100.0f);
    free(truncate_to_bf16(garbage, ring * d));
    struct guarded k = guarded_make(ring, d, garbage), v = guarded_make(ring, d, garbage);
    for (int64_t p = first > window ? first - window : 0; p < first + n; p++) {
        memcpy(mat_row(k.m, p % ring), t->k + p * d, (size_t)d * sizeof(float));
        memcpy(mat_row(v.m, p % ring), t->v + p * d, (size_t)d * sizeof(float));
    }
    struct guarded q = guarded_make(n, d, t->q + first * d), o = guarded_make(n, d, NULL);
    struct mat keys = t->halves ? halves_of(k.m) : k.m, values = t->halves ? halves_of(v.m) : v.m;
    dev->ops->attention->forward(dev, in_place ? q.m : o.m, q.m, keys, values, first, t->heads, window);
    if (t->halves) free(keys.data), free(values.data);
    guarded_take(out, in_place ? &q : &o);
    guarded_drop(in_place ? &o : &q);
    guarded_drop(&k);
    guarded_drop(&v);
    free(garbage);
}

static void compare(int64_t length, int heads, int dim, int window, int64_t step, int64_t spare, float scale) {
    int64_t d = (int64_t)heads * dim, all = length * d;
    struct text t = {length, heads, dim, random_array(all, scale), random_array(all, scale), random_array(all, 1.0f),
                     false};
    float *naive = zero_array(all), *twin[DEVICES] = {zero_array(all), zero_array(all)};
    free(truncate_to_bf16(t.k, all)), free(truncate_to_bf16(t.v, all));
    double *ref = double_array(all);
    struct ref_attention shape = {length, 0, heads, dim, window};
    ref_attention(ref, t.q, t.k, t.v, shape);
    naive_attention(naive, t.q, t.k, t.v, shape);
    for (int halves = 0; halves < 2; halves++) {
        float *wide = halves ? twin[0] : NULL;
        if (halves) twin[0] = zero_array(all);
        t.halves = halves;
        for (int64_t first = 0; first < length; first += step) {
            int64_t n = length - first < step ? length - first : step;
            for (int i = 0; i < DEVICES; i++)
                attention_run(twin[i] + first * d, i, &t, first, n, window + n + spare, window, first % 2);
        }
        CHECK_ATTENTION(twin[0], naive, ref, all, scale);
        CHECK_BITS(twin[0], twin[1], all);
        if (halves) CHECK_BITS(twin[0], wide, all);
        free(wide);
    }
    free(t.q), free(t.k), free(t.v), free(naive), free(ref), free(twin[0]), free(twin[1]);
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    CHECK_CLOSE(((float[]){attention_alibi_slope(0, 12), attention_alibi_slope(11, 12), attention_alibi_slope(2, 3)}),
                ((float[]){0.62996052f, 0.00390625f, 0.00390625f}), 3, 1e-7);
    compare(90, 2, 64, 512, 90, 0, 1.0f);  /* window longer than the text */
    compare(300, 3, 32, 70, 300, 0, 1.0f); /* one call: window edges inside tiles */
    compare(300, 1, 64, 64, 64, 5, 1.0f);  /* segments; the ring's end moves */
    compare(200, 2, 33, 50, 7, 0, 1.0f);   /* short segments, the smallest ring */
    compare(120, 2, 64, 40, 1, 3, 1.0f);   /* id by id */
    compare(120, 1, 16, 0, 11, 0, 1.0f);   /* each position reads itself only */
    compare(100, 2, 48, 1, 4, 0, 1.0f);
    compare(150, 1, 64, 20, 17, 1, 10.0f); /* large scores */
    return twins_close();
}
