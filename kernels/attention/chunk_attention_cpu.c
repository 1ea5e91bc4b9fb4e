/* chunk_attention_cpu.c -- full attention inside each chunk: a task is one head of one chunk. */
#include "kernels/attention/attend_backward_internal.h"
#include "kernels/attention/chunk_attention.h"
#include "kernels/device/device_internal.h"
#include <assert.h>

struct chunk_attention_task {
    struct device *dev;
    struct mat o, q, k, v, lse; /* lse: data NULL: it is not computed */
    int heads, dim, positions;
};

static int chunk_attention_min(int a, int b) {
    return a < b ? a : b;
}

static void chunk_attention_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct chunk_attention_task *t = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t chunk = i / t->heads * t->positions, column = i % t->heads * t->dim;
        for (int row = 0; row < t->positions; row += ATTEND_ROWS) {
            struct attend a;
            attend_begin(&a, device_scratch(t->dev, worker), mat_row(t->q, chunk + row) + column, t->q.stride,
                         chunk_attention_min(t->positions - row, ATTEND_ROWS), t->dim);
            attend_softmax(&a, false);
            for (int key = 0; key < t->positions; key += ATTEND_KEYS)
                attend_keys(&a, mat_row(t->k, chunk + key) + column, t->k.stride, mat_row(t->v, chunk + key) + column,
                            t->v.stride, chunk_attention_min(t->positions - key, ATTEND_KEYS), NULL);
            attend_add(&a, 1.0f);
            attend_keep(&a, t->lse, chunk + row, i % t->heads);
            attend_store(&a, mat_row(t->o, chunk + row) + column, t->o.stride);
        }
    }
}

static void chunk_attention_forward_keep(struct device *dev, struct mat o, struct mat lse, struct mat q, struct mat k,
                                         struct mat v, int heads, int positions) {
    assert(heads > 0 && positions > 0 && q.cols % heads == 0 && q.rows % positions == 0);
    assert(o.rows == q.rows && k.rows == q.rows && v.rows == q.rows && o.cols == q.cols && k.cols == q.cols &&
           v.cols == q.cols);
    assert(!lse.data || (lse.rows == q.rows && lse.cols == heads));
    struct chunk_attention_task t = {dev, o, q, k, v, lse, heads, (int)(q.cols / heads), positions};
    threads_for(dev->threads, q.rows / positions * heads, 1, chunk_attention_body, &t);
}

static void chunk_attention_forward(struct device *dev, struct mat o, struct mat q, struct mat k, struct mat v,
                                    int heads, int positions) {
    chunk_attention_forward_keep(dev, o, (struct mat){0}, q, k, v, heads, positions);
}

static void chunk_attention_backward(struct device *dev, struct mat dq, struct mat dk, struct mat dv, struct mat dout,
                                     const struct chunk_attention_kept *kept) {
    struct mat o = kept->o, lse = kept->lse, q = kept->q, k = kept->k, v = kept->v;
    int heads = kept->heads, positions = kept->positions;
    assert(heads > 0 && positions > 0 && q.cols % heads == 0 && q.rows % positions == 0);
    assert(lse.data && lse.rows == q.rows && lse.cols == heads && o.rows == q.rows && dout.rows == q.rows);
    assert(k.rows == q.rows && v.rows == q.rows && dq.rows == q.rows && dk.rows == q.rows && dv.rows == q.rows);
    struct attend_gradients t = {dev, dq, dk, dv, dout, o, lse, q, k, v, positions, heads, -1};
    attend_gradients(&t);
}

const struct chunk_attention_ops chunk_attention_cpu = {
    .forward = chunk_attention_forward,
    .forward_keep = chunk_attention_forward_keep,
    .backward = chunk_attention_backward,
};
