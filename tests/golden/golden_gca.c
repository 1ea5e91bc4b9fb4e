/* golden_gca.c -- gca_op_*: the cross-attention operator alone: in one piece, as partial + combine, and backward. */
#include "base/json.h"
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

static void compare_rows(struct golden *g, const char *name, const struct shape *s, const float *ours, int64_t outer,
                         int64_t n, int64_t stride_rows, double tolerance) {
    float *theirs = rows_of(g, name, s, outer, n, stride_rows);
    golden_line(g, name, worst(ours, theirs, outer * stride_rows * s->heads * s->head_dim), tolerance);
    free(theirs);
}

/* Slot i is read at place i alone. Rows behind the live ones get no gradient: rows_of leaves zeros there. */
static void compare_backward(struct golden *g, const struct shape *s, struct gca_pool pool, struct gca_blocks blocks,
                             float *q, double tolerance) {
    int64_t n = s->batch * s->queries, d = s->heads * s->head_dim, slots = s->batch * s->topk;
    float *dout = rows_of(g, "in.do", s, s->batch, s->queries, s->queries), *o = golden_zeroed(n * d, sizeof *o);
    float *lse = golden_zeroed(s->topk * n * s->heads, sizeof *lse), *dq = golden_zeroed(n * d, sizeof *dq);
    float *dk = golden_zeroed(slots * 64 * d, sizeof *dk), *dv = golden_zeroed(slots * 64 * d, sizeof *dv);
    float *dweight = golden_zeroed(slots, sizeof *dweight);
    int32_t *begin = golden_zeroed(slots + 1, sizeof *begin);
    for (int64_t i = 0; i <= slots; i++)
        begin[i] = (int32_t)i;
    struct mat lses = mat_f32(lse, s->topk * n, s->heads);
    const struct gca_ops *gca = g->dev->ops->gca;
    gca->forward_keep(g->dev, mat_f32(o, n, d), lses, mat_f32(q, n, d), pool, blocks, (int)s->heads);
    float *theirs = rows_of(g, "out.o", s, s->batch, s->queries, s->queries);
    golden_line(g, "out.o(forward_keep)", worst(o, theirs, n * d), tolerance);
    free(theirs);
    gca->backward(g->dev, mat_f32(dq, n, d), mat_f32(dk, slots * 64, d), mat_f32(dv, slots * 64, d), dweight,
                  mat_f32(dout, n, d), mat_f32(q, n, d), pool, blocks, (struct gca_inverse){begin, begin, slots}, lses,
                  (int)s->heads);
    compare_rows(g, "out.dq", s, dq, s->batch, s->queries, s->queries, tolerance);
    compare_rows(g, "out.dk", s, dk, slots, s->rows, 64, tolerance);
    compare_rows(g, "out.dv", s, dv, slots, s->rows, 64, tolerance);
    golden_compare(g, "out.dw", dweight, slots, tolerance);
    free(dout), free(o), free(lse), free(dq), free(dk), free(dv), free(dweight), free(begin);
}

void golden_gca(struct golden *g) {
    struct shape s = {0};
    read_shape(&s, g);
    int64_t n = s.batch * s.queries, d = s.heads * s.head_dim, slots = s.batch * s.topk;
    double tolerance = strstr(g->name, "sharp") ? 1e-4 : 2e-5;
    float *q = rows_of(g, "in.q", &s, s.batch, s.queries, s.queries),
          *theirs = rows_of(g, "out.o", &s, s.batch, s.queries, s.queries);
    float *k = rows_of(g, "in.k", &s, slots, s.rows, 64), *v = rows_of(g, "in.v", &s, slots, s.rows, 64);
    float *weight = golden_floats(g, "in.w"), *o = golden_zeroed(n * d, sizeof *o);
    float *part = golden_zeroed(s.topk * n * d, sizeof *part), *lse = golden_zeroed(s.topk * n * s.heads, sizeof *lse);
    int64_t *row_begin = golden_zeroed(s.batch + 1, sizeof *row_begin);
    int32_t *slot = golden_zeroed(slots, sizeof *slot);
    for (int64_t b = 0; b <= s.batch; b++)
        row_begin[b] = b * s.queries;
    for (int64_t i = 0; i < slots; i++)
        slot[i] = (int32_t)i;

    struct gca_pool pool = {.keys = mat_f32(k, slots * 64, d),
                            .values = mat_f32(v, slots * 64, d),
                            .slot_rows = 64,
                            .live_rows = (int)s.rows,
                            .off_by_one = s.off_by_one != 0};
    struct gca_blocks blocks = {
        .row_begin = row_begin, .slot = slot, .weight = weight, .blocks = (int)s.batch, .k = (int)s.topk};
    const struct gca_ops *gca = g->dev->ops->gca;
    gca->forward(g->dev, mat_f32(o, n, d), mat_f32(q, n, d), pool, blocks, (int)s.heads);
    golden_line(g, "out.o", worst(o, theirs, n * d), tolerance);

    struct mat parts = mat_f32(part, s.topk * n, d), lses = mat_f32(lse, s.topk * n, s.heads);
    memset(o, 0, (size_t)(n * d) * sizeof *o);
    gca->partial(g->dev, parts, lses, mat_f32(q, n, d), pool, blocks, (int)s.heads);
    gca->combine(g->dev, mat_f32(o, n, d), parts, lses, blocks, (int)s.heads);
    golden_line(g, "out.o(partial+combine)", worst(o, theirs, n * d), tolerance);
    golden_line(g, "lse(against-double)", worst_lse(lse, q, k, &s), tolerance);
    compare_backward(g, &s, pool, blocks, q, tolerance);
    free(q), free(theirs), free(k), free(v), free(weight), free(o), free(part), free(lse), free(row_begin), free(slot);
}
