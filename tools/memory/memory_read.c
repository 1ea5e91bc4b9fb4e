/* memory_read.c -- what one memory gives to rows of a window, at several temperatures.
 *
 * The op gives the weights at the largest temperature. Those of another are powers of them, w^(largest / tau), made
 * sums of 1 again: distances are computed once. */
#include "base/memory.h"
#include "kernels/ops.h"
#include "tools/memory/memory_window_internal.h"
#include <math.h>
#include <string.h>

struct read_rows {
    struct memory_window *w;
    struct memory_read *read;
    int t;
    int64_t columns, vocab, row, to; /* the first row of the window; of the results */
};

/* Weights of row r at temperature t, into scaled; its lse and sum of squares. */
static void scale_row(const struct read_rows *c, int64_t r) {
    const float *from = c->w->weights + r * c->columns;
    float *to = c->w->scaled + r * c->columns, *const *out = c->read->column[c->t];
    const float power = c->read->tau[c->read->taus - 1] / c->read->tau[c->t];
    float top = 0;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < c->columns; i++)
        top = from[i] > top ? from[i] : top;
    for (int64_t i = 0; i < c->columns; i++) {
        float share = from[i] / top;
        to[i] = !(from[i] > 0) ? 0 : power == 1 ? share : expf(power * logf(share));
        sum += (double)to[i];
    }
    for (int64_t i = 0; i < c->columns; i++) {
        to[i] = sum > 0 ? (float)((double)to[i] / sum) : 0;
        squares += (double)to[i] * (double)to[i];
    }
    out[MEMORY_SQUARES][c->to + r] = (float)squares;
    out[MEMORY_LSE][c->to + r] =
        sum > 0 ? (float)(log(sum) - (double)(c->w->nearest[r] / c->read->tau[c->t])) : -INFINITY;
}
static void scale_body(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        scale_row(context, r);
}

/* What the distribution of row r says. */
static void spread_row(const struct read_rows *c, int64_t r) {
    const struct memory_window *w = c->w;
    const float *p = w->spread + r * c->vocab, *logits = w->logits + (c->row + r) * c->vocab;
    float *const *out = c->read->column[c->t];
    int64_t best = 0, to = c->to + r;
    for (int64_t v = 1; v < c->vocab; v++)
        best = p[v] > p[best] ? v : best;
    bool empty = !(p[best] > 0);
    out[MEMORY_LOG_P][to] = logf(p[w->next[c->row + r]]);
    out[MEMORY_TOP][to] = logf(p[best]);
    out[MEMORY_OF_TOP][to] = logf(p[w->top[to]]);
    out[MEMORY_LM_OF_TOP][to] = empty ? -INFINITY : (float)((double)logits[best] - w->log_sum[to]);
    out[MEMORY_TOKEN][to] = empty ? -1 : (float)best;
}
static void spread_body(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        spread_row(context, r);
}

static enum status read_reserve(struct memory_window *w, size_t weights, size_t spread) {
    struct device *dev = w->config.engine->device;
    size_t scaled = w->weights_capacity;
    if (w->weights_capacity < weights) {
        TRY(memory_grow(&w->scaled, &scaled, weights));
        TRY(memory_grow(&w->weights, &w->weights_capacity, weights));
        device_release(dev, w->weights_there);
        w->weights_there = NULL;
        TRY(device_allocate(dev, &w->weights_there, w->weights_capacity));
    }
    if (w->spread_capacity < spread) {
        TRY(memory_grow(&w->spread, &w->spread_capacity, spread));
        device_release(dev, w->spread_there);
        w->spread_there = NULL;
        TRY(device_allocate(dev, &w->spread_there, w->spread_capacity));
    }
    return STATUS_OK;
}

enum status memory_window_read(struct memory_window *w, struct memory_read *read, struct token_memory *memory,
                               int64_t first, int64_t begin, int64_t end) {
    struct device *dev = w->config.engine->device;
    const struct token_memory_ops *ops = dev->ops->token_memory;
    int64_t rows = end - begin, vocab = w->config.engine->model.config.vocab_size;
    memory->tau = w->tau_there + (read - w->reads);
    int64_t columns = token_memory_columns(memory);
    TRY(read_reserve(w, (size_t)(rows * columns), (size_t)(rows * vocab)));
    struct mat states = mat_rows(w->keys, begin, rows), weights = mat_f32(w->weights_there, rows, columns),
               spread = mat_f32(w->spread_there, rows, vocab);
    float *s = w->stats_there;
    ops->forward(dev, (struct token_memory_stats){s, s + rows, s + 2 * rows, s + 3 * rows, s + 4 * rows}, states,
                 memory, w->next_there + begin);
    ops->weights(dev, weights, states, memory);
    device_download(dev, w->nearest, s + 2 * rows, (size_t)rows * sizeof *s);
    device_download(dev, w->weights, w->weights_there, mat_bytes(weights));
    TRY(device_sync(dev));
    struct read_rows c = {w, read, 0, columns, vocab, begin, begin - (first - 1)};
    memcpy(read->mark[MEMORY_NEAREST] + c.to, w->nearest, (size_t)rows * sizeof *w->nearest);
    for (c.t = 0; c.t < read->taus; c.t++) {
        threads_for(dev->threads, rows, 1, scale_body, &c);
        device_upload(dev, w->weights_there, w->scaled, mat_bytes(weights));
        ops->distribution(dev, spread, weights, memory);
        device_download(dev, w->spread, w->spread_there, mat_bytes(spread));
        TRY(device_sync(dev));
        threads_for(dev->threads, rows, 1, spread_body, &c);
    }
    return STATUS_OK;
}

struct memory_evidence memory_evidence_of(float *const mark[MEMORY_MARKS], float *const column[MEMORY_COLUMNS],
                                          int64_t i) {
    return (struct memory_evidence){.entries = mark[MEMORY_ENTRIES][i],
                                    .nearest = mark[MEMORY_NEAREST][i],
                                    .lse = column[MEMORY_LSE][i],
                                    .squares = column[MEMORY_SQUARES][i],
                                    .top = column[MEMORY_TOP][i],
                                    .of_top = column[MEMORY_OF_TOP][i],
                                    .lm_of_top = column[MEMORY_LM_OF_TOP][i],
                                    .token = column[MEMORY_TOKEN][i],
                                    .best = mark[MEMORY_BEST][i],
                                    .kth = mark[MEMORY_KTH][i],
                                    .mean = mark[MEMORY_MEAN][i]};
}
