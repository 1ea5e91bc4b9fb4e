/* attention_cpu.c -- sliding-window attention: a task is one head and a tile of queries, reading the ring in runs. */
#include "kernels/attend_internal.h"
#include "kernels/attention.h"
#include "kernels/device_internal.h"
#include <assert.h>

struct task {
    struct device *dev;
    struct mat o, q, keys, values;
    int64_t first, tiles;
    int heads, dim, window;
};

static void tile(const struct task *t, void *scratch, int head, int64_t row) {
    struct attend a;
    int64_t rows = t->q.rows - row < ATTEND_ROWS ? t->q.rows - row : ATTEND_ROWS;
    int64_t column = (int64_t)head * t->dim, ring = t->keys.rows;
    int64_t position = t->first + row, end = position + rows;
    attend_begin(&a, scratch, mat_row(t->q, row) + column, t->q.stride, (int)rows, t->dim);
    attend_softmax(&a, false);
    struct attend_bias bias = {.window = t->window, .slope = attention_alibi_slope(head, t->heads)};
    for (int64_t key = position > t->window ? position - t->window : 0, n; key < end; key += n) {
        int64_t slot = key % ring;
        n = end - key < ATTEND_KEYS ? end - key : ATTEND_KEYS;
        if (n > ring - slot) n = ring - slot;
        bias.distance = position - key;
        attend_keys(&a, mat_row(t->keys, slot) + column, t->keys.stride, mat_row(t->values, slot) + column,
                    t->values.stride, (int)n, &bias);
    }
    attend_add(&a, 1.0f);
    attend_store(&a, mat_row(t->o, row) + column, t->o.stride);
}

static void body(void *context, int64_t begin, int64_t end, int worker) {
    const struct task *t = context;
    for (int64_t i = begin; i < end; i++)
        tile(t, device_scratch(t->dev, worker), (int)(i % t->heads), i / t->heads * ATTEND_ROWS);
}

static void forward(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values, int64_t first,
                    int heads, int window) {
    assert(heads > 0 && q.cols % heads == 0 && o.cols == q.cols && keys.cols == q.cols && values.cols == q.cols);
    assert(o.rows == q.rows && values.rows == keys.rows && first >= 0 && window >= 0);
    assert(keys.rows >= window + q.rows || keys.rows >= first + q.rows);
    struct task t = {
        dev, o, q, keys, values, first, (q.rows + ATTEND_ROWS - 1) / ATTEND_ROWS, heads, (int)(q.cols / heads), window};
    threads_for(dev->threads, t.tiles * heads, 1, body, &t);
}

const struct attention_ops attention_cpu = {.forward = forward};
