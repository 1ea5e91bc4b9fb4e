/* attention_cpu.c -- sliding-window attention: a task is one head and a tile of queries; it reads the ring in runs. */
#include "kernels/attention/attend_backward_internal.h"
#include "kernels/attention/attention.h"
#include "kernels/device/device_internal.h"
#include <assert.h>

enum { HEADS_AT_ONCE = 16 };

struct attention_task {
    struct device *dev;
    struct mat o, q, keys, values, lse; /* lse: data NULL: it is not computed */
    int64_t first, tiles;
    int heads, dim, window;
};

/* Heads `head` .. `head` + n - 1 of a tile of queries, run of keys by run: so the columns that are read of a row of
 * keys, and then of values, are adjacent. */
static void attention_heads(const struct attention_task *t, void *scratch, int head, int n_heads, int64_t row) {
    struct attend a[HEADS_AT_ONCE];
    struct attend_bias bias[HEADS_AT_ONCE];
    float *wide = (float *)(void *)((unsigned char *)scratch + (size_t)n_heads * attend_bytes(t->dim));
    int64_t rows = t->q.rows - row < ATTEND_ROWS ? t->q.rows - row : ATTEND_ROWS;
    int64_t ring = t->keys.rows, position = t->first + row, end = position + rows;
    const int64_t column = (int64_t)head * t->dim, columns = (int64_t)n_heads * t->dim;
    assert(n_heads == 1 || rows <= ATTEND_SINGLE_ROWS);
    for (int h = 0; h < n_heads; h++) {
        attend_begin(&a[h], (unsigned char *)scratch + (size_t)h * attend_bytes(t->dim),
                     mat_row(t->q, row) + (int64_t)(head + h) * t->dim, t->q.stride, (int)rows, t->dim);
        attend_softmax(&a[h], false);
        bias[h] = (struct attend_bias){.window = t->window, .slope = attention_alibi_slope(head + h, t->heads)};
    }
    for (int64_t key = position > t->window ? position - t->window : 0, n; key < end; key += n) {
        int64_t slot = key % ring;
        n = end - key < ATTEND_KEYS ? end - key : ATTEND_KEYS;
        if (n > ring - slot) n = ring - slot;
        for (int h = 0; h < n_heads; h++)
            bias[h].distance = position - key;
        const struct mat keys = mat_rows(mat_cols(t->keys, column, columns), slot, n),
                         values = mat_rows(mat_cols(t->values, column, columns), slot, n);
        const struct attend_run run = {
            keys.data, values.data, keys.stride, values.stride, (int)n, keys.type == DTYPE_BF16, bias};
        if (rows <= ATTEND_SINGLE_ROWS)
            attend_keys_heads(a, n_heads, run);
        else if (run.bf16)
            attend_keys_bf16(a, wide, run);
        else
            attend_keys(a, keys.data, keys.stride, values.data, values.stride, (int)n, bias);
    }
    for (int h = 0; h < n_heads; h++) {
        attend_add(&a[h], 1.0f);
        attend_keep(&a[h], t->lse, row, head + h);
        attend_store(&a[h], mat_row(t->o, row) + (int64_t)(head + h) * t->dim, t->o.stride);
    }
}

static void attention_tile(const struct attention_task *t, void *scratch, int head, int64_t row) {
    attention_heads(t, scratch, head, 1, row);
}

static void attention_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct attention_task *t = context;
    const int64_t fit = (int64_t)((DEVICE_SCRATCH_BYTES - attend_wide_bytes(t->dim)) / attend_bytes(t->dim));
    /* Rows of float32 are so long that heads are faster one by one. */
    const bool together = t->q.rows <= ATTEND_SINGLE_ROWS && t->keys.type == DTYPE_BF16;
    const int64_t most = !together ? 1 : fit < HEADS_AT_ONCE ? fit : HEADS_AT_ONCE;
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < most ? end - i : most;
        if (n > t->heads - i % t->heads) n = t->heads - i % t->heads;
        attention_heads(t, device_scratch(t->dev, worker), (int)(i % t->heads), (int)n, i / t->heads * ATTEND_ROWS);
    }
}

