/* test_decode_rows_on_device.c -- the kernels of a pass over rows of different texts (kernels/decode_rows) on a GPU,
 * against double precision: windows of rings that wrapped or not, chunks of different pools, products with what comes
 * before and after them. A row has the same bits alone, among others and in another order; nothing but its key and
 * value is written into its ring; rows without a text write nothing. */
#include "kernels/decode_rows/decode_rows_internal.h"
#include "tests/device/on_device.h"

enum { LAYERS = 2 };

/* The first n rows of an output to rows order[..] of o; rows without a text are as they were. */
static void take_rows(float *o, struct mat out, const int *order, int n) {
    float *got = take(out);
    for (int i = 0; i < n; i++)
        memcpy(o + order[i] * out.cols, got + i * out.cols, (size_t)out.cols * sizeof *o);
    for (int64_t i = n * out.cols; i < out.rows * out.cols; i++)
        CHECK(isnan(got[i]));
    free(got);
}

static int rows_of_class(int n) {
    int rows = 8;
    while (rows < n)
        rows *= 2;
    return rows;
}
static void put_texts(struct decode_row **texts_device, const struct decode_row *texts, int n, int rows) {
    struct decode_row *all = zeros(rows, sizeof *all);
    for (int i = 0; i < rows; i++)
        if (i < n)
            all[i] = texts[i];
        else
            all[i].position = -1;
    *texts_device = put_bytes(all, (size_t)rows * sizeof *all);
    free(all);
}

/* ---- windows ---- */

struct window_case {
    int n, heads, dim, window, ring;
};

/* Positions at the ends of windows and rings, and others. */
static int64_t position_of(const struct window_case *c, int i) {
    const int64_t all[] = {0,           1,       c->window - 1,           c->window, c->window + 1,
                           c->ring - 1, c->ring, 3 * (int64_t)c->ring + 5};
    if (i < (int)ARRAY_LEN(all)) return all[i] < 0 ? 0 : all[i];
    return (int64_t)rng_below(&on_rng, (uint64_t)(5 * c->ring));
}

struct window_data {
    int64_t d, each; /* numbers of a row; of a text's rings */
    int64_t *position;
    float *rings, *q; /* [n * LAYERS * ring, 2 d], [n, 3 d] */
};

/* Rows order[0 .. n - 1] in one call, at layer 1; o [n, d] by row of the data, and the rings afterwards. */
static void run_window(float *o, float **rings, const struct window_case *c, const struct window_data *w,
                       const int *order, int n) {
    const int rows = rows_of_class(n);
    struct decode_row texts[DECODE_ROWS_MAX] = {0}, *texts_device;
    struct mat ring = put_plain(w->rings, DTYPE_BF16, (int64_t)c->n * LAYERS * c->ring, 2 * w->d);
    float *q = zeros((int64_t)rows * 3 * w->d, sizeof *q);
    for (int i = 0; i < n; i++) {
        texts[i].position = w->position[order[i]];
        texts[i].ring = (unsigned char *)ring.data + order[i] * w->each * 2;
        texts[i].ring_step = (int64_t)c->ring * 2 * w->d * 2;
        texts[i].ring_rows = c->ring;
        memcpy(q + i * 3 * w->d, w->q + order[i] * 3 * w->d, (size_t)(3 * w->d) * sizeof *q);
    }
    put_texts(&texts_device, texts, n, rows);
    struct mat out = put_plain(NULL, DTYPE_BF16, rows, w->d);
    const struct decode_rows_attention call = {.o = out.data,
                                               .q = put_plain(q, DTYPE_F32, rows, 3 * w->d).data,
                                               .texts = texts_device,
                                               .rows = rows,
                                               .d = (int)w->d,
                                               .heads = c->heads,
                                               .window = c->window,
                                               .layer = 1};
    decode_rows_run_window(gpu, &call);
    take_rows(o, out, order, n);
    *rings = take(ring);
    drop_all();
    free(q);
}

