/* test_ops_on_device.c -- the row-wise ops, products and AdamW on a GPU against the oracles: both storage types, mixed
 * types if a twin supports them, odd sizes, rows with gaps, unaligned starts, outputs that are inputs. */
#include "tests/device/on_device.h"

static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};

static void case_matmul(int64_t n, int64_t out, int64_t in, enum dtype type, enum dtype y_type, int pad, int skew) {
    float *x = normals(n * in, 1.0f, type), *w = normals(out * in, 0.1f, type), *base = normals(n * out, 1.0f, y_type);
    for (int way = 0; way < 3; way++) { /* written to y, added to y, added to another matrix */
        bool accumulate = way > 0;
        float *naive = zeros(n * out, 4), *y[2];
        double *ref = zeros(n * out, 8);
        ref_matmul(ref, x, w, n, out, in, accumulate ? base : NULL);
        naive_matmul(naive, x, w, n, out, in, accumulate ? base : NULL);
        for (int pass = 0; pass < 2; pass++) {
            struct mat my = put(way == 1 ? base : NULL, y_type, n, out, pad, skew);
            struct mat mx = put(x, type, n, in, pad, skew), mw = put(w, type, out, in, pad, 0);
            if (way == 2)
                gpu->ops->matmul->forward_add(gpu, my, put(base, y_type, n, out, 2 * pad, 0), mx, mw);
            else
                gpu->ops->matmul->forward(gpu, my, mx, mw, accumulate);
            y[pass] = take(my);
            drop_all();
        }
        CHECK_ON("matmul.forward", y[0], naive, ref, n * out, y_type);
        CHECK_SAME(y[0], y[1], n * out);
        free(naive), free(ref), free(y[0]), free(y[1]);
    }
    free(x), free(w), free(base);
}

static float *transposed(const float *a, int64_t rows, int64_t cols) {
    float *t = malloc((size_t)(rows * cols + 1) * sizeof *t);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            t[c * rows + r] = a[r * cols + c];
    return t;
}

static void case_matmul_backward(int64_t n, int64_t out, int64_t in, enum dtype type, int pad) {
    float *x = normals(n * in, 1.0f, type), *w = normals(out * in, 0.1f, type), *dy = normals(n * out, 1.0f, type);
    float *base = normals(out * in, 1.0f, DTYPE_F32), *wt = transposed(w, out, in), *dyt = transposed(dy, n, out),
          *xt = transposed(x, n, in);
    float *naive = zeros(n * in, 4), *naive_w = zeros(out * in, 4), *dx[2], *dw[2];
    double *ref = zeros(n * in, 8), *ref_w = zeros(out * in, 8);
    ref_matmul(ref, dy, wt, n, in, out, NULL);
    naive_matmul(naive, dy, wt, n, in, out, NULL);
    ref_matmul(ref_w, dyt, xt, out, in, n, base);
    naive_matmul(naive_w, dyt, xt, out, in, n, base);
    for (int pass = 0; pass < 2; pass++) {
        struct mat mx = put(NULL, type, n, in, pad, 0), mw = put(base, DTYPE_F32, out, in, pad, 0);
        struct mat my = put(dy, type, n, out, pad, 0);
        gpu->ops->matmul->backward_input(gpu, mx, my, put(w, type, out, in, pad, 0), false);
        gpu->ops->matmul->backward_weight(gpu, mw, my, put(x, type, n, in, pad, 0));
        dx[pass] = take(mx);
        dw[pass] = take(mw);
        drop_all();
    }
    CHECK_ON("matmul.backward_input", dx[0], naive, ref, n * in, type);
    CHECK_ON("matmul.backward_weight", dw[0], naive_w, ref_w, out * in, DTYPE_F32);
    CHECK_SAME(dx[0], dx[1], n * in);
    CHECK_SAME(dw[0], dw[1], out * in);
    for (int pass = 0; pass < 2; pass++)
        free(dx[pass]), free(dw[pass]);
    free(x), free(w), free(dy), free(base), free(wt), free(dyt), free(xt), free(naive), free(naive_w), free(ref),
        free(ref_w);
}