static void attention_forward(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values,
                              int64_t first, int heads, int window) {
    assert(heads > 0 && q.cols % heads == 0 && o.cols == q.cols && keys.cols == q.cols && values.cols == q.cols);
    assert(o.rows == q.rows && values.rows == keys.rows && first >= 0 && window >= 0 && values.type == keys.type);
    assert(keys.rows >= window + q.rows || keys.rows >= first + q.rows);
    struct attention_task t = {.dev = dev,
                               .o = o,
                               .q = q,
                               .keys = keys,
                               .values = values,
                               .first = first,
                               .tiles = (q.rows + ATTEND_ROWS - 1) / ATTEND_ROWS,
                               .heads = heads,
                               .dim = (int)(q.cols / heads),
                               .window = window};
    threads_for(dev->threads, t.tiles * heads, t.tiles == 1 ? device_share(dev, heads) : 1, attention_body, &t);
}

/* Whole sequences. Each is a ring that does not wrap around, so a task is attention_tile on its rows. */
struct attention_sequences_task {
    struct attention_task one; /* q, o, lse: all rows; keys, values: k, v of all rows */
    int64_t length;
};

static void attention_sequences_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct attention_sequences_task *all = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i / (all->one.tiles * all->one.heads) * all->length,
                rest = i % (all->one.tiles * all->one.heads);
        struct attention_task t = all->one;
        t.q = mat_rows(all->one.q, first, all->length);
        t.o = mat_rows(all->one.o, first, all->length);
        t.keys = mat_rows(all->one.keys, first, all->length);
        t.values = mat_rows(all->one.values, first, all->length);
        t.lse = mat_rows(all->one.lse, first, all->length);
        attention_tile(&t, device_scratch(t.dev, worker), (int)(rest % t.heads), rest / t.heads * ATTEND_ROWS);
    }
}

static void attention_forward_sequences(struct device *dev, struct mat o, struct mat lse,
                                        const struct attention_sequences *in) {
    struct mat q = in->q, k = in->k, v = in->v;
    int64_t length = in->length;
    int heads = in->heads, window = in->window;
    assert(heads > 0 && q.cols % heads == 0 && o.cols == q.cols && k.cols == q.cols && v.cols == q.cols);
    assert(length > 0 && window >= 0 && q.rows % length == 0 && o.rows == q.rows && k.rows == q.rows &&
           v.rows == q.rows && lse.data && lse.rows == q.rows && lse.cols == heads);
    int64_t tiles = (length + ATTEND_ROWS - 1) / ATTEND_ROWS;
    struct attention_sequences_task t = {{.dev = dev,
                                          .o = o,
                                          .q = q,
                                          .keys = k,
                                          .values = v,
                                          .lse = lse,
                                          .tiles = tiles,
                                          .heads = heads,
                                          .dim = (int)(q.cols / heads),
                                          .window = window},
                                         length};
    threads_for(dev->threads, q.rows / length * tiles * heads, 1, attention_sequences_body, &t);
}

static void attention_backward_sequences(struct device *dev, struct mat dq, struct mat dk, struct mat dv,
                                         struct mat dout, struct mat o, struct mat lse,
                                         const struct attention_sequences *in) {
    struct mat q = in->q, k = in->k, v = in->v;
    int64_t length = in->length;
    int heads = in->heads, window = in->window;
    assert(heads > 0 && length > 0 && window >= 0 && q.cols % heads == 0 && q.rows % length == 0);
    assert(lse.data && lse.rows == q.rows && lse.cols == heads && o.rows == q.rows && dout.rows == q.rows);
    assert(k.rows == q.rows && v.rows == q.rows && dq.rows == q.rows && dk.rows == q.rows && dv.rows == q.rows);
    struct attend_gradients t = {dev, dq, dk, dv, dout, o, lse, q, k, v, length, heads, window};
    attend_gradients(&t);
}

const struct attention_ops attention_cpu = {
    .forward = attention_forward,
    .forward_sequences = attention_forward_sequences,
    .backward_sequences = attention_backward_sequences,
};
