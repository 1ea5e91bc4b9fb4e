/* key_projection.c -- see key_projection.h. States are float32; sums over states are, too, since they are relative to
 * the mean; matrices are float64. */
#include "indexer/build/key_projection.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "kernels/linear/symmetric.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Chunks of the sample, taken in runs of KEY_STEP; of each chunk every STRIDE-th state counts. */
enum { SAMPLE_CHUNKS = 4096, STRIDE = 2 };
static const double ridge = 0.1, power = -0.25;

struct sample_state {
    int32_t token; /* that follows it */
    int32_t row;   /* of `states` */
};
struct projection {
    const struct key_windows_config *config;
    int64_t d, n, capacity; /* numbers of a state; states so far, and at most */
    void *states_host;      /* a batch's states in host memory */
    float *states;          /* [capacity, d] */
    struct sample_state *order;
    double *mean;                                     /* [d] */
    double *total, *within, *metric, *vectors, *work; /* [d, d] */
    double *values;                                   /* [d] */
};

/* ---- states ---- */

static void projection_add(struct projection *p, enum dtype type, int64_t row, int32_t token) {
    const size_t d = (size_t)p->d;
    float *to = p->states + p->n * p->d;
    if (p->n == p->capacity) return;
    if (type == DTYPE_F32)
        memcpy(to, (const float *)p->states_host + row * p->d, d * sizeof *to);
    else
        half_from_bf16_row(to, (const uint16_t *)p->states_host + row * p->d, d);
    p->order[p->n] = (struct sample_state){token, (int32_t)p->n};
    p->n++;
}

static enum status projection_take(void *context, struct mat keys, const struct key_window *windows, int64_t n) {
    struct projection *p = context;
    const int64_t chunk = p->config->model->chunk;
    device_download(p->config->device, p->states_host, keys.data, mat_bytes(keys));
    TRY(device_sync(p->config->device));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = windows[i].skip; c < windows[i].skip + windows[i].keep; c++)
            for (int64_t j = 0; j + 1 < windows[i].count[c]; j += STRIDE)
                projection_add(p, keys.type, (i * KEY_WINDOW + c) * chunk + j, windows[i].ids[c * chunk + j + 1]);
    return STATUS_OK;
}

/* Adds runs of chunks at equal distances over the whole store. */
static enum status projection_sample(struct projection *p, struct key_windows *windows) {
    struct store_info info;
    const struct store_dropped dropped = store_view_dropped(p->config->view);
    store_view_info(p->config->view, &info);
    const int64_t runs = min_i64(SAMPLE_CHUNKS, info.chunks) / KEY_STEP + 1;
    for (int64_t i = 0; i < runs; i++) {
        const int64_t at = info.chunks * i / runs;
        const struct store_range there = store_dropped_span(dropped, at, min_i64(at + KEY_STEP, info.chunks));
        TRY(key_windows_add(windows, there.begin, there.end));
        progress_step(p->config->progress, "states", "runs", i + 1, runs);
    }
    return key_windows_flush(windows);
}

static int compare_tokens(const void *a, const void *b) {
    const struct sample_state *x = a, *y = b;
    return x->token != y->token ? (x->token > y->token) - (x->token < y->token) : (x->row > y->row) - (x->row < y->row);
}

/* ---- covariances ---- */

/* out [d]: the mean of `n` states, whose rows are in p->order from `first` on. */
static void rows_mean(const struct projection *p, double *out, int64_t first, int64_t n) {
    memset(out, 0, (size_t)p->d * sizeof *out);
    for (int64_t i = first; i < first + n; i++)
        for (int64_t j = 0; j < p->d; j++)
            out[j] += (double)p->states[p->order[i].row * p->d + j] / (double)n;
}

/* Adds `by` times the sum of products of n states, less `mean`, to c [d, d]. rows: buffer for BLOCK states. */
enum { BLOCK = 512 };
static void rows_products(const struct projection *p, float *c, float *rows, int64_t first, int64_t n,
                          const double *mean, float by) {
    for (int64_t at = 0, part; at < n; at += part) {
        part = min_i64(n - at, BLOCK);
        for (int64_t i = 0; i < part; i++)
            for (int64_t j = 0; j < p->d; j++)
                rows[i * p->d + j] = (float)((double)p->states[p->order[first + at + i].row * p->d + j] - mean[j]);
        symmetric_add(c, rows, part, (int)p->d, by);
    }
}