/* In a packed product, and in forward_each, the bits of a row do not depend on the other rows. */
static void case_rows_apart(int64_t out, int64_t in, enum dtype type, bool packed) {
    enum { ROWS = 1100 };
    static const int64_t counts[] = {1, 3, 64, 130, 257, 700, ROWS};
    float *x = normals(ROWS * in, 1.0f, type), *w = normals(out * in, 0.1f, type), *whole = NULL;
    float *naive = zeros(ROWS * out, 4);
    double *ref = zeros(ROWS * out, 8);
    ref_matmul(ref, x, w, ROWS, out, in, NULL);
    naive_matmul(naive, x, w, ROWS, out, in, NULL);
    for (int i = (int)ARRAY_LEN(counts) - 1; i >= 0; i--) {
        struct mat my = put(NULL, type, ROWS, out, 0, 0), mx = put(x, type, ROWS, in, 0, 0);
        struct mat mw = put(w, type, out, in, 8, 0);
        float *copy;
        CHECK_OK(device_allocate(gpu, &copy, (size_t)gpu->ops->matmul->packed_elements(out, in)));
        gpu->ops->matmul->pack(gpu, copy, mw);
        for (int64_t first = 0; first < ROWS; first += counts[i]) {
            int64_t n = ROWS - first < counts[i] ? ROWS - first : counts[i];
            struct mat part = mat_rows(my, first, n), from = mat_rows(mx, first, n);
            if (packed)
                gpu->ops->matmul->forward_packed(gpu, part, from, copy, false);
            else
                gpu->ops->matmul->forward_each(gpu, part, from, mw, false);
        }
        float *y = take(my);
        drop_all();
        device_release(gpu, copy);
        if (!whole) {
            CHECK_ON(packed ? "matmul.forward_packed" : "matmul.forward_each", y, naive, ref, ROWS * out, type);
            whole = y;
        } else {
            CHECK_SAME(y, whole, ROWS * out);
            free(y);
        }
    }
    free(x), free(w), free(whole), free(naive), free(ref);
}

static void matmul(void) {
    for (int t = 0; t < 2; t++) {
        case_matmul(1, 64, 64, types[t], types[t], 0, 0);
        case_matmul(5, 33, 17, types[t], types[t], 0, 0);
        case_matmul(5, 33, 17, types[t], types[t], 3, 1);
        case_matmul(300, 768, 256, types[t], types[t], 8, 0);
        case_matmul(129, 1000, 768, types[t], DTYPE_F32, 0, 0);
        case_matmul_backward(1, 40, 24, types[t], 0);
        case_matmul_backward(77, 33, 17, types[t], 3);
        case_matmul_backward(515, 256, 192, types[t], 8);
        for (int packed = 0; packed < 2; packed++)
            case_rows_apart(768, 256, types[t], packed);
        for (int packed = 0; packed < 2; packed++)
            case_rows_apart(2304, 768, types[t], packed);
    }
}

static void case_norm(int64_t n, int64_t d, enum dtype x_type, enum dtype y_type, int pad, int skew, bool accumulate) {
    float eps = 1e-5f;
    float *x = normals(n * d, 0.5f, x_type), *w = normals(d, 1.0f, y_type), *dy = normals(n * d, 1.0f, y_type);
    float *old = normals(n * d, 1.0f, x_type), *old_w = normals(d, 1.0f, DTYPE_F32), *got[2][4];
    float *naive_y = zeros(n * d, 4), *naive_r = zeros(n, 4), *naive_x = zeros(n * d, 4), *naive_w = zeros(d, 4);
    double *ref_y = zeros(n * d, 8), *ref_r = zeros(n, 8), *ref_x = zeros(n * d, 8), *ref_w = zeros(d, 8);
    for (int64_t i = 0; i < n * d && accumulate; i++)
        naive_x[i] = old[i], ref_x[i] = (double)old[i];
    for (int64_t i = 0; i < d; i++)
        naive_w[i] = old_w[i], ref_w[i] = (double)old_w[i];
    ref_norm(ref_y, ref_r, x, w, n, d, eps);
    naive_norm(naive_y, naive_r, x, w, n, d, eps);
    ref_norm_backward(ref_x, ref_w, dy, x, w, n, d, eps);
    naive_norm_backward(naive_x, naive_w, dy, x, w, n, d, eps);
    for (int pass = 0; pass < 2; pass++) {
        struct mat mx = put(x, x_type, n, d, pad, skew), my = put(NULL, y_type, n, d, pad, skew);
        struct mat mr = put(NULL, DTYPE_F32, n, 1, 0, 0), mw = put(w, y_type, 1, d, 0, 0);
        struct mat mdy = put(dy, y_type, n, d, pad, skew), mdw = put(old_w, DTYPE_F32, 1, d, 0, 0);
        struct mat mdx = accumulate || x_type != y_type ? put(accumulate ? old : NULL, x_type, n, d, pad, skew) : mdy;
        gpu->ops->norm->forward(gpu, my, mr, mx, mw, eps);
        got[pass][0] = take(my), got[pass][1] = take(mr);
        gpu->ops->norm->backward(gpu, mdx, mdw, mdy, mx, mw, mr, accumulate);
        got[pass][2] = take(mdx), got[pass][3] = take(mdw);
        if (x_type == y_type) {
            gpu->ops->norm->forward(gpu, mx, (struct mat){.rows = n, .cols = 1}, mx, mw, eps);
            float *in_place = take(mx);
            CHECK_SAME(in_place, got[pass][0], n * d);
            free(in_place);
        }
        drop_all();
    }
    CHECK_ON("norm.forward", got[0][0], naive_y, ref_y, n * d, y_type);
    CHECK_ON("norm.forward rstd", got[0][1], naive_r, ref_r, n, DTYPE_F32);
    CHECK_ON("norm.backward dx", got[0][2], naive_x, ref_x, n * d, x_type);
    CHECK_ON("norm.backward dw", got[0][3], naive_w, ref_w, d, DTYPE_F32);
    for (int i = 0; i < 4; i++) {
        CHECK_SAME(got[0][i], got[1][i], i == 1 ? n : i == 3 ? d : n * d);
        free(got[0][i]), free(got[1][i]);
    }
    free(x), free(w), free(dy), free(old), free(old_w), free(naive_y), free(naive_r), free(naive_x), free(naive_w),
        free(ref_y), free(ref_r), free(ref_x), free(ref_w);
}