/* The ring of a text at layer 1 as it must be after the pass; its window in order. */
static void expect_window(double *ref, float *naive, float *rings, const struct window_case *c,
                          const struct window_data *w, int row) {
    const int64_t d = w->d, p = w->position[row];
    const int64_t keys = (p < c->window ? p : c->window) + 1;
    float *ring = rings + row * w->each + (int64_t)c->ring * 2 * d, *own = ring + p % c->ring * 2 * d;
    const float *q = w->q + row * 3 * d;
    float *k = zeros(keys * d, sizeof *k), *v = zeros(keys * d, sizeof *v);
    for (int64_t i = 0; i < 2 * d; i++)
        own[i] = store_bf16(q[d + i]);
    for (int64_t i = 0; i < keys; i++) {
        const float *from = ring + (p - keys + 1 + i) % c->ring * 2 * d;
        memcpy(k + i * d, from, (size_t)d * sizeof *k);
        memcpy(v + i * d, from + d, (size_t)d * sizeof *v);
    }
    const struct ref_attention s = {1, keys - 1, c->heads, c->dim, c->window};
    ref_attention(ref + row * d, q, k, v, s);
    naive_attention(naive + row * d, q, k, v, s);
    free(k), free(v);
}

static void case_window(struct window_case c) {
    struct window_data w = {.d = (int64_t)c.heads * c.dim};
    int order[DECODE_ROWS_MAX] = {0}, back[DECODE_ROWS_MAX] = {0};
    w.each = (int64_t)LAYERS * c.ring * 2 * w.d;
    w.position = zeros(c.n, sizeof *w.position);
    w.rings = normals(c.n * w.each, 1.0f, DTYPE_BF16);
    w.q = normals((int64_t)c.n * 3 * w.d, 1.0f, DTYPE_F32);
    for (int i = 0; i < c.n; i++)
        order[i] = i, back[i] = c.n - 1 - i, w.position[i] = position_of(&c, i);
    const int64_t all = c.n * w.d;
    float *o = zeros(all, 4), *again = zeros(all, 4), *alone = zeros(all, 4), *naive = zeros(all, 4), *rings, *more;
    double *ref = zeros(all, 8);
    run_window(o, &rings, &c, &w, order, c.n);
    run_window(again, &more, &c, &w, back, c.n);
    CHECK_SAME(o, again, all);
    CHECK_SAME(rings, more, c.n * w.each);
    free(more);
    for (int i = 0; i < c.n; i += 5) {
        run_window(alone, &more, &c, &w, &i, 1);
        CHECK_SAME(o + i * w.d, alone + i * w.d, w.d);
        free(more);
    }
    for (int i = 0; i < c.n; i++)
        expect_window(ref, naive, w.rings, &c, &w, i);
    CHECK_SAME(rings, w.rings, c.n * w.each);
    CHECK_ON("window", o, naive, ref, all, DTYPE_BF16);
    free(w.position), free(w.rings), free(w.q), free(o), free(again), free(alone), free(naive), free(ref), free(rings);
}

/* ---- chunks ---- */

struct chunks_case {
    int n, heads, dim, slots, slot_rows, live;
    bool off_by_one;
};
enum { GROUP = 2, ENTRIES = 20 };
static const int some_k[] = {8, 0, 1, 3, 20, 16, 7};

struct chunks_data {
    int64_t d, each;          /* numbers of a pool */
    float *keys, *values, *q; /* [n * slots * slot_rows, d], the same, [n, d] */
    int32_t slot[DECODE_ROWS_MAX * ENTRIES];
    float weight[DECODE_ROWS_MAX * ENTRIES];
};

static void run_chunks(float *o, const struct chunks_case *c, const struct chunks_data *w, const int *order, int n) {
    const int rows = rows_of_class(n);
    struct decode_row texts[DECODE_ROWS_MAX] = {0}, *texts_device;
    struct mat keys = put_plain(w->keys, DTYPE_BF16, (int64_t)c->n * c->slots * c->slot_rows, w->d),
               values = put_plain(w->values, DTYPE_BF16, keys.rows, w->d);
    const int32_t *slot = put_bytes(w->slot, sizeof w->slot);
    const float *weight = put_bytes(w->weight, sizeof w->weight);
    float *q = zeros(rows * w->d, sizeof *q);
    for (int i = 0; i < n; i++) {
        texts[i].position = 100 + i;
        texts[i].chunks[GROUP] = (struct decode_row_chunks){.keys = (uint16_t *)keys.data + order[i] * w->each,
                                                            .values = (uint16_t *)values.data + order[i] * w->each,
                                                            .slot = slot + order[i] * ENTRIES,
                                                            .weight = weight + order[i] * ENTRIES,
                                                            .stride = w->d,
                                                            .k = some_k[order[i] % (int)ARRAY_LEN(some_k)],
                                                            .slot_rows = c->slot_rows,
                                                            .live_rows = c->live,
                                                            .off_by_one = c->off_by_one};
        memcpy(q + i * w->d, w->q + order[i] * w->d, (size_t)w->d * sizeof *q);
    }
    put_texts(&texts_device, texts, n, rows);
    struct mat out = put_plain(NULL, DTYPE_BF16, rows, w->d);
    const struct decode_rows_attention call = {.o = out.data,
                                               .q = put_plain(q, DTYPE_F32, rows, w->d).data,
                                               .texts = texts_device,
                                               .rows = rows,
                                               .d = (int)w->d,
                                               .heads = c->heads,
                                               .group = GROUP};
    decode_rows_run_chunks(gpu, &call);
    take_rows(o, out, order, n);
    drop_all();
    free(q);
}

