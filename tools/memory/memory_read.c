/* memory_read.c -- the results of one memory for rows of a window, at several temperatures.
 *
 * The op gives the weights at the largest temperature. Those of another temperature are powers of them, w^(largest /
 * tau), normalised again, so distances are computed once. If the temperature halves, the power is a square. The rest is
 * computed on the host, one row per thread. On a GPU it was slower, because copying the weights and distributions of
 * each temperature took longer than the additions. */
#include "base/memory.h"
#include "kernels/ops.h"
#include "tools/memory/memory_window_internal.h"
#include <math.h>
#include <string.h>

struct read_rows {
    struct memory_window *w;
    struct memory_read *read;
    const struct token_memory *memory;
    struct memory_slots_host slots_host;
    int64_t columns, vocab, row, to; /* columns: of a row's weights; row: the first of the window; to: of the results */
};

/* ---- a row's distribution ---- */

enum { LANES = 16 };
static const float negligible = 1e-18F; /* squares of smaller numbers may be denormal, which is slow */

/* Sums x and its squares, in several lanes, so that the order of the sums allows vector code. */
static void row_sums(const float *x, int64_t n, double *sum, double *squares) {
    float a[LANES] = {0}, b[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            a[l] += x[i + l], b[l] += x[i + l] * x[i + l];
    *sum = *squares = 0;
    for (int l = 0; l < LANES; l++)
        *sum += (double)a[l], *squares += (double)b[l];
    for (; i < n; i++)
        *sum += (double)x[i], *squares += (double)(x[i] * x[i]);
}

static int64_t row_largest(const float *x, int64_t n) {
    float top[LANES];
    int64_t i = 0, at = 0;
    for (int l = 0; l < LANES; l++)
        top[l] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    for (int l = 1; l < LANES; l++)
        top[0] = top[l] > top[0] ? top[l] : top[0];
    for (; i < n; i++)
        top[0] = x[i] > top[0] ? x[i] : top[0];
    while (at < n - 1 && x[at] != top[0])
        at++;
    return at;
}

/* Computes p [vocab]: for each value, the sum of scale * x over the entries of row r. */
static void row_spread(const struct read_rows *c, float *p, const float *x, float scale, int64_t r) {
    const struct memory_slots *slots = &c->memory->slots;
    memset(p, 0, (size_t)c->vocab * sizeof *p);
    int64_t block = 0;
    while (slots->k > 0 && block + 1 < slots->blocks && c->w->row_begin[block + 1] <= r)
        block++;
    for (int s = 0; s < slots->k; s++, x += slots->slot_rows) {
        const int32_t slot = c->slots_host.slot[block * slots->k + s];
        const int32_t *value = slot < 0 ? NULL : c->slots_host.value + (int64_t)slot * slots->slot_rows;
        for (int i = 0; value && i < slots->slot_rows; i++)
            if (value[i] >= 0) p[value[i]] += scale * x[i];
    }
    const int64_t at = c->row + r, past = at < c->memory->past.limit ? at : c->memory->past.limit;
    for (int64_t j = 0; j < past; j++)
        p[c->w->next[at - 1 - j]] += scale * x[j];
}

/* Writes the results of the distribution p of row r. */
static void row_columns(const struct read_rows *c, const float *p, int t, int64_t r) {
    const struct memory_window *w = c->w;
    const float *logits = w->logits + (c->row + r) * c->vocab;
    float *const *out = c->read->column[t];
    const int64_t best = row_largest(p, c->vocab), to = c->to + r;
    const bool empty = !(p[best] > 0);
    out[MEMORY_LOG_P][to] = logf(p[w->next[c->row + r]]);
    out[MEMORY_TOP][to] = logf(p[best]);
    out[MEMORY_OF_TOP][to] = logf(p[w->top[to]]);
    out[MEMORY_LM_OF_TOP][to] = empty ? -INFINITY : (float)((double)logits[best] - w->log_sum[to]);
    out[MEMORY_TOKEN][to] = empty ? -1 : (float)best;
}

/* x [columns]: converts the weights at the previous temperature, the largest of which is 1, to those
 * at temperature t. */
static void row_cool(const struct read_rows *c, float *x, int t, int64_t r) {
    const struct memory_read *read = c->read;
    const float *from = c->w->weights + r * c->columns;
    const float power = t + 1 < read->taus ? read->tau[t + 1] / read->tau[t] : 1;
    if (t + 1 == read->taus) {
        const float top = from[row_largest(from, c->columns)];
        for (int64_t i = 0; i < c->columns; i++)
            x[i] = from[i] > 0 ? from[i] / top : 0;
    } else if (power == 2) {
        for (int64_t i = 0; i < c->columns; i++)
            x[i] = x[i] < negligible ? 0 : x[i] * x[i];
    } else {
        for (int64_t i = 0; i < c->columns; i++)
            x[i] = x[i] > 0 ? expf(power * logf(x[i])) : 0;
    }
}

/* Reads row r at all temperatures, the largest first. */
static void read_row(const struct read_rows *c, float *x, float *p, int64_t r) {
    for (int t = c->read->taus - 1; t >= 0; t--) {
        float *const *out = c->read->column[t];
        double sum, squares;
        row_cool(c, x, t, r);
        row_sums(x, c->columns, &sum, &squares);
        row_spread(c, p, x, sum > 0 ? (float)(1 / sum) : 0, r);
        row_columns(c, p, t, r);
        out[MEMORY_SQUARES][c->to + r] = sum > 0 ? (float)(squares / (sum * sum)) : 0;
        out[MEMORY_LSE][c->to + r] =
            sum > 0 ? (float)(log(sum) - (double)(c->w->nearest[r] / c->read->tau[t])) : -INFINITY;
    }
}
static void read_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct read_rows *c = context;
    for (int64_t r = begin; r < end; r++)
        read_row(c, c->w->scaled + worker * c->columns, c->w->spread + worker * c->vocab, r);
}