static void norm(void) {
    static const int64_t widths[] = {1, 15, 64, 256, 387, 768, 1024, 1000, 2048, 2056};
    for (size_t i = 0; i < ARRAY_LEN(widths); i++)
        for (int t = 0; t < 3; t++) {
            enum dtype x_type = t == 1 ? DTYPE_BF16 : DTYPE_F32, y_type = t ? DTYPE_BF16 : DTYPE_F32;
            case_norm(1, widths[i], x_type, y_type, 0, 0, false);
            case_norm(9, widths[i], x_type, y_type, 3, 1, true);
            if (!on_short) case_norm(300, widths[i], x_type, y_type, 8, 0, i % 2);
        }
    if (!on_short) case_norm(20000, 72, DTYPE_BF16, DTYPE_BF16, 0, 0, false); /* more rows than the grid's warps */
}

static void case_rope(int64_t n, int heads, int dim, int period, enum dtype type, int pad, int skew) {
    int64_t d = (int64_t)heads * dim;
    float *x = normals(n * d, 1.0f, type), *naive = zeros(n * d, 4), *naive_b = zeros(n * d, 4), *got[2][2];
    double *ref = zeros(n * d, 8), *ref_b = zeros(n * d, 8);
    ref_rope(ref, x, n, heads, dim, period, 10000.0f);
    naive_rope(naive, x, n, heads, dim, period, 10000.0f);
    ref_rope_backward(ref_b, x, n, heads, dim, period, 10000.0f);
    naive_rope_backward(naive_b, x, n, heads, dim, period, 10000.0f);
    for (int pass = 0; pass < 2; pass++) {
        struct mat m = put(x, type, n, d, pad, skew), back = put(x, type, n, d, pad, skew);
        gpu->ops->rope->forward(gpu, m, heads, period, 10000.0f);
        gpu->ops->rope->backward(gpu, back, heads, period, 10000.0f);
        got[pass][0] = take(m), got[pass][1] = take(back);
        drop_all();
    }
    CHECK_ON("rope.forward", got[0][0], naive, ref, n * d, type);
    CHECK_ON("rope.backward", got[0][1], naive_b, ref_b, n * d, type);
    for (int i = 0; i < 2; i++) {
        CHECK_SAME(got[0][i], got[1][i], n * d);
        free(got[0][i]), free(got[1][i]);
    }
    free(x), free(naive), free(naive_b), free(ref), free(ref_b);
}

static void rope(void) {
    for (int t = 0; t < 2; t++) {
        case_rope(128, 12, 64, 64, types[t], 8, 0);
        case_rope(9, 3, 10, 7, types[t], 0, 0);
        case_rope(70, 2, 64, 64, types[t], 0, 1);
        case_rope(2100, 1, 32, 2000, types[t], 0, 0); /* too large for the table */
    }
}

