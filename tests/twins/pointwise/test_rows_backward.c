/* test_rows_backward.c -- gradients of the ops that go row by row: norm, rope, SwiGLU, embed. Odd widths, in place
 * where the headers allow it, with and without accumulation. */
#include "tests/ref/ref_backward.h"
#include "tests/twins/twins.h"

static void compare_norm(int64_t n, int64_t d, bool accumulate, bool in_place) {
    const float eps = 1e-5f;
    float *x = random_array(n * d, 1.0f), *w = random_array(d, 1.0f), *dy = random_array(n * d, 1.0f);
    float *dx = zero_array(n * d), *dw = random_array(d, 1.0f), *rstd = zero_array(n), *y = zero_array(n * d);
    float *twin_dx[DEVICES], *twin_dw[DEVICES], *start = in_place ? dy : random_array(n * d, 1.0f);
    double *ref_dx = double_array(n * d), *ref_dw = double_array(d);
    naive_norm(y, rstd, x, w, n, d, eps);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gx = guarded_make(n, d, x), gdy = guarded_make(n, d, dy), gr = guarded_make(n, 1, rstd);
        struct guarded gdx = guarded_make(n, d, start), gdw = guarded_make(1, d, dw);
        twin_device[i]->ops->norm->backward(twin_device[i], in_place ? gdy.m : gdx.m, gdw.m, gdy.m, gx.m,
                                            mat_f32(w, 1, d), gr.m, accumulate);
        twin_dx[i] = zero_array(n * d);
        twin_dw[i] = zero_array(d);
        guarded_take(twin_dx[i], in_place ? &gdy : &gdx);
        guarded_take(twin_dw[i], &gdw);
        guarded_drop(in_place ? &gdx : &gdy), guarded_drop(&gx), guarded_drop(&gr);
    }
    for (int64_t i = 0; i < n * d && accumulate; i++) {
        dx[i] = start[i];
        ref_dx[i] = (double)start[i];
    }
    for (int64_t i = 0; i < d; i++)
        ref_dw[i] = (double)dw[i];
    ref_norm_backward(ref_dx, ref_dw, dy, x, w, n, d, eps);
    naive_norm_backward(dx, dw, dy, x, w, n, d, eps);
    CHECK_GRADIENT(twin_dx[0], dx, ref_dx, n * d);
    CHECK_GRADIENT(twin_dw[0], dw, ref_dw, d);
    CHECK_BITS(twin_dx[0], twin_dx[1], n * d);
    CHECK_BITS(twin_dw[0], twin_dw[1], d);
    if (!in_place) free(start);
    for (int i = 0; i < DEVICES; i++)
        free(twin_dx[i]), free(twin_dw[i]);
    free(x), free(w), free(dy), free(dx), free(dw), free(rstd), free(y), free(ref_dx), free(ref_dw);
}

static void compare_rope(int64_t n, int heads, int dim, int period) {
    int64_t d = (int64_t)heads * dim;
    float *dy = random_array(n * d, 1.0f), *naive = zero_array(n * d), *twin[DEVICES];
    double *ref = double_array(n * d);
    ref_rope_backward(ref, dy, n, heads, dim, period, 10000.0f);
    naive_rope_backward(naive, dy, n, heads, dim, period, 10000.0f);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded g = guarded_make(n, d, dy);
        twin_device[i]->ops->rope->backward(twin_device[i], g.m, heads, period, 10000.0f);
        twin[i] = zero_array(n * d);
        guarded_take(twin[i], &g);
    }
    CHECK_TWIN(twin[0], naive, ref, n * d);
    CHECK_BITS(twin[0], twin[1], n * d);
    free(dy), free(naive), free(ref), free(twin[0]), free(twin[1]);
}

