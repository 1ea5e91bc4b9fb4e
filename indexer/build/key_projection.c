/* key_projection.c -- see key_projection.h. The subspace is found by orthogonal iteration: a basis is multiplied by the
 * covariance and made orthonormal again. Sums are float64. */
#include "indexer/build/key_projection.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "base/rng.h"
#include <math.h>
#include <string.h>

/* Chunks of the sample, taken in runs of KEY_STEP; of each chunk every STRIDE-th state counts. */
enum { SAMPLE_CHUNKS = 4096, STRIDE = 4, ITERATIONS = 40 };

struct projection {
    const struct key_windows_config *config;
    int64_t d, m, n; /* numbers of a state and of a key; states so far */
    void *here;      /* a batch's states in host memory */
    float *row;
    double *sum, *products; /* [d]; [d, d]: sums over states of s, and of s s' (lower half) */
    double *basis, *next;   /* [m, d] */
};

/* ---- states ---- */

static void projection_add(struct projection *p, const float *state) {
    for (int64_t i = 0; i < p->d; i++) {
        double *to = p->products + i * p->d;
        const double x = (double)state[i];
        p->sum[i] += x;
        for (int64_t j = 0; j <= i; j++)
            to[j] += x * (double)state[j];
    }
    p->n++;
}

static const float *projection_state(const struct projection *p, enum dtype type, int64_t row) {
    if (type == DTYPE_F32) return (const float *)p->here + row * p->d;
    half_from_bf16_row(p->row, (const uint16_t *)p->here + row * p->d, (size_t)p->d);
    return p->row;
}

static enum status projection_take(void *context, struct mat keys, const struct key_window *windows, int64_t n) {
    struct projection *p = context;
    const int64_t chunk = p->config->model->chunk;
    device_download(p->config->device, p->here, keys.data, mat_bytes(keys));
    TRY(device_sync(p->config->device));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = windows[i].skip; c < windows[i].skip + windows[i].keep; c++)
            for (int64_t j = 0; j < windows[i].ids[c]; j += STRIDE)
                projection_add(p, projection_state(p, keys.type, (i * KEY_WINDOW + c) * chunk + j));
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

/* ---- the subspace ---- */

static double dot(const double *a, const double *b, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

/* Takes the part of x along the unit vector u out of x. */
static void without(double *x, const double *u, int64_t n) {
    const double part = dot(x, u, n);
    for (int64_t i = 0; i < n; i++)
        x[i] -= part * u[i];
}

static double normalize(double *x, int64_t n) {
    const double length = sqrt(dot(x, x, n));
    for (int64_t i = 0; i < n && length > 0; i++)
        x[i] /= length;
    return length;
}

/* Makes rows of the basis orthonormal, and orthogonal to the unit vector `mean`. A row without a direction of its own
 * gets random numbers. */
static void projection_orthonormal(struct projection *p, const double *mean, struct rng *rng) {
    for (int64_t r = 0; r < p->m; r++) {
        double *row = p->basis + r * p->d;
        for (int tries = 0; tries < 3; tries++) {
            const double before = sqrt(dot(row, row, p->d));
            for (int twice = 0; twice < 2; twice++) {
                without(row, mean, p->d);
                for (int64_t q = 0; q < r; q++)
                    without(row, p->basis + q * p->d, p->d);
            }
            if (normalize(row, p->d) > 1e-9 * before) break;
            for (int64_t i = 0; i < p->d; i++)
                row[i] = rng_normal(rng);
        }
    }
}

/* Makes `products` the covariance of the states, whole, and `sum` the unit vector of their mean. */
static void projection_covariance(struct projection *p) {
    for (int64_t i = 0; i < p->d; i++)
        p->sum[i] /= (double)p->n;
    for (int64_t i = 0; i < p->d; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double c = p->products[i * p->d + j] / (double)p->n - p->sum[i] * p->sum[j];
            p->products[i * p->d + j] = p->products[j * p->d + i] = c;
        }
    normalize(p->sum, p->d);
}

/* Multiplies each row of the basis by the covariance. Returns the variance along the rows. */
static double projection_multiply(struct projection *p) {
    double variance = 0;
    for (int64_t r = 0; r < p->m; r++) {
        for (int64_t i = 0; i < p->d; i++)
            p->next[r * p->d + i] = dot(p->products + i * p->d, p->basis + r * p->d, p->d);
        variance += dot(p->next + r * p->d, p->basis + r * p->d, p->d);
    }
    return variance;
}

static void projection_solve(struct projection *p, double *kept) {
    struct rng rng = rng_make(1, 0);
    double all = 0;
    for (int64_t i = 0; i < p->m * p->d; i++)
        p->basis[i] = rng_normal(&rng);
    for (int64_t i = 0; i < p->d; i++)
        all += p->products[i * p->d + i];
    projection_orthonormal(p, p->sum, &rng);
    for (int i = 0; i < ITERATIONS; i++) {
        *kept = projection_multiply(p) / all;
        if (i + 1 == ITERATIONS) break; /* the basis of this variance */
        double *swap = p->basis;
        p->basis = p->next;
        p->next = swap;
        projection_orthonormal(p, p->sum, &rng);
    }
}

/* ---- all of it ---- */

static enum status projection_allocate(struct projection *p, size_t batch_bytes) {
    const size_t d = (size_t)p->d, m = (size_t)p->m;
    TRY(device_allocate_host_bytes(p->config->device, &p->here, batch_bytes));
    TRY(memory_allocate(&p->row, d));
    TRY(memory_allocate_zero(&p->sum, d));
    TRY(memory_allocate_zero(&p->products, d * d));
    TRY(memory_allocate(&p->basis, m * d));
    return memory_allocate(&p->next, m * d);
}

static enum status projection_run(struct projection *p, struct key_windows *windows, float *out,
                                  struct key_projection_report *report) {
    const size_t rows = (size_t)key_windows_rows(windows),
                 bytes = (size_t)dtype_bytes(decoder_type(p->config->decoder));
    TRY(projection_allocate(p, rows * (size_t)p->d * bytes));
    TRY(projection_sample(p, windows));
    if (p->n < p->d)
        return fail(STATUS_INVALID,
                    "the store has only %lld states to fit from, fewer than the hidden size %lld: take "
                    "a store with more text",
                    (long long)p->n, (long long)p->d);
    projection_covariance(p);
    projection_solve(p, &report->kept);
    report->states = p->n;
    for (int64_t i = 0; i < p->m * p->d; i++)
        out[i] = (float)p->basis[i];
    return STATUS_OK;
}

enum status key_projection_fit(float *out, int size, struct key_projection_report *report,
                               const struct key_windows_config *config) {
    struct projection p = {.config = config, .d = config->model->hidden, .m = size};
    struct key_windows *windows = NULL;
    enum status s = key_windows_create(&windows, config, config->model->hidden, projection_take, &p);
    if (s == STATUS_OK) s = projection_run(&p, windows, out, report);
    key_windows_free(windows);
    device_release_host(config->device, p.here);
    memory_free(p.row);
    memory_free(p.sum);
    memory_free(p.products);
    memory_free(p.basis);
    memory_free(p.next);
    return s;
}