static void case_elementwise(int64_t n, int64_t d, enum dtype type, enum dtype b_type, int pad, int skew) {
    int64_t all = n * d;
    float *a = normals(all, 2.0f, type), *b = normals(all, 1.0f, b_type), *dy = normals(all, 1.0f, type);
    float *naive[4], *got[2][4];
    double *ref[4];
    for (int i = 0; i < 4; i++)
        naive[i] = zeros(all, 4), ref[i] = zeros(all, 8);
    ref_add(ref[0], a, b, all), naive_add(naive[0], a, b, all);
    ref_swiglu(ref[1], a, b, all), naive_swiglu(naive[1], a, b, all);
    ref_swiglu_backward(ref[2], ref[3], dy, a, b, all), naive_swiglu_backward(naive[2], naive[3], dy, a, b, all);
    bool gated = type == b_type;
    for (int pass = 0; pass < 2; pass++) {
        struct mat ma = put(a, type, n, d, pad, skew), mb = put(b, b_type, n, d, pad, skew), my[4];
        for (int i = 0; i < 4; i++)
            my[i] = put(NULL, type, n, d, pad, skew);
        gpu->ops->elementwise->add(gpu, my[0], ma, mb);
        got[pass][0] = take(my[0]);
        if (gated) {
            struct mat mdy = put(dy, type, n, d, pad, skew);
            gpu->ops->elementwise->swiglu(gpu, my[1], ma, mb);
            gpu->ops->elementwise->swiglu_backward(gpu, my[2], my[3], mdy, ma, mb);
            gpu->ops->elementwise->swiglu_backward(gpu, ma, mb, mdy, ma, mb);
            for (int i = 1; i < 4; i++)
                got[pass][i] = take(my[i]);
            float *in_place[2] = {take(ma), take(mb)};
            for (int i = 0; i < 2; i++) {
                CHECK_SAME(in_place[i], got[pass][2 + i], all);
                free(in_place[i]);
            }
        }
        drop_all();
    }
    for (int i = 0; i < (gated ? 4 : 1); i++) {
        CHECK_ON(i ? "elementwise.swiglu" : "elementwise.add", got[0][i], naive[i], ref[i], all, type);
        CHECK_SAME(got[0][i], got[1][i], all);
        free(got[0][i]), free(got[1][i]);
    }
    for (int i = 0; i < 4; i++)
        free(naive[i]), free(ref[i]);
    free(a), free(b), free(dy);
}

/* All slots but one are filled, in mixed order; the remaining one does not change. */
static void case_place(int64_t chunks, int positions, int slot_rows, int live, int64_t d, enum dtype type, int pad) {
    int64_t rows = (chunks + 1) * slot_rows;
    float *x = normals(chunks * positions * d, 1.0f, type), *pool = normals(rows * d, 1.0f, type),
          *want = zeros(rows * d, 4);
    int32_t *slot = zeros(chunks, 4);
    memcpy(want, pool, (size_t)(rows * d) * sizeof *want);
    for (int64_t c = 0; c < chunks; c++) {
        slot[c] = (int32_t)((c * 3 + 1) % (chunks + 1));
        for (int64_t i = 0; i < slot_rows * d; i++)
            want[slot[c] * slot_rows * d + i] = i < live * d ? x[c * positions * d + i] : 0.0f;
    }
    struct mat mp = put(pool, type, rows, d, pad, 0), mx = put(x, type, chunks * positions, d, pad, 0);
    struct elementwise_slots slots = {put_bytes(slot, (size_t)chunks * sizeof *slot), chunks, positions, slot_rows,
                                      live};
    gpu->ops->elementwise->write_slots(gpu, mp, mx, slots);
    float *got = take(mp);
    CHECK_SAME(got, want, rows * d);
    drop_all();
    free(x), free(pool), free(want), free(slot), free(got);
}

static void elementwise(void) {
    for (int t = 0; t < 2; t++) {
        case_place(1, 64, 64, 63, 768, types[t], 0);
        case_place(9, 65, 64, 64, 256, types[t], 8);
        case_place(4, 5, 7, 3, 33, types[t], 1);
    }
    for (int t = 0; t < 3; t++) {
        enum dtype type = t == 1 ? DTYPE_BF16 : DTYPE_F32, b_type = t ? DTYPE_BF16 : DTYPE_F32;
        case_elementwise(1, 1, type, b_type, 0, 0);
        case_elementwise(37, 2048, type, b_type, 2048, 0);
        case_elementwise(37, 2047, type, b_type, 1, 0);
        case_elementwise(300, 64, type, b_type, 8, 1);
    }
}

