/* test_gca_backward.c -- forward_keep, and the gradients of queries, keys, values and weights: slots that several
 * entries read, empty entries, zero weights (whose dweight is not zero), rows outside of all blocks, incomplete
 * tiles. */
#include "tests/ref/ref_attend_backward.h"
#include "tests/twins/twins.h"

struct shape {
    int64_t first;
    int lengths[3], blocks, rest, k, heads, dim, live, slot_rows;
    bool off_by_one;
    float scale;
};
enum { SLOTS = 5, ENTRIES = 32 };

struct inputs {
    int64_t n, d, row_begin[4];
    int32_t slot[ENTRIES], begin[SLOTS + 1], entry[ENTRIES];
    float weight[ENTRIES], *q, *k, *v, *dout, *dk, *dv; /* dk, dv: the values before */
    struct ref_gca ref;
};

static struct inputs *make(const struct shape *s) {
    struct inputs *in = calloc(1, sizeof *in);
    int entries = s->blocks * s->k, found = 0;
    in->row_begin[0] = s->first;
    for (int b = 0; b < s->blocks; b++)
        in->row_begin[b + 1] = in->row_begin[b] + s->lengths[b];
    in->n = in->row_begin[s->blocks] + s->rest;
    in->d = (int64_t)s->heads * s->dim;
    CHECK(entries <= ENTRIES);
    for (int i = 0; i < entries; i++) {
        in->slot[i] = i % 5 == 4 ? -1 : (int32_t)rng_below(&twin_rng, SLOTS);
        in->weight[i] = in->slot[i] < 0 || i % 7 == 2 ? 0.0f : rng_uniform(&twin_rng);
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        for (int i = 0; i < entries; i++)
            if (in->slot[i] == slot) in->entry[found++] = i;
        in->begin[slot + 1] = found;
    }
    int64_t pool = (int64_t)SLOTS * s->slot_rows * in->d;
    in->q = random_array(in->n * in->d, s->scale);
    in->k = random_array(pool, s->scale);
    in->v = random_array(pool, 1.0f);
    in->dout = random_array(in->n * in->d, 1.0f);
    in->dk = random_array(pool, 1.0f);
    in->dv = random_array(pool, 1.0f);
    in->ref = (struct ref_gca){in->n, s->heads,      s->dim,        s->slot_rows, s->live,   s->blocks,
                               s->k,  s->off_by_one, in->row_begin, in->slot,     in->weight};
    return in;
}

struct outputs {
    float *o, *lse, *dq, *dk, *dv, *dweight;
};

static void gca_backward_run(struct outputs *out, int device, const struct shape *s, const struct inputs *in) {
    struct device *dev = twin_device[device];
    int64_t n = in->n, d = in->d, rows = (int64_t)SLOTS * s->slot_rows, entries = (int64_t)s->blocks * s->k;
    struct guarded q = guarded_make(n, d, in->q), k = guarded_make(rows, d, in->k), v = guarded_make(rows, d, in->v);
    struct guarded dout = guarded_make(n, d, in->dout), o = guarded_make(n, d, NULL), dq = guarded_make(n, d, NULL);
    struct guarded dk = guarded_make(rows, d, in->dk), dv = guarded_make(rows, d, in->dv);
    struct guarded lse = guarded_make(s->heads * s->k, n, NULL), dweight = guarded_make(1, entries, NULL);
    struct gca_pool pool = {k.m, v.m, s->slot_rows, s->live, s->off_by_one};
    struct gca_blocks blocks = {in->row_begin, in->slot, in->weight, s->blocks, s->k};
    struct gca_inverse inverse = {in->begin, in->entry, SLOTS};
    dev->ops->gca->forward_keep(dev, o.m, lse.m, q.m, pool, blocks, s->heads);
    struct gca_gradients to = {dq.m, dk.m, dv.m, dweight.m.data};
    dev->ops->gca->backward(dev, &to, dout.m, q.m, pool, blocks, inverse, lse.m);
    *out = (struct outputs){zero_array(n * d),    zero_array(n * s->k * s->heads),
                            zero_array(n * d),    zero_array(rows * d),
                            zero_array(rows * d), zero_array(entries)};
    guarded_take(out->o, &o);
    guarded_take(out->lse, &lse);
    guarded_take(out->dq, &dq);
    guarded_take(out->dk, &dk);
    guarded_take(out->dv, &dv);
    guarded_take(out->dweight, &dweight);
    guarded_drop(&q), guarded_drop(&k), guarded_drop(&v), guarded_drop(&dout);
}