static void expect_chunks(double *ref, float *naive, const struct chunks_case *c, const struct chunks_data *w,
                          int row) {
    const int k = some_k[row % (int)ARRAY_LEN(some_k)];
    const int64_t begin[2] = {0, 1};
    const struct ref_gca s = {.n = 1,
                              .heads = c->heads,
                              .dim = c->dim,
                              .slot_rows = c->slot_rows,
                              .live_rows = c->live,
                              .blocks = 1,
                              .k = k,
                              .off_by_one = c->off_by_one,
                              .row_begin = begin,
                              .slot = w->slot + row * ENTRIES,
                              .weight = w->weight + row * ENTRIES};
    const float *q = w->q + row * w->d, *keys = w->keys + row * w->each, *values = w->values + row * w->each;
    double *part = zeros(k * w->d, 8), *lse = zeros(k * c->heads, 8);
    float *naive_part = zeros(k * w->d, 4), *naive_lse = zeros(k * c->heads, 4);
    ref_gca(ref + row * w->d, part, lse, q, keys, values, s);
    naive_gca(naive + row * w->d, naive_part, naive_lse, q, keys, values, s);
    free(part), free(lse), free(naive_part), free(naive_lse);
}

static void case_chunks(struct chunks_case c) {
    struct chunks_data *w = zeros(1, sizeof *w);
    int order[DECODE_ROWS_MAX] = {0}, back[DECODE_ROWS_MAX] = {0};
    w->d = (int64_t)c.heads * c.dim, w->each = (int64_t)c.slots * c.slot_rows * w->d;
    w->keys = normals(c.n * w->each, 1.0f, DTYPE_BF16), w->values = normals(c.n * w->each, 1.0f, DTYPE_BF16);
    w->q = normals(c.n * w->d, 1.0f, DTYPE_F32);
    for (int i = 0; i < c.n; i++)
        order[i] = i, back[i] = c.n - 1 - i;
    for (int i = 0; i < c.n * ENTRIES; i++) {
        w->slot[i] = i % 11 == 4 ? -1 : (int32_t)rng_below(&on_rng, (uint64_t)c.slots);
        w->weight[i] = i % 11 == 4 || i % 13 == 2 ? 0.0f : 0.05f + 0.01f * (float)rng_below(&on_rng, 50);
    }
    const int64_t all = c.n * w->d;
    float *o = zeros(all, 4), *again = zeros(all, 4), *naive = zeros(all, 4);
    double *ref = zeros(all, 8);
    run_chunks(o, &c, w, order, c.n);
    run_chunks(again, &c, w, back, c.n);
    CHECK_SAME(o, again, all);
    for (int i = 0; i < c.n; i += 3) {
        run_chunks(again, &c, w, &i, 1);
        CHECK_SAME(o + i * w->d, again + i * w->d, w->d);
    }
    for (int i = 0; i < c.n; i++)
        expect_chunks(ref, naive, &c, w, i);
    CHECK_ON("chunks", o, naive, ref, all, DTYPE_BF16);
    free(w->keys), free(w->values), free(w->q), free(w), free(o), free(again), free(naive), free(ref);
}

/* ---- products ---- */

enum product_kind { PRODUCT_NORM, PRODUCT_ADD, PRODUCT_SWIGLU };
struct product_data {
    int k, out;
    float *x, *norm, *w, *base; /* [64, k], [k], [out or 2 out, k], [64, out] */
};