static void case_embed(int64_t n, int64_t words, int64_t d, enum dtype x_type, enum dtype table_type, int skew) {
    float *table = normals(words * d, 1.0f, table_type), *dx = normals(n * d, 1.0f, x_type), *got[2][2];
    float *base = normals(words * d, 1.0f, DTYPE_F32), *naive = zeros(words * d, 4), *wanted = zeros(n * d, 4);
    double *ref = zeros(words * d, 8);
    int32_t *ids = zeros(n, 4), pad = 3;
    for (int64_t r = 0; r < n; r++) /* a third is one id, some are negative, some the pad id */
        ids[r] = r % 3 == 0 ? 7 : r % 11 == 0 ? -100 : r % 13 == 0 ? pad : (int32_t)rng_below(&on_rng, (uint64_t)words);
    for (int64_t i = 0; i < words * d; i++)
        naive[i] = base[i], ref[i] = (double)base[i];
    for (int64_t i = 0; i < n * d; i++)
        wanted[i] = table[(ids[i / d] < 0 ? pad : ids[i / d]) * d + i % d];
    ref_embed_backward(ref, dx, ids, pad, n, d);
    naive_embed_backward(naive, dx, ids, pad, n, d);
    for (int pass = 0; pass < 2; pass++) {
        struct mat mx = put(NULL, x_type, n, d, 8, skew), mt = put(base, DTYPE_F32, words, d, 0, 0);
        int32_t *ids_device = put_bytes(ids, (size_t)n * sizeof *ids);
        gpu->ops->embed->forward(gpu, mx, put(table, table_type, words, d, 0, skew), ids_device, pad);
        gpu->ops->embed->backward(gpu, mt, put(dx, x_type, n, d, 8, skew), ids_device, pad);
        got[pass][0] = take(mx), got[pass][1] = take(mt);
        drop_all();
    }
    CHECK_SAME(got[0][0], wanted, n * d);
    CHECK_SAME(got[0][0], got[1][0], n * d);
    CHECK_ON("embed.backward", got[0][1], naive, ref, words * d, DTYPE_F32);
    CHECK_SAME(got[0][1], got[1][1], words * d);
    for (int i = 0; i < 2; i++)
        free(got[0][i]), free(got[1][i]);
    free(table), free(dx), free(base), free(naive), free(wanted), free(ref), free(ids);
}

static void embed(void) {
    for (int t = 0; t < 3; t++) {
        enum dtype x_type = t == 1 ? DTYPE_BF16 : DTYPE_F32, table_type = t ? DTYPE_BF16 : DTYPE_F32;
        case_embed(1, 8, 8, x_type, table_type, 0);
        case_embed(3000, 1000, 96, x_type, table_type, 0);
        case_embed(777, 50, 300, x_type, table_type, 1);
        case_embed(2500, 9, 520, x_type, table_type, 0);  /* ids of many rows each */
        case_embed(2600, 70, 264, x_type, table_type, 0); /* some of 32 rows, some of more */
        case_embed(5000, 65536, 33, x_type, table_type, 0);
    }
}