/* Makes `out` whole from the lower half of c, divided by `by`. */
static void key_projection_spread(double *out, const float *c, int64_t d, double by) {
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j <= i; j++)
            out[i * d + j] = out[j * d + i] = (double)c[i * d + j] / by;
}

/* Makes p->total and p->within: covariances of all states, and of states around the mean of their token. Tokens with
 * one state have no variance; n states of a token count n / (n - 1) times. */
static enum status projection_covariances(struct projection *p) {
    const size_t d = (size_t)p->d;
    float *sum = NULL, *rows = NULL;
    double *mean = NULL;
    int64_t counted = 0;
    enum status s;
    TRY_GOTO(s, memory_allocate_zero(&sum, d * d), out);
    TRY_GOTO(s, memory_allocate(&rows, BLOCK * d), out);
    TRY_GOTO(s, memory_allocate(&mean, d), out);
    qsort(p->order, (size_t)p->n, sizeof *p->order, compare_tokens);
    rows_mean(p, p->mean, 0, p->n);
    rows_products(p, sum, rows, 0, p->n, p->mean, 1);
    key_projection_spread(p->total, sum, p->d, (double)p->n);
    memset(sum, 0, d * d * sizeof *sum);
    for (int64_t i = 0, n; i < p->n; i += n) {
        for (n = 1; i + n < p->n && p->order[i + n].token == p->order[i].token;)
            n++;
        if (n == 1) continue;
        rows_mean(p, mean, i, n);
        rows_products(p, sum, rows, i, n, mean, (float)n / (float)(n - 1));
        counted += n;
    }
    key_projection_spread(p->within, sum, p->d, (double)max_i64(counted, 1));
out:
    memory_free(sum);
    memory_free(rows);
    memory_free(mean);
    return s;
}

/* ---- matrices [d, d] ---- */

static double key_projection_trace(const double *a, int64_t d) {
    double t = 0;
    for (int64_t i = 0; i < d; i++)
        t += a[i * d + i];
    return t;
}

/* c [rows, d] = a [rows, d] b, for a symmetric b [d, d]. */
static void key_projection_multiply(double *c, const double *a, const double *b, int64_t rows, int64_t d) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int64_t k = 0; k < d; k++)
                sum += a[i * d + k] * b[j * d + k];
            c[i * d + j] = sum;
        }
}

/* Takes the direction of the mean out of each row. */
static void without_mean(const struct projection *p, double *rows, int64_t n) {
    double square = 0;
    for (int64_t j = 0; j < p->d; j++)
        square += p->mean[j] * p->mean[j];
    for (int64_t i = 0; i < n && square > 0; i++) {
        double along = 0;
        for (int64_t j = 0; j < p->d; j++)
            along += rows[i * p->d + j] * p->mean[j] / square;
        for (int64_t j = 0; j < p->d; j++)
            rows[i * p->d + j] -= along * p->mean[j];
    }
}

/* Makes p->metric B M: rows of B, each without the direction of the mean. */
static enum status projection_metric(struct projection *p) {
    const int64_t d = p->d;
    const double least = ridge * key_projection_trace(p->within, d) / (double)d;
    TRY(symmetric_eigen(p->values, p->vectors, p->within, (int)d));
    for (int64_t i = 0; i < d; i++)
        for (int64_t j = 0; j < d; j++)
            p->work[j * d + i] = p->vectors[i * d + j] * pow(fmax(p->values[i], 0) + least, power);
    for (int64_t i = 0; i < d; i++) /* p->vectors becomes its transpose, whose rows `multiply` takes */
        for (int64_t j = 0; j < i; j++) {
            const double swap = p->vectors[i * d + j];
            p->vectors[i * d + j] = p->vectors[j * d + i];
            p->vectors[j * d + i] = swap;
        }
    key_projection_multiply(p->metric, p->work, p->vectors, d, d);
    without_mean(p, p->metric, d);
    return STATUS_OK;
}

