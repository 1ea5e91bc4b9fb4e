/* golden_gca.c -- gca_op_*: the cross-attention operator alone: in one piece, as partial + combine, and backward. */
#include "base/formats/json.h"
#include "tests/golden/golden.h"

struct shape {
    int64_t batch, heads, topk, queries, rows, head_dim, off_by_one;
};

static void read_shape(struct shape *s, struct golden *g) {
    const char *text = safetensors_metadata(g->file, "config");
    CHECK(text);
    struct json j;
    json_open(&j, g->name, text, strlen(text));
    CHECK_OK(json_expect(&j, JSON_OBJECT, "an object"));
    const char *keys[] = {"batch", "heads", "topk", "queries", "rows", "head_dim", "softmax_off_by_one"};
    int64_t *values[] = {&s->batch, &s->heads, &s->topk, &s->queries, &s->rows, &s->head_dim, &s->off_by_one};
    size_t found = 0;
    while (json_next(&j) == JSON_KEY) {
        size_t i = 0;
        while (i < ARRAY_LEN(keys) && !json_equals(&j, keys[i]))
            i++;
        if (i < ARRAY_LEN(keys)) {
            CHECK_OK(json_next_int(&j, values[i]));
            found++;
        } else {
            CHECK_OK(json_skip(&j));
        }
    }
    CHECK_EQ(found, ARRAY_LEN(keys));
}

/* [outer, heads, n, dh] of the file to [outer * stride_rows, heads * dh] of the op. */
static void to_rows(float *out, const float *in, const struct shape *s, int64_t outer, int64_t n, int64_t stride_rows) {
    for (int64_t b = 0; b < outer; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < n; i++)
                memcpy(out + ((b * stride_rows + i) * s->heads + h) * s->head_dim,
                       in + ((b * s->heads + h) * n + i) * s->head_dim, (size_t)s->head_dim * sizeof *out);
}

static float *rows_of(struct golden *g, const char *name, const struct shape *s, int64_t outer, int64_t n,
                      int64_t stride_rows) {
    float *in = golden_floats(g, name), *out = golden_zeroed(outer * stride_rows * s->heads * s->head_dim, sizeof *out);
    CHECK_EQ(golden_tensor(g, name)->count, outer * s->heads * n * s->head_dim);
    to_rows(out, in, s, outer, n, stride_rows);
    free(in);
    return out;
}

static double worst(const float *a, const float *b, int64_t n) {
    double w = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= w)) w = difference;
        if (isnan(difference)) break;
    }
    return w;
}

/* log sum exp of every softmax in double, against the op's. */
static double worst_lse(const float *lse, const float *q, const float *k, const struct shape *s) {
    int64_t n = s->batch * s->queries, d = s->heads * s->head_dim;
    double w = 0;
    for (int64_t at = 0; at < s->topk * n * s->heads; at++) {
        int64_t h = at % s->heads, r = at / s->heads % n, slot = r / s->queries * s->topk + at / s->heads / n;
        double sum = s->off_by_one ? 1 : 0, largest = s->off_by_one ? 0 : -INFINITY;
        for (int64_t t = 0; t < s->rows; t++) {
            double dot = 0;
            for (int64_t i = h * s->head_dim; i < (h + 1) * s->head_dim; i++)
                dot += (double)q[r * d + i] * (double)k[(slot * 64 + t) * d + i];
            dot /= sqrt((double)s->head_dim);
            double top = dot > largest ? dot : largest;
            sum = sum * exp(largest - top) + exp(dot - top);
            largest = top;
        }
        double difference = fabs((double)lse[at] - (largest + log(sum)));
        if (!(difference <= w)) w = difference;
        if (isnan(difference)) break;
    }
    return w;
}

static float *get_rows(struct golden *g, struct mat from) {
    float *to = golden_zeroed(from.rows * from.cols, sizeof *to);
    golden_get(g, to, from);
    return to;
}

/* Prints the largest difference, in bf16 divided by the tensor's largest element. */
static void line_of(struct golden *g, const char *name, struct mat ours, const float *theirs, double tolerance) {
    int64_t n = ours.rows * ours.cols;
    float *ours_host = get_rows(g, ours);
    double largest = 0, w = worst(ours_host, theirs, n);
    for (int64_t i = 0; i < n; i++)
        if (fabs((double)theirs[i]) > largest) largest = fabs((double)theirs[i]);
    if (g->type == DTYPE_F32)
        golden_line(g, name, w, tolerance);
    else
        golden_line(g, name, largest > 0 ? w / largest : w, TOLERANCE_BF16);
    free(ours_host);
}

/* Only result i reads slot i. Rows after the live ones get no gradient: rows_of leaves zeros there. */
static void compare_rows(struct golden *g, const char *name, const struct shape *s, struct mat ours, int64_t outer,
                         int64_t n, int64_t stride_rows, double tolerance) {
    float *theirs = rows_of(g, name, s, outer, n, stride_rows);
    line_of(g, name, ours, theirs, tolerance);
    free(theirs);
}