static void case_adamw(int64_t n, bool copy, float clip, int64_t step, int skew) {
    float *start[3] = {normals(n, 1.0f, DTYPE_F32), normals(n, 0.1f, DTYPE_F32), normals(n, 0.1f, DTYPE_F32)};
    float *g = normals(n, 0.5f, DTYPE_F32), *naive[3], *got[2][5];
    double *ref[3], squares = ref_squares(g, n);
    float naive_sum = naive_squares(g, n);
    struct ref_adamw s = {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, clip, step};
    struct adamw_step how = {s.lr, s.beta1, s.beta2, s.eps, s.decay, step};
    for (int64_t i = 0; i < n; i++)
        start[2][i] *= start[2][i];
    for (int i = 0; i < 3; i++) {
        naive[i] = zeros(n, 4), ref[i] = zeros(n, 8);
        for (int64_t j = 0; j < n; j++)
            naive[i][j] = start[i][j], ref[i][j] = (double)start[i][j];
    }
    ref_adamw(ref[0], ref[1], ref[2], g, n, s);
    naive_adamw(naive[0], naive[1], naive[2], g, n, s);
    for (int pass = 0; pass < 2; pass++) {
        struct mat m[3], sum = put(NULL, DTYPE_F32, 1, 1, 0, 0), mg = put(g, DTYPE_F32, 1, n, 0, skew);
        struct mat mc = copy ? put(NULL, DTYPE_BF16, 1, n, 0, 0) : (struct mat){0};
        for (int i = 0; i < 3; i++)
            m[i] = put(start[i], DTYPE_F32, 1, n, 0, skew);
        gpu->ops->adamw->norm(gpu, sum.data, mg.data, n);
        struct adamw_state state = {m[0].data, m[1].data, m[2].data, mc};
        gpu->ops->adamw->update(gpu, state, mg.data, n, sum.data, clip, how);
        for (int i = 0; i < 3; i++)
            got[pass][i] = take(m[i]);
        got[pass][3] = take(sum);
        got[pass][4] = copy ? take(mc) : NULL;
        for (int64_t i = 0; i < n && copy; i++)
            CHECK(got[pass][4][i] == store_bf16(got[pass][0][i]));
        drop_all();
    }
    CHECK_ON("adamw.norm", got[0][3], &naive_sum, &squares, 1, DTYPE_F32);
    for (int i = 0; i < 3; i++)
        CHECK_ON("adamw.update", got[0][i], naive[i], ref[i], n, DTYPE_F32);
    for (int i = 0; i < 4; i++)
        CHECK_SAME(got[0][i], got[1][i], i < 3 ? n : 1);
    for (int i = 0; i < 3; i++)
        free(start[i]), free(naive[i]), free(ref[i]);
    for (int i = 0; i < 5; i++)
        free(got[0][i]), free(got[1][i]);
    free(g);
}

static void adamw(void) {
    case_adamw(1, true, 1.0f, 1, 0);
    case_adamw(1003, true, 1.0f, 1, 0);
    case_adamw(100000, true, 0.0f, 7, 0);
    case_adamw(4099, false, 2.0f, 1000, 0);
    case_adamw(4099, true, 2.0f, 1000, 1);
}

/* Memory is zeroed, copies arrive, the first fault is kept with its op. */
static void runtime(void) {
    unsigned char in[1000], out[1000];
    unsigned char *a, *b;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7);
    CHECK_OK(device_allocate(gpu, &a, ARRAY_LEN(in)));
    CHECK_OK(device_allocate(gpu, &b, ARRAY_LEN(in)));
    device_download(gpu, out, a, sizeof out);
    for (size_t i = 0; i < sizeof out; i++)
        CHECK_EQ(out[i], 0);
    device_upload(gpu, a, in, sizeof in);
    device_copy(gpu, b, a, sizeof in);
    device_clear(gpu, a, 500);
    device_download(gpu, out, b, sizeof out);
    CHECK(memcmp(in, out, sizeof in) == 0);
    device_download(gpu, out, a, sizeof out);
    CHECK(out[499] == 0 && out[500] == in[500]);
    device_release(gpu, a);
    device_release(gpu, b);
    CHECK(device_worker(gpu, 1) == gpu);
    CHECK_FAILS(device_allocate(gpu, &a, ((size_t)1 << 50) / sizeof *a), STATUS_NO_MEMORY, "GiB");
    CHECK_OK(device_sync(gpu));
    struct device *broken;
    CHECK_OK(device_open(&broken, "cuda", 1));
    device_release(broken, (void *)16); /* an invalid address, which does no harm */
    device_release(broken, (void *)32);
    CHECK_FAILS(device_sync(broken), STATUS_IO, "GPU: release");
    device_close(broken);
}

static void case_convert(int64_t n, int64_t cols, enum dtype x_type, enum dtype y_type, int pad, int skew) {
    float *x = normals(n * cols, 1.0f, x_type), *y;
    struct mat my = put(NULL, y_type, n, cols, pad, skew);
    gpu->ops->elementwise->convert(gpu, my, put(x, x_type, n, cols, pad, skew));
    y = take(my);
    drop_all();
    for (int64_t i = 0; i < n * cols; i++)
        CHECK(y[i] == as_type(x[i], y_type));
    free(x), free(y);
}