static void compare_swiglu(int64_t n, int64_t d, float scale, bool in_place) {
    float *gate = random_array(n * d, scale), *up = random_array(n * d, 1.0f), *dy = random_array(n * d, 1.0f);
    float *dgate = zero_array(n * d), *dup = zero_array(n * d), *twin[DEVICES][2];
    double *ref_gate = double_array(n * d), *ref_up = double_array(n * d);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded g = guarded_make(n, d, gate), u = guarded_make(n, d, up), gdy = guarded_make(n, d, dy);
        struct guarded dg = guarded_make(n, d, NULL), du = guarded_make(n, d, NULL);
        twin_device[i]->ops->elementwise->swiglu_backward(twin_device[i], in_place ? g.m : dg.m, in_place ? u.m : du.m,
                                                          gdy.m, g.m, u.m);
        twin[i][0] = zero_array(n * d);
        twin[i][1] = zero_array(n * d);
        guarded_take(twin[i][0], in_place ? &g : &dg);
        guarded_take(twin[i][1], in_place ? &u : &du);
        guarded_drop(in_place ? &dg : &g), guarded_drop(in_place ? &du : &u), guarded_drop(&gdy);
    }
    ref_swiglu_backward(ref_gate, ref_up, dy, gate, up, n * d);
    naive_swiglu_backward(dgate, dup, dy, gate, up, n * d);
    CHECK_GRADIENT(twin[0][0], dgate, ref_gate, n * d);
    CHECK_GRADIENT(twin[0][1], dup, ref_up, n * d);
    for (int part = 0; part < 2; part++) {
        CHECK_BITS(twin[0][part], twin[1][part], n * d);
        free(twin[0][part]), free(twin[1][part]);
    }
    free(gate), free(up), free(dy), free(dgate), free(dup), free(ref_gate), free(ref_up);
}

static void compare_embed(int64_t n, int64_t d, int64_t words, int32_t pad_id) {
    float *dx = random_array(n * d, 1.0f), *table = random_array(words * d, 1.0f), *twin[DEVICES];
    double *ref = double_array(words * d);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int64_t r = 0; r < n; r++)
        ids[r] = r % 5 == 1 ? -100 : r % 5 == 3 ? pad_id : (int32_t)rng_below(&twin_rng, (uint64_t)words);
    for (int i = 0; i < DEVICES; i++) {
        struct guarded gx = guarded_make(n, d, dx), t = guarded_make(words, d, table);
        twin_device[i]->ops->embed->backward(twin_device[i], t.m, gx.m, ids, pad_id);
        twin[i] = zero_array(words * d);
        guarded_take(twin[i], &t);
        guarded_drop(&gx);
    }
    for (int64_t i = 0; i < words * d; i++)
        ref[i] = (double)table[i];
    ref_embed_backward(ref, dx, ids, pad_id, n, d);
    naive_embed_backward(table, dx, ids, pad_id, n, d);
    CHECK_TWIN(twin[0], table, ref, words * d);
    CHECK_BITS(twin[0], twin[1], words * d);
    CHECK_BITS(twin[0], table, words * d); /* in the order of rows, as the header says */
    free(dx), free(table), free(ref), free(ids), free(twin[0]), free(twin[1]);
}

int main(int argc, char **argv) {
    static const int64_t widths[] = {1, 15, 64, 65, 200};
    twins_open(argc, argv);
    for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
        for (int kind = 0; kind < 4; kind++) {
            /* The gradient of a row with one column is a difference of equal terms: 600 of them give an estimate of the
             * error. */
            if (widths[i] > 1) compare_norm(1, widths[i], kind & 1, kind & 2);
            compare_norm(600, widths[i], kind & 1, kind & 2);
        }
        for (int in_place = 0; in_place < 2; in_place++) {
            compare_swiglu(3, widths[i], 1.0f, in_place);
            compare_swiglu(400, widths[i], 20.0f, in_place);
        }
        compare_embed(90, widths[i], 7, 2);
    }
    compare_rope(130, 2, 64, 64);
    compare_rope(9, 3, 18, 5);
    compare_rope(300, 1, 128, 300); /* no table */
    return twins_close();
}