/* Rows first .. first + rows - 1; got [rows, out]. */
static float *run_product(const struct product_data *p, enum product_kind kind, int first, int rows) {
    const enum dtype x_type = kind == PRODUCT_ADD ? DTYPE_BF16 : DTYPE_F32;
    const int w_rows = kind == PRODUCT_SWIGLU ? 2 * p->out : p->out;
    struct mat y = put_plain(NULL, kind == PRODUCT_SWIGLU ? DTYPE_BF16 : DTYPE_F32, rows, p->out);
    struct decode_rows_product_call call = {.x = put_plain(p->x + (int64_t)first * p->k, x_type, rows, p->k).data,
                                            .w = put_plain(p->w, DTYPE_BF16, w_rows, p->k).data,
                                            .y = y.data,
                                            .rows = rows,
                                            .k = p->k,
                                            .out = p->out,
                                            .eps = 1e-5f};
    if (kind == PRODUCT_ADD)
        call.base = put_plain(p->base + (int64_t)first * p->out, DTYPE_F32, rows, p->out).data;
    else
        call.norm = put_plain(p->norm, DTYPE_BF16, 1, p->k).data;
    if (kind == PRODUCT_SWIGLU)
        decode_rows_run_swiglu(gpu, y.data, &call);
    else
        decode_rows_run_product(gpu, &call);
    float *got = take(y);
    drop_all();
    return got;
}

static double product_at(const struct product_data *p, int row, int out, bool norm) {
    double sum = 0, squares = 0;
    for (int i = 0; i < p->k; i++) {
        const double x = p->x[(int64_t)row * p->k + i];
        squares += x * x;
        sum += x * (norm ? (double)p->norm[i] : 1.0) * (double)p->w[(int64_t)out * p->k + i];
    }
    return norm ? sum / sqrt(squares / p->k + 1e-5) : sum;
}

static double product_ref(const struct product_data *p, enum product_kind kind, int row, int out) {
    const double x = product_at(p, row, out, kind != PRODUCT_ADD);
    if (kind == PRODUCT_ADD) return x + (double)p->base[(int64_t)row * p->out + out];
    return kind == PRODUCT_NORM ? x : x / (1 + exp(-x)) * product_at(p, row, out + p->out, true);
}

static void case_product(int k, int out, enum product_kind kind) {
    static const char *const names[] = {"norm and product", "product added", "SwiGLU"};
    /* A row of a norm is two bf16 numbers: 2^-17 of each term. SwiGLU's result is one. */
    static const double parts[] = {4e-5, 1e-5, 8e-3};
    const int all = DECODE_ROWS_MAX, w_rows = kind == PRODUCT_SWIGLU ? 2 * out : out;
    struct product_data p = {k, out, NULL, NULL, NULL, NULL};
    p.x = normals((int64_t)all * k, 2.0f, kind == PRODUCT_ADD ? DTYPE_BF16 : DTYPE_F32);
    p.norm = normals(k, 1.0f, DTYPE_BF16);
    p.w = normals((int64_t)w_rows * k, 0.05f, DTYPE_BF16);
    p.base = normals((int64_t)all * out, 1.0f, DTYPE_F32);
    double *ref = zeros((int64_t)all * out, 8);
    for (int row = 0; row < all; row++)
        for (int o = 0; o < out; o++)
            ref[(int64_t)row * out + o] = product_ref(&p, kind, row, o);
    float *got = run_product(&p, kind, 0, all);
    check_part(names[kind], got, ref, (int64_t)all * out, parts[kind]);
    for (int rows = 8; rows <= all; rows *= 2) { /* the last rows, in other kernels and other slots */
        float *some = run_product(&p, kind, all - rows, rows);
        CHECK_SAME(some, got + (int64_t)(all - rows) * out, (int64_t)rows * out);
        free(some);
    }
    free(p.x), free(p.norm), free(p.w), free(p.base), free(ref), free(got);
}

int main(int argc, char **argv) {
    on_device_open(argc, argv);
    const int sizes[] = {1, 2, 7, 32, 64};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const int n = sizes[i];
        if (on_short && n > 7) break;
        case_window((struct window_case){n, 3, 64, 40, 64});
        case_window((struct window_case){n, 2, 128, 100, 128});
        case_chunks((struct chunks_case){n, 3, 64, 9, 64, 63, true});
        case_chunks((struct chunks_case){n, 2, 128, 5, 65, 64, false});
    }
    case_window((struct window_case){9, 1, 64, 0, 64});
    case_chunks((struct chunks_case){8, 1, 64, 6, 12, 10, true});
    if (!on_short) case_window((struct window_case){10, 2, 64, 512, 576});
    if (!on_short) case_window((struct window_case){9, 2, 128, 1500, 1536});
    const int shapes[][2] = {{64, 24},   {128, 100},  {200, 64},  {768, 2304}, {768, 77}, {1024, 40},
                             {1088, 33}, {2048, 768}, {3072, 48}, {3080, 16},  {4096, 24}};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int kind = PRODUCT_NORM; kind <= PRODUCT_SWIGLU; kind++)
            if (!on_short || i < 3) case_product(shapes[i][0], shapes[i][1], (enum product_kind)kind);
    return on_device_close();
}