static void case_invert(int64_t positions, int64_t slots) {
    int32_t *slot = zeros(positions, 4), *begin = zeros(slots + 1, 4), *position = zeros(positions, 4), found = 0;
    for (int64_t i = 0; i < positions; i++)
        slot[i] = i % 7 == 3 ? -1 : (int32_t)(slots / 3 + (int64_t)rng_below(&on_rng, (uint64_t)(slots - slots / 3)));
    int32_t *there_begin = put_bytes(begin, (size_t)(slots + 1) * 4),
            *there_position = put_bytes(position, (size_t)positions * 4 + 4);
    gpu->ops->gca->invert(gpu, there_begin, there_position, put_bytes(slot, (size_t)positions * 4 + 4), positions,
                          slots);
    device_download(gpu, begin, there_begin, (size_t)(slots + 1) * 4);
    device_download(gpu, position, there_position, (size_t)positions * 4);
    CHECK_OK(device_sync(gpu));
    drop_all();
    int32_t *next = zeros(slots + 1, 4); /* the expected next position of a slot */
    for (int64_t i = 0; i < positions; i++)
        if (slot[i] >= 0) next[slot[i] + 1]++;
    for (int64_t s = 0; s <= slots; s++) {
        next[s] += s ? next[s - 1] : 0;
        CHECK_EQ(begin[s], next[s]);
    }
    for (int32_t i = 0; i < positions; i++)
        if (slot[i] >= 0) {
            CHECK_EQ(position[next[slot[i]]++], i);
            found++;
        }
    CHECK_EQ(found, begin[slots]);
    free(slot), free(begin), free(position), free(next);
}

static void convert_invert(void) {
    for (int x = 0; x < 2; x++)
        for (int y = 0; y < 2; y++) {
            case_convert(1, 1, types[x], types[y], 0, 0);
            case_convert(300, 768, types[x], types[y], 8, 0);
            case_convert(77, 33, types[x], types[y], 3, 1);
        }
    case_convert(300, 768, DTYPE_F32, DTYPE_F16, 8, 0);
    case_convert(77, 33, DTYPE_F32, DTYPE_F16, 3, 1);
    case_invert(0, 1);
    case_invert(1, 1);
    case_invert(300, 5);
    case_invert(8320, 1040);
    case_invert(66560, 20000);
}

/* The ops of BERT-type encoders: LayerNorm over its input and with a summand before it, GELU, bias, means. */
static void case_bert(int64_t n, int64_t d, enum dtype type, int pad, int skew) {
    enum { NORM, GELU, BIAS, MEAN, OPS };
    const int64_t begin[4] = {0, 1, 1 + n / 2, n}, m = 3;
    float *x = normals(n * d, 2.0f, type), *add = normals(n * d, 1.0f, type), *bias = normals(d, 1.0f, type);
    float *w = normals(d, 1.0f, type), *b = normals(d, 1.0f, type), *naive[OPS], *got[2][OPS];
    const struct ref_rows shape = {n, d, 1e-12f};
    double *ref[OPS];
    for (int i = 0; i < OPS; i++)
        naive[i] = zeros(n * d, 4), ref[i] = zeros(n * d, 8);
    ref_layer_norm(ref[NORM], x, add, bias, w, b, shape), naive_layer_norm(naive[NORM], x, add, bias, w, b, shape);
    ref_gelu(ref[GELU], x, bias, n, d), naive_gelu(naive[GELU], x, bias, n, d);
    ref_mean(ref[MEAN], x, begin, m, d, true), naive_mean(naive[MEAN], x, begin, m, d, true);
    for (int64_t i = 0; i < n * d; i++)
        ref[BIAS][i] = (double)x[i] + (double)bias[i % d], naive[BIAS][i] = x[i] + bias[i % d];
    for (int pass = 0; pass < 2; pass++) {
        struct mat mx = put(x, type, n, d, pad, skew), ma = put(add, type, n, d, pad, skew),
                   mb = put(bias, type, 1, d, 0, skew), my[OPS];
        const struct bert_norm norm = {put(w, type, 1, d, 0, skew), put(b, type, 1, d, 0, skew), 1e-12f};
        my[GELU] = put(NULL, type, n, d, pad, skew), my[BIAS] = put(NULL, type, n, d, pad, skew);
        my[MEAN] = put(NULL, DTYPE_F32, m, d, pad, skew), my[NORM] = ma;
        gpu->ops->bert->gelu(gpu, my[GELU], mx, mb);
        gpu->ops->bert->add_bias(gpu, my[BIAS], mx, mb);
        gpu->ops->bert->mean(gpu, my[MEAN], mx, put_bytes(begin, sizeof begin), true);
        gpu->ops->bert->layer_norm(gpu, ma, mx, ma, mb, norm); /* over the residual */
        for (int i = 0; i < OPS; i++)
            got[pass][i] = take(my[i]);
        drop_all();
    }
    static const char *const names[OPS] = {"bert.layer_norm", "bert.gelu", "bert.add_bias", "bert.mean"};
    for (int i = 0; i < OPS; i++) {
        int64_t count = (i == MEAN ? m : n) * d;
        CHECK_ON(names[i], got[0][i], naive[i], ref[i], count, i == MEAN ? DTYPE_F32 : type);
        CHECK_SAME(got[0][i], got[1][i], count);
        free(naive[i]), free(ref[i]), free(got[0][i]), free(got[1][i]);
    }
    free(x), free(add), free(bias), free(w), free(b);
}

