/* test_gca.c -- partial, both combine rules and the fused forward against one reference: empty entries, zero weights,
 * rows outside of all blocks, blocks of any length (also none), large scores with and without the null key. */
#include "tests/twins/twins.h"

struct shape {
    int64_t first;                /* rows before the first block */
    int lengths[4], blocks, rest; /* rows of each block, rows rest the last */
    int k, heads, dim, live, slot_rows;
    bool off_by_one;
    float scale;
};
enum { SLOTS = 7 };

struct inputs {
    int64_t n, d, row_begin[5];
    int32_t slot[64];
    float weight[64], *q, *k, *v;
    struct gca_blocks blocks;
    struct ref_gca ref;
};

static struct inputs *make(const struct shape *s) {
    struct inputs *in = calloc(1, sizeof *in);
    in->row_begin[0] = s->first;
    for (int b = 0; b < s->blocks; b++)
        in->row_begin[b + 1] = in->row_begin[b] + s->lengths[b];
    in->n = in->row_begin[s->blocks] + s->rest;
    in->d = (int64_t)s->heads * s->dim;
    for (int i = 0; i < s->blocks * s->k; i++) {
        in->slot[i] = i % 5 == 4 || (i / s->k == 1 && s->k > 1)
                          ? -1
                          : (int32_t)rng_below(&twin_rng, SLOTS); /* block 1: all empty */
        in->weight[i] = in->slot[i] < 0 || i % 7 == 2 ? 0.0f : rng_uniform(&twin_rng);
    }
    in->q = random_array(in->n * in->d, s->scale);
    in->k = random_array((int64_t)SLOTS * s->slot_rows * in->d, s->scale);
    in->v = random_array((int64_t)SLOTS * s->slot_rows * in->d, 1.0f);
    in->blocks = (struct gca_blocks){in->row_begin, in->slot, in->weight, s->blocks, s->k};
    in->ref = (struct ref_gca){in->n, s->heads,      s->dim,        s->slot_rows, s->live,   s->blocks,
                               s->k,  s->off_by_one, in->row_begin, in->slot,     in->weight};
    return in;
}

struct outputs {
    float *o, *part, *lse, *fused, *cca;
};

static void gca_run(struct outputs *out, int device, const struct shape *s, const struct inputs *in, bool in_place) {
    struct device *dev = twin_device[device];
    const struct gca_ops *gca = dev->ops->gca;
    int64_t n = in->n, d = in->d, parts = n * s->k;
    struct guarded q = guarded_make(n, d, in->q), k = guarded_make((int64_t)SLOTS * s->slot_rows, d, in->k);
    struct guarded v = guarded_make((int64_t)SLOTS * s->slot_rows, d, in->v), part = guarded_make(parts, d, NULL);
    struct guarded lse = guarded_make(parts, s->heads, NULL), o = guarded_make(n, d, NULL),
                   cca = guarded_make(n, d, NULL);
    struct guarded fused = guarded_make(n, d, NULL);
    struct gca_pool pool = {k.m, v.m, s->slot_rows, s->live, s->off_by_one};
    struct gca_blocks by_lse = in->blocks;
    by_lse.weight = NULL;
    gca->partial(dev, part.m, lse.m, q.m, pool, by_lse, s->heads);
    gca->combine(dev, o.m, part.m, lse.m, in->blocks, s->heads);
    gca->combine(dev, cca.m, part.m, lse.m, by_lse, s->heads);
    gca->forward(dev, in_place ? q.m : fused.m, q.m, pool, in->blocks, s->heads);
    *out = (struct outputs){zero_array(n * d), zero_array(parts * d), zero_array(parts * s->heads), zero_array(n * d),
                            zero_array(n * d)};
    guarded_take(out->o, &o);
    guarded_take(out->part, &part);
    guarded_take(out->lse, &lse);
    guarded_take(out->cca, &cca);
    guarded_take(out->fused, in_place ? &q : &fused);
    guarded_drop(in_place ? &fused : &q);
    guarded_drop(&k);
    guarded_drop(&v);
}