static void compare_forward(const struct shape *s, struct inputs *in, const struct outputs *twin) {
    int64_t all = in->n * in->d, lses = in->n * s->k * s->heads;
    float *o = zero_array(all), *part = zero_array(all * s->k), *lse = zero_array(lses), *kept = zero_array(lses);
    double *ref = double_array(all), *ref_part = double_array(all * s->k), *ref_lse = double_array(lses);
    ref_gca(ref, ref_part, ref_lse, in->q, in->k, in->v, in->ref);
    naive_gca(o, part, lse, in->q, in->k, in->v, in->ref);
    CHECK_TWIN(twin->o, o, ref, all);
    for (int64_t i = 0; i < lses; i++) { /* row head*K + k, column r -> row k*n + r, column head */
        int64_t row = i / in->n, to = (row % s->k * in->n + i % in->n) * s->heads + row / s->k;
        kept[to] = twin->lse[i];
    }
    CHECK_TWIN(kept, lse, ref_lse, lses);
    free(o), free(part), free(lse), free(kept), free(ref), free(ref_part), free(ref_lse);
}

static void compare(const struct shape *s) {
    struct inputs *in = make(s);
    int64_t all = in->n * in->d, pool = (int64_t)SLOTS * s->slot_rows * in->d, entries = (int64_t)s->blocks * s->k;
    struct outputs twin[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        gca_backward_run(&twin[i], i, s, in);
    compare_forward(s, in, &twin[0]);
    float *dq = zero_array(all), *dk = zero_array(pool), *dv = zero_array(pool), *dw = zero_array(entries);
    double *ref_dq = double_array(all), *ref_dk = double_array(pool), *ref_dv = double_array(pool);
    double *ref_dw = double_array(entries);
    for (int64_t i = 0; i < pool; i++) {
        dk[i] = in->dk[i], dv[i] = in->dv[i];
        ref_dk[i] = (double)in->dk[i], ref_dv[i] = (double)in->dv[i];
    }
    ref_gca_backward(ref_dq, ref_dk, ref_dv, ref_dw, in->dout, in->q, in->k, in->v, in->ref);
    naive_gca_backward(dq, dk, dv, dw, in->dout, in->q, in->k, in->v, in->ref);
    CHECK_GRADIENT(twin[0].dq, dq, ref_dq, all);
    CHECK_GRADIENT(twin[0].dk, dk, ref_dk, pool);
    CHECK_GRADIENT(twin[0].dv, dv, ref_dv, pool);
    CHECK_GRADIENT(twin[0].dweight, dw, ref_dw, entries);
    CHECK_BITS(twin[0].dq, twin[1].dq, all);
    CHECK_BITS(twin[0].dk, twin[1].dk, pool);
    CHECK_BITS(twin[0].dv, twin[1].dv, pool);
    CHECK_BITS(twin[0].dweight, twin[1].dweight, entries);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i].o), free(twin[i].lse), free(twin[i].dq), free(twin[i].dk), free(twin[i].dv), free(twin[i].dweight);
    free(dq), free(dk), free(dv), free(dw), free(ref_dq), free(ref_dk), free(ref_dv), free(ref_dw);
    free(in->q), free(in->k), free(in->v), free(in->dout), free(in->dk), free(in->dv), free(in);
}

/* The oracle itself, against finite differences of the forward oracle: sum of dout * o, along one number at a time. */
static double objective(const struct inputs *in, const struct shape *s) {
    int64_t all = in->n * in->d;
    double *o = double_array(all), *part = double_array(all * s->k), *lse = double_array(in->n * s->k * s->heads),
           sum = 0;
    ref_gca(o, part, lse, in->q, in->k, in->v, in->ref);
    for (int64_t i = 0; i < all; i++)
        sum += o[i] * (double)in->dout[i];
    free(o), free(part), free(lse);
    return sum;
}