static void bert(void) {
    static const int64_t widths[] = {1, 33, 384, 768, 3072};
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
            case_bert(4, widths[i], types[t], 0, 0);
            if (!on_short) case_bert(300, widths[i], types[t], 3, 1);
        }
}

/* The loops of state_gate.h; ref: y, dc, dz, db. */
static void gate_loops(double *ref[4], float *naive[4], const float *const in[5], int64_t n, int64_t d) {
    const float *c = in[0], *z = in[1], *b = in[2], *dy = in[3], *db = in[4];
    for (int64_t i = 0; i < n * d; i++) {
        double g = 1.0 / (1.0 + exp(-(double)b[i % d]));
        float f = 1.0f / (1.0f + expf(-b[i % d]));
        ref[0][i] = g * (double)c[i] + (1.0 - g) * (double)z[i], naive[0][i] = f * c[i] + (1.0f - f) * z[i];
        ref[1][i] = g * (double)dy[i], naive[1][i] = f * dy[i];
        ref[2][i] = (1.0 - g) * (double)dy[i], naive[2][i] = (1.0f - f) * dy[i];
        if (i < d) ref[3][i] = (double)db[i], naive[3][i] = db[i];
        ref[3][i % d] += (double)dy[i] * ((double)c[i] - (double)z[i]) * g * (1.0 - g);
        naive[3][i % d] += dy[i] * (c[i] - z[i]) * f * (1.0f - f);
    }
}

/* The state is float32; type: of z and b. y is written over c, dc over dy. */
static void case_gate(int64_t n, int64_t d, enum dtype type, int pad, int skew) {
    static const char *const names[4] = {"state_gate.forward", "state_gate.backward dc", "state_gate.backward dz",
                                         "state_gate.backward db"};
    const float *in[5] = {normals(n * d, 1.0f, DTYPE_F32), normals(n * d, 1.0f, type), normals(d, 2.0f, type),
                          normals(n * d, 1.0f, DTYPE_F32), normals(d, 1.0f, DTYPE_F32)};
    float *naive[4], *got[2][4];
    double *ref[4];
    for (int i = 0; i < 4; i++)
        naive[i] = zeros(n * d, 4), ref[i] = zeros(n * d, 8);
    gate_loops(ref, naive, in, n, d);
    for (int pass = 0; pass < 2; pass++) {
        struct mat c = put(in[0], DTYPE_F32, n, d, pad, skew), z = put(in[1], type, n, d, pad, skew);
        struct mat b = put(in[2], type, 1, d, 0, skew), dy = put(in[3], DTYPE_F32, n, d, pad, 0);
        struct state_gate_gradients to = {dy, put(NULL, type, n, d, pad, skew), put(in[4], DTYPE_F32, 1, d, 0, skew)};
        gpu->ops->state_gate->backward(gpu, &to, dy, c, z, b);
        gpu->ops->state_gate->forward(gpu, c, c, z, b);
        const struct mat out[4] = {c, to.dc, to.dz, to.db};
        for (int i = 0; i < 4; i++)
            got[pass][i] = take(out[i]);
        drop_all();
    }
    for (int i = 0; i < 4; i++) {
        int64_t count = i == 3 ? d : n * d;
        CHECK_ON(names[i], got[0][i], naive[i], ref[i], count, i == 2 ? type : DTYPE_F32);
        CHECK_SAME(got[0][i], got[1][i], count);
        free(naive[i]), free(ref[i]), free(got[0][i]), free(got[1][i]);
    }
    for (int i = 0; i < 5; i++)
        free((void *)in[i]);
}

static void gate(void) {
    for (int t = 0; t < 2; t++) {
        case_gate(1, 1, types[t], 0, 0);
        case_gate(300, 33, types[t], 3, 1);
        if (!on_short) case_gate(4100, 768, types[t], 0, 0);
    }
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    runtime();
    elementwise();
    convert_invert();
    norm();
    rope();
    embed();
    adamw();
    bert();
    gate();
    matmul();
    return on_device_close();
}
