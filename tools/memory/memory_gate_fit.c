/* memory_gate_fit.c -- rows are divided into blocks of equal size. One task sums the rows of a block in order, and the
 * sums of the blocks are then added in order. */
#include "tools/memory/memory_gate_fit.h"
#include "base/memory.h"
#include "base/rng.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { BLOCK = 512, STEPS = 150, N = MEMORY_GATE_PARAMETERS, B1 = MEMORY_GATE_HIDDEN * MEMORY_FEATURES };
enum { W2 = B1 + MEMORY_GATE_HIDDEN, B2 = W2 + MEMORY_SIDES * MEMORY_GATE_HIDDEN };
static const double rate = 0.1, beta1 = 0.9, beta2 = 0.999, tiny = 1e-8, bias_begin = -2;
_Static_assert(sizeof(struct memory_gate) == (2 * MEMORY_FEATURES + N) * sizeof(double), "one array");

struct gate_sums {
    const double *parameters;
    const struct memory_gate_row *rows;
    int64_t n;
    double (*sums)[N + 1]; /* of each block: gradient and loss */
};

/* Computes the weights of the model and the sides, and in q those of the mixture. */
static double row_weights(double g[1 + MEMORY_SIDES], double q[1 + MEMORY_SIDES], const struct memory_gate_row *row,
                          const double a[MEMORY_SIDES]) {
    double top = 0, sum = 0, mixed = 0;
    for (int s = 0; s < MEMORY_SIDES; s++)
        if (row->there[s] && a[s] > top) top = a[s];
    for (int i = 0; i <= MEMORY_SIDES; i++) {
        g[i] = i == 0 ? exp(-top) : row->there[i - 1] ? exp(a[i - 1] - top) : 0;
        sum += g[i];
    }
    for (int i = 0; i <= MEMORY_SIDES; i++) {
        g[i] /= sum;
        q[i] = g[i] * row->p[i];
        mixed += q[i];
    }
    for (int i = 0; i <= MEMORY_SIDES; i++)
        q[i] /= mixed;
    return log(mixed);
}

/* The hidden units are the lanes of vectors, so that loops over the features keep them in registers. Sums of a unit are
 * added in the order of the features, and those over units in the order of the units. */
enum { LANES = 8, VECTORS = MEMORY_GATE_HIDDEN / LANES };
typedef double unit_lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef double unit_lanes_unaligned __attribute__((vector_size(LANES * sizeof(double)), aligned(8), may_alias));
struct units {
    unit_lanes v[VECTORS];
};
_Static_assert(sizeof(struct units) == MEMORY_GATE_HIDDEN * sizeof(double), "whole vectors");
struct gate_block {
    struct units w1[MEMORY_FEATURES], d1[MEMORY_FEATURES];
};

static struct units units_load(const double *from) {
    struct units u;
    for (int v = 0; v < VECTORS; v++)
        u.v[v] = *(const unit_lanes_unaligned *)(from + v * LANES);
    return u;
}

static void units_add(double *to, struct units x, double factor) {
    for (int v = 0; v < VECTORS; v++)
        *(unit_lanes_unaligned *)(to + v * LANES) += factor * x.v[v];
}

static void gate_row(double *sums, struct gate_block *t, const double *w, const struct memory_gate_row *row) {
    double value[MEMORY_GATE_HIDDEN], a[MEMORY_SIDES], g[1 + MEMORY_SIDES], q[1 + MEMORY_SIDES];
    struct units hidden = units_load(w + B1), back = {0};
    for (int j = 0; j < MEMORY_FEATURES; j++)
        for (int v = 0; v < VECTORS; v++)
            hidden.v[v] += t->w1[j].v[v] * row->x[j];
    memcpy(value, &hidden, sizeof value);
    for (int h = 0; h < MEMORY_GATE_HIDDEN; h++)
        value[h] = 1 - 2 / (exp(2 * value[h]) + 1); /* tanh */
    hidden = units_load(value);
    for (int s = 0; s < MEMORY_SIDES; s++) {
        a[s] = w[B2 + s];
        for (int h = 0; h < MEMORY_GATE_HIDDEN; h++)
            a[s] += w[W2 + s * MEMORY_GATE_HIDDEN + h] * value[h];
    }
    sums[N] -= row->share * row_weights(g, q, row, a);
    for (int s = 0; s < MEMORY_SIDES; s++) {
        double slope = row->share * (g[1 + s] - q[1 + s]);
        sums[B2 + s] += slope;
        units_add(sums + W2 + s * MEMORY_GATE_HIDDEN, hidden, slope);
        const struct units w2 = units_load(w + W2 + s * MEMORY_GATE_HIDDEN);
        for (int v = 0; v < VECTORS; v++)
            back.v[v] += slope * w2.v[v];
    }
    for (int v = 0; v < VECTORS; v++)
        back.v[v] *= 1 - hidden.v[v] * hidden.v[v];
    units_add(sums + B1, back, 1);
    for (int j = 0; j < MEMORY_FEATURES; j++)
        for (int v = 0; v < VECTORS; v++)
            t->d1[j].v[v] += back.v[v] * row->x[j];
}