enum status memory_window_reserve(struct memory_window *w, size_t weights, size_t columns) {
    struct device *dev = w->config.engine->device;
    const size_t threads = (size_t)threads_count(dev->threads),
                 vocab = (size_t)w->config.engine->model.config.vocab_size;
    TRY(memory_grow(&w->scaled, &w->scaled_capacity, threads * columns));
    TRY(memory_grow(&w->spread, &w->spread_capacity, threads * vocab));
    if (w->weights_capacity >= weights) return STATUS_OK;
    device_release_host(dev, w->weights);
    device_release(dev, w->weights_device);
    w->weights = w->weights_device = NULL;
    w->weights_capacity = 0;
    TRY(device_allocate_host(dev, &w->weights, weights));
    TRY(device_allocate(dev, &w->weights_device, weights));
    w->weights_capacity = weights;
    return STATUS_OK;
}

enum status memory_window_read(struct memory_window *w, struct memory_read *read, struct token_memory *memory,
                               int64_t first, int64_t begin, int64_t end) {
    struct device *dev = w->config.engine->device;
    const struct token_memory_ops *ops = dev->ops->token_memory;
    int64_t rows = end - begin, vocab = w->config.engine->model.config.vocab_size;
    memory->tau = w->tau_device + (read - w->reads);
    int64_t columns = token_memory_columns(memory);
    TRY(memory_window_reserve(w, (size_t)(rows * columns), (size_t)columns));
    struct mat states = mat_rows(w->keys, begin, rows), weights = mat_f32(w->weights_device, rows, columns);
    float *s = w->stats_device;
    ops->forward(dev, (struct token_memory_stats){s, s + rows, s + 2 * rows, s + 3 * rows, s + 4 * rows}, states,
                 memory, w->next_device + begin);
    ops->weights(dev, weights, states, memory);
    device_download(dev, w->nearest, s + 2 * rows, (size_t)rows * sizeof *s);
    device_download(dev, w->weights, w->weights_device, mat_bytes(weights));
    TRY(device_sync(dev));
    struct read_rows c = {.w = w,
                          .read = read,
                          .memory = memory,
                          .columns = columns,
                          .vocab = vocab,
                          .row = begin,
                          .to = begin - (first - 1)};
    if (memory->slots.k > 0) c.slots_host = memory_source_slots_host(w->source);
    memcpy(read->mark[MEMORY_NEAREST] + c.to, w->nearest, (size_t)rows * sizeof *w->nearest);
    threads_for(dev->threads, rows, 1, read_body, &c);
    return STATUS_OK;
}

/* ---- found entries ---- */

struct nearest_rows {
    struct read_rows rows;
    struct memory_nearest of;
    int t;
};

/* Computes row r at temperature t: the distribution of its entries, its lse and its sum of squares. */
static void nearest_row(const struct nearest_rows *c, float *p, int64_t r) {
    const struct read_rows *rows = &c->rows;
    const float tau = rows->read->tau[c->t], *distance = c->of.distance + r * c->of.m;
    const int32_t *value = c->of.value + r * c->of.m;
    float *const *out = rows->read->column[c->t];
    double sum = 0, squares = 0;
    memset(p, 0, (size_t)rows->vocab * sizeof *p);
    for (int i = 0; i < c->of.m && value[i] >= 0; i++) {
        const double share = exp((double)(distance[0] - distance[i]) / (double)tau);
        sum += share;
        squares += share * share;
    }
    for (int i = 0; i < c->of.m && value[i] >= 0; i++)
        p[value[i]] += (float)(exp((double)(distance[0] - distance[i]) / (double)tau) / sum);
    out[MEMORY_SQUARES][rows->to + r] = sum > 0 ? (float)(squares / (sum * sum)) : 0;
    out[MEMORY_LSE][rows->to + r] = sum > 0 ? (float)(log(sum) - (double)(distance[0] / tau)) : -INFINITY;
    row_columns(rows, p, c->t, r);
}
static void nearest_body(void *context, int64_t begin, int64_t end, int worker) {
    const struct nearest_rows *c = context;
    for (int64_t r = begin; r < end; r++)
        nearest_row(c, c->rows.w->spread + worker * c->rows.vocab, r);
}

enum status memory_window_nearest(struct memory_window *w, struct memory_read *read, struct memory_nearest of,
                                  int64_t first, int64_t begin, int64_t end) {
    const int64_t rows = end - begin, vocab = w->config.engine->model.config.vocab_size;
    struct nearest_rows c = {.rows = {.w = w, .read = read, .vocab = vocab, .row = begin, .to = begin - (first - 1)},
                             .of = of};
    TRY(memory_window_reserve(w, 1, 1));
    for (int64_t r = 0; r < rows; r++) {
        int entries = 0;
        while (entries < of.m && of.value[r * of.m + entries] >= 0)
            entries++;
        read->mark[MEMORY_ENTRIES][c.rows.to + r] = (float)entries;
        read->mark[MEMORY_NEAREST][c.rows.to + r] = of.distance[r * of.m];
    }
    for (c.t = 0; c.t < read->taus; c.t++)
        threads_for(w->config.engine->device->threads, rows, 1, nearest_body, &c);
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