static void check_slope(const struct inputs *in, const struct shape *s, float *at, double slope) {
    const float step = 1.0f / 1024;
    float old = *at;
    *at = old + step;
    double high = (double)*at, up = objective(in, s);
    *at = old - step;
    double low = (double)*at, down = objective(in, s);
    *at = old;
    CHECK(fabs((up - down) / (high - low) - slope) <= 1e-4 * (1 + fabs(slope)));
}

static void differences(const struct shape *s) {
    struct inputs *in = make(s);
    int64_t all = in->n * in->d, pool = (int64_t)SLOTS * s->slot_rows * in->d, entries = (int64_t)s->blocks * s->k;
    double *dq = double_array(all), *dk = double_array(pool), *dv = double_array(pool), *dw = double_array(entries);
    ref_gca_backward(dq, dk, dv, dw, in->dout, in->q, in->k, in->v, in->ref);
    for (int64_t i = 0; i < all; i += 3)
        check_slope(in, s, in->q + i, dq[i]);
    for (int64_t i = 0; i < pool; i += 3) {
        check_slope(in, s, in->k + i, dk[i]);
        check_slope(in, s, in->v + i, dv[i]);
    }
    for (int64_t i = 0; i < entries; i++)
        check_slope(in, s, in->weight + i, dw[i]);
    free(dq), free(dk), free(dv), free(dw);
    free(in->q), free(in->k), free(in->v), free(in->dout), free(in->dk), free(in->dv), free(in);
}

/* The lists of entries, from random slots: in order, complete, with empty slots and empty entries. */
static void inverted(int64_t entries, int64_t slots) {
    int32_t *slot = malloc((size_t)entries * sizeof *slot + 1), *begin = malloc((size_t)(slots + 3) * sizeof *begin);
    int32_t *entry = malloc((size_t)(entries + 2) * sizeof *entry), found = 0;
    for (int64_t i = 0; i < entries; i++)
        slot[i] = i % 7 == 3 ? -1 : (int32_t)(slots / 3 + (int64_t)rng_below(&twin_rng, (uint64_t)(slots - slots / 3)));
    begin[0] = begin[slots + 2] = entry[0] = entry[entries + 1] = 77;
    twin_device[1]->ops->gca->invert(twin_device[1], begin + 1, entry + 1, slot, entries, slots);
    CHECK(begin[0] == 77 && begin[slots + 2] == 77 && entry[0] == 77 && entry[entries + 1] == 77);
    CHECK_EQ(begin[1], 0);
    for (int64_t s = 0; s < slots; s++) {
        for (int32_t i = 0; i < entries; i++)
            if (slot[i] == s) CHECK_EQ(entry[1 + found++], i);
        CHECK_EQ(begin[s + 2], found);
    }
    free(slot), free(begin), free(entry);
}

int main(int argc, char **argv) {
    static const struct shape shapes[] = {
        {0, {1}, 1, 0, 1, 1, 64, 63, 64, true, 1},          {5, {64, 64, 20}, 3, 2, 8, 2, 64, 63, 64, true, 1},
        {0, {3, 0, 100}, 3, 0, 3, 2, 18, 64, 64, false, 1}, {1, {40, 9}, 2, 7, 1, 1, 128, 5, 9, false, 1},
        {0, {30}, 1, 0, 2, 2, 16, 150, 150, true, 1},       {0, {64, 2}, 2, 0, 4, 2, 64, 63, 64, true, 8},
        {0, {70}, 1, 0, 4, 1, 8, 5000, 5000, false, 1},     {4, {0}, 0, 0, 2, 1, 8, 3, 3, false, 1},
    };
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        compare(&shapes[i]);
    differences(&(struct shape){1, {3, 2}, 2, 1, 3, 2, 5, 4, 5, true, 1});
    differences(&(struct shape){0, {4}, 1, 0, 2, 1, 6, 3, 3, false, 1});
    inverted(0, 1);
    inverted(1, 1);
    inverted(300, 5);
    inverted(2000, 700);
    return twins_close();
}