/* The sum of the `size` greatest eigenvalues of the covariance of all states. */
static enum status principal_variance(struct projection *p, int size, double *out) {
    TRY(symmetric_eigen(p->values, p->vectors, p->total, (int)p->d));
    *out = 0;
    for (int64_t i = p->d - size; i < p->d; i++)
        *out += p->values[i];
    return STATUS_OK;
}

/* Writes P. The variance of keys is the sum of the eigenvalues that were taken, before it is scaled. */
static enum status projection_solve(struct projection *p, float *out, int size, struct key_projection_report *report) {
    const int64_t d = p->d;
    double wanted, variance = 0;
    if (!(key_projection_trace(p->within, d) > 0))
        return fail(STATUS_INVALID, "%s: has too little text to fit a projection: no token follows two states",
                    store_view_path(p->config->view));
    TRY(principal_variance(p, size, &wanted));
    TRY(projection_metric(p));
    key_projection_multiply(p->work, p->metric, p->total, d, d); /* B M S, then M B from the right */
    key_projection_multiply(p->vectors, p->work, p->metric, d, d);
    memcpy(p->work, p->vectors, (size_t)(d * d) * sizeof *p->work);
    TRY(symmetric_eigen(p->values, p->vectors, p->work, (int)d));
    for (int64_t i = d - size; i < d; i++)
        variance += p->values[i];
    for (int64_t r = 0; r < size; r++)
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int64_t k = 0; k < d; k++)
                sum += p->vectors[(d - 1 - r) * d + k] * p->metric[k * d + j];
            out[r * d + j] = (float)(sum * sqrt(wanted / variance));
        }
    report->states = p->n;
    report->kept = wanted / key_projection_trace(p->total, d);
    return STATUS_OK;
}

/* ---- all of it ---- */

static enum status projection_allocate(struct projection *p, size_t batch_bytes) {
    const size_t d = (size_t)p->d;
    double **matrices[] = {&p->total, &p->within, &p->metric, &p->vectors, &p->work};
    p->capacity = (int64_t)SAMPLE_CHUNKS * (p->config->model->chunk / STRIDE + 1);
    TRY(device_allocate_host_bytes(p->config->device, &p->states_host, batch_bytes));
    TRY(memory_allocate(&p->states, (size_t)p->capacity * d));
    TRY(memory_allocate(&p->order, (size_t)p->capacity));
    TRY(memory_allocate(&p->mean, d));
    TRY(memory_allocate(&p->values, d));
    for (size_t i = 0; i < ARRAY_LEN(matrices); i++)
        TRY(memory_allocate(matrices[i], d * d));
    return STATUS_OK;
}

static enum status projection_run(struct projection *p, struct key_windows *windows, float *out, int size,
                                  struct key_projection_report *report) {
    const size_t rows = (size_t)key_windows_rows(windows),
                 bytes = (size_t)dtype_bytes(decoder_type(p->config->decoder));
    TRY(projection_allocate(p, rows * (size_t)p->d * bytes));
    TRY(projection_sample(p, windows));
    if (p->n < p->d)
        return fail(STATUS_INVALID,
                    "%s: has only %lld states to fit from, fewer than the hidden size %lld: take a store with more "
                    "text",
                    store_view_path(p->config->view), (long long)p->n, (long long)p->d);
    TRY(projection_covariances(p));
    return projection_solve(p, out, size, report);
}

enum status key_projection_fit(float *out, int size, struct key_projection_report *report,
                               const struct key_windows_config *config) {
    struct projection p = {.config = config, .d = config->model->hidden};
    struct key_windows *windows = NULL;
    enum status s = key_windows_create(&windows, config, config->model->hidden, projection_take, &p);
    if (s == STATUS_OK) s = projection_run(&p, windows, out, size, report);
    void *owned[] = {p.states, p.order, p.mean, p.values, p.total, p.within, p.metric, p.vectors, p.work};
    key_windows_free(windows);
    device_release_host(config->device, p.states_host);
    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        memory_free(owned[i]);
    return s;
}