static void gate_blocks(void *context, int64_t begin, int64_t end, int worker) {
    struct gate_sums *c = context;
    struct gate_block t;
    double column[MEMORY_GATE_HIDDEN];
    (void)worker;
    for (int j = 0; j < MEMORY_FEATURES; j++) {
        for (int h = 0; h < MEMORY_GATE_HIDDEN; h++)
            column[h] = c->parameters[h * MEMORY_FEATURES + j];
        t.w1[j] = units_load(column);
    }
    for (int64_t b = begin; b < end; b++) {
        memset(c->sums[b], 0, sizeof c->sums[b]);
        memset(t.d1, 0, sizeof t.d1);
        for (int64_t i = b * BLOCK; i < c->n && i < (b + 1) * BLOCK; i++)
            if (c->rows[i].share > 0) gate_row(c->sums[b], &t, c->parameters, &c->rows[i]);
        for (int j = 0; j < MEMORY_FEATURES; j++) {
            memcpy(column, &t.d1[j], sizeof column);
            for (int h = 0; h < MEMORY_GATE_HIDDEN; h++)
                c->sums[b][h * MEMORY_FEATURES + j] = column[h];
        }
    }
}

static double gate_sum(struct gate_sums *c, double *gradient, struct threads *threads) {
    int64_t blocks = (c->n + BLOCK - 1) / BLOCK;
    double loss = 0;
    threads_for(threads, blocks, 1, gate_blocks, c);
    for (int i = 0; gradient && i < N; i++)
        gradient[i] = 0;
    for (int64_t b = 0; b < blocks; b++) {
        for (int i = 0; gradient && i < N; i++)
            gradient[i] += c->sums[b][i];
        loss += c->sums[b][N];
    }
    return loss;
}

enum status memory_gate_loss(double *loss, double *gradient, const double *parameters,
                             const struct memory_gate_row *rows, int64_t n, struct threads *threads) {
    struct gate_sums c = {.parameters = parameters, .rows = rows, .n = n};
    TRY(memory_allocate(&c.sums, (size_t)((n + BLOCK - 1) / BLOCK)));
    *loss = gate_sum(&c, gradient, threads);
    memory_free(c.sums);
    return STATUS_OK;
}

static bool is_bias(int i) {
    return (i >= B1 && i < W2) || i >= B2;
}

enum status memory_gate_fit(struct memory_gate *gate, const struct memory_gate_row *rows, int64_t n, double penalty,
                            struct threads *threads) {
    double p[N], d[N], first[N] = {0}, second[N] = {0};
    struct gate_sums c = {.parameters = p, .rows = rows, .n = n};
    struct rng rng = rng_make(1, 0);
    TRY(memory_allocate(&c.sums, (size_t)((n + BLOCK - 1) / BLOCK)));
    for (int i = 0; i < N; i++)
        p[i] = i >= B2 ? bias_begin
                       : (2 * (double)rng_uniform(&rng) - 1) / sqrt(i < W2 ? MEMORY_FEATURES : MEMORY_GATE_HIDDEN);
    for (int step = 1; step <= STEPS; step++) {
        const double now = rate * (STEPS + 1 - step) / STEPS; /* over 300 steps, better than a constant rate */
        (void)gate_sum(&c, d, threads);
        for (int i = 0; i < N; i++) {
            if (!is_bias(i)) d[i] += penalty * p[i];
            first[i] += (1 - beta1) * (d[i] - first[i]);
            second[i] += (1 - beta2) * (d[i] * d[i] - second[i]);
            p[i] -= now * (first[i] / (1 - pow(beta1, step))) / (sqrt(second[i] / (1 - pow(beta2, step))) + tiny);
        }
    }
    memcpy((char *)gate + offsetof(struct memory_gate, w1), p, sizeof p);
    memory_free(c.sums);
    return STATUS_OK;
}