static void compare(const struct shape *s) {
    struct inputs *in = make(s);
    int64_t n = in->n, d = in->d, parts = n * s->k;
    float *o = zero_array(n * d), *part = zero_array(parts * d), *lse = zero_array(parts * s->heads);
    double *ref = double_array(n * d), *ref_part = double_array(parts * d), *ref_lse = double_array(parts * s->heads);
    struct outputs twin[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        gca_run(&twin[i], i, s, in, i);
    ref_gca(ref, ref_part, ref_lse, in->q, in->k, in->v, in->ref);
    naive_gca(o, part, lse, in->q, in->k, in->v, in->ref);
    CHECK_ATTENTION(twin[0].part, part, ref_part, parts * d, s->scale);
    CHECK_ATTENTION(twin[0].lse, lse, ref_lse, parts * s->heads, s->scale);
    CHECK_ATTENTION(twin[0].o, o, ref, n * d, s->scale);
    CHECK_ATTENTION(twin[0].fused, o, ref, n * d, s->scale);
    CHECK_BITS(twin[0].fused, twin[1].fused, n * d);
    CHECK_BITS(twin[0].part, twin[1].part, parts * d);
    CHECK_BITS(twin[0].o, twin[1].o, n * d);
    in->ref.weight = NULL;
    ref_gca(ref, ref_part, ref_lse, in->q, in->k, in->v, in->ref);
    naive_gca(o, part, lse, in->q, in->k, in->v, in->ref);
    CHECK_ATTENTION(twin[0].cca, o, ref, n * d, s->scale);
    CHECK_BITS(twin[0].cca, twin[1].cca, n * d);
    for (int i = 0; i < DEVICES; i++)
        free(twin[i].o), free(twin[i].part), free(twin[i].lse), free(twin[i].fused), free(twin[i].cca);
    free(in->q), free(in->k), free(in->v), free(in), free(o), free(part), free(lse), free(ref), free(ref_part),
        free(ref_lse);
}

int main(int argc, char **argv) {
    static const struct shape shapes[] = {
        {.blocks = 1,
         .lengths = {1},
         .k = 1,
         .heads = 1,
         .dim = 64,
         .live = 63,
         .slot_rows = 64,
         .off_by_one = true,
         .scale = 1},
        {.blocks = 1,
         .lengths = {1},
         .k = 8,
         .heads = 3,
         .dim = 32,
         .live = 63,
         .slot_rows = 64,
         .off_by_one = true,
         .scale = 1},
        {.first = 5,
         .blocks = 3,
         .lengths = {64, 64, 20},
         .rest = 2,
         .k = 8,
         .heads = 2,
         .dim = 64,
         .live = 63,
         .slot_rows = 64,
         .off_by_one = true,
         .scale = 1},
        {.blocks = 4,
         .lengths = {3, 0, 17, 100},
         .k = 3,
         .heads = 2,
         .dim = 18,
         .live = 64,
         .slot_rows = 64,
         .scale = 1},
        {.first = 1,
         .blocks = 2,
         .lengths = {40, 9},
         .rest = 7,
         .k = 1,
         .heads = 1,
         .dim = 128,
         .live = 5,
         .slot_rows = 9,
         .scale = 1},
        {.blocks = 1,
         .lengths = {30},
         .k = 2,
         .heads = 2,
         .dim = 16,
         .live = 150,
         .slot_rows = 150,
         .off_by_one = true,
         .scale = 1},
        {.blocks = 2,
         .lengths = {64, 2},
         .k = 4,
         .heads = 2,
         .dim = 64,
         .live = 63,
         .slot_rows = 64,
         .off_by_one = true,
         .scale = 15},
        {.blocks = 2, .lengths = {64, 2}, .k = 4, .heads = 2, .dim = 64, .live = 63, .slot_rows = 64, .scale = 15},
        {.first = 4, .blocks = 0, .k = 2, .heads = 1, .dim = 8, .live = 3, .slot_rows = 3, .scale = 1},
    };
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        compare(&shapes[i]);
    return twins_close();
}