static void compare_backward(struct golden *g, const struct shape *s, struct gca_pool pool, struct gca_blocks blocks,
                             struct mat q, double tolerance) {
    int64_t n = s->batch * s->queries, d = s->heads * s->head_dim, slots = s->batch * s->topk;
    float *dout = rows_of(g, "in.do", s, s->batch, s->queries, s->queries);
    struct mat o = golden_put(g, NULL, n, d, g->type), dq = golden_put(g, NULL, n, d, g->type);
    struct mat lses = golden_put(g, NULL, s->topk * s->heads, n, DTYPE_F32);
    struct mat dk = golden_put(g, NULL, slots * 64, d, DTYPE_F32), dv = golden_put(g, NULL, slots * 64, d, DTYPE_F32);
    float *dweight = golden_zeroed(slots, sizeof *dweight), *dweight_device;
    int32_t *begin = golden_zeroed(slots + 1, sizeof *begin);
    for (int64_t i = 0; i <= slots; i++)
        begin[i] = (int32_t)i;
    const int32_t *lists = golden_put_bytes(g, begin, slots + 1, sizeof *begin);
    dweight_device = golden_put_bytes(g, NULL, slots, sizeof *dweight);
    const struct gca_ops *gca = g->dev->ops->gca;
    gca->forward_keep(g->dev, o, lses, q, pool, blocks, (int)s->heads);
    float *theirs = rows_of(g, "out.o", s, s->batch, s->queries, s->queries);
    line_of(g, "out.o(forward_keep)", o, theirs, tolerance);
    struct gca_gradients to = {dq, dk, dv, dweight_device};
    gca->backward(g->dev, &to, golden_put(g, dout, n, d, g->type), q, pool, blocks,
                  (struct gca_inverse){lists, lists, slots}, lses);
    compare_rows(g, "out.dq", s, dq, s->batch, s->queries, s->queries, tolerance);
    compare_rows(g, "out.dk", s, dk, slots, s->rows, 64, tolerance);
    compare_rows(g, "out.dv", s, dv, slots, s->rows, 64, tolerance);
    golden_get_bytes(g, dweight, dweight_device, slots, sizeof *dweight);
    golden_compare(g, "out.dw", dweight, slots, tolerance);
    free(dout), free(theirs), free(dweight), free(begin);
}

void golden_gca(struct golden *g) {
    struct shape s = {0};
    read_shape(&s, g);
    int64_t n = s.batch * s.queries, d = s.heads * s.head_dim, slots = s.batch * s.topk;
    /* Scores near 60: a GPU has other exponentials and another order of sums. */
    double sharp = g->dev->shares_memory ? 1e-4 : 2e-4, tolerance = strstr(g->name, "sharp") ? sharp : 2e-5;
    float *q = rows_of(g, "in.q", &s, s.batch, s.queries, s.queries),
          *theirs = rows_of(g, "out.o", &s, s.batch, s.queries, s.queries);
    float *k = rows_of(g, "in.k", &s, slots, s.rows, 64), *v = rows_of(g, "in.v", &s, slots, s.rows, 64);
    float *weight = golden_floats(g, "in.w");
    int64_t *row_begin = golden_zeroed(s.batch + 1, sizeof *row_begin);
    int32_t *slot = golden_zeroed(slots, sizeof *slot);
    for (int64_t b = 0; b <= s.batch; b++)
        row_begin[b] = b * s.queries;
    for (int64_t i = 0; i < slots; i++)
        slot[i] = (int32_t)i;

    struct gca_pool pool = {.keys = golden_put(g, k, slots * 64, d, g->type),
                            .values = golden_put(g, v, slots * 64, d, g->type),
                            .slot_rows = 64,
                            .live_rows = (int)s.rows,
                            .off_by_one = s.off_by_one != 0};
    struct gca_blocks blocks = {.row_begin = golden_put_bytes(g, row_begin, s.batch + 1, sizeof *row_begin),
                                .slot = golden_put_bytes(g, slot, slots, sizeof *slot),
                                .weight = golden_put_bytes(g, weight, slots, sizeof *weight),
                                .blocks = (int)s.batch,
                                .k = (int)s.topk};
    struct mat queries = golden_put(g, q, n, d, g->type), o = golden_put(g, NULL, n, d, g->type),
               again = golden_put(g, NULL, n, d, g->type);
    const struct gca_ops *gca = g->dev->ops->gca;
    gca->forward(g->dev, o, queries, pool, blocks, (int)s.heads);
    line_of(g, "out.o", o, theirs, tolerance);

    struct mat parts = golden_put(g, NULL, s.topk * n, d, g->type);
    struct mat lses = golden_put(g, NULL, s.topk * n, s.heads, DTYPE_F32);
    gca->partial(g->dev, parts, lses, queries, pool, blocks, (int)s.heads);
    gca->combine(g->dev, again, parts, lses, blocks, (int)s.heads);
    line_of(g, "out.o(partial+combine)", again, theirs, tolerance);
    float *lse = get_rows(g, lses);
    golden_line(g, "lse(against-double)", worst_lse(lse, q, k, &s),
                g->type == DTYPE_F32 ? tolerance : 60 * TOLERANCE_BF16 / 16);
    compare_backward(g, &s, pool, blocks, queries, tolerance);
    free(q), free(theirs), free(k), free(v), free(weight), free(lse), free(row_begin), free(slot);
}
