/* memory_mixture.c -- see memory_mixture.h. */
#include "train/memory/memory_mixture.h"
#include <math.h>

static const double GATE_SCALE = 10.0; /* makes w learn at the rate of the embeddings */
static const double LARGEST = 30.0;    /* lse and nearest / tau are clamped to this, then divided by 10 */

static double memory_mixture_clamped(double x, double lowest, double highest) {
    return x < lowest ? lowest : x > highest ? highest : x;
}

/* log(exp a + exp b) */
static double log_add(double a, double b) {
    double top = a > b ? a : b;
    return isinf(top) ? top : top + log(exp(a - top) + exp(b - top));
}

double memory_mixture_nll(const struct memory_loss_mixture *m, const struct memory_mixture_row *row) {
    struct memory_loss_mixture of = {.tau = m->tau}; /* a copy, so that the caller's sums do not change */
    for (int i = 0; i < MEMORY_MIXTURE_FEATURES; i++)
        of.gate[i] = m->gate[i];
    return memory_mixture_row(&of, row, 0.0).nll;
}

struct memory_mixture_result memory_mixture_row(struct memory_loss_mixture *m, const struct memory_mixture_row *row,
                                                double weight) {
    struct memory_mixture_result out = {.nll = -row->log_lm};
    if (isinf(row->lse)) {
        m->nll += out.nll;
        return out;
    }
    const double features[MEMORY_MIXTURE_FEATURES] = {
        1.0, memory_mixture_clamped(row->lse, -LARGEST, LARGEST) / 10.0,
        memory_mixture_clamped(row->nearest / m->tau, 0.0, LARGEST) / 10.0, row->squares, row->largest};
    double gate = 0.0;
    for (int i = 0; i < MEMORY_MIXTURE_FEATURES; i++)
        gate += GATE_SCALE * m->gate[i] * features[i];
    /* log sigmoid without overflow at either end */
    double log_open = gate < 0 ? gate - log1p(exp(gate)) : -log1p(exp(-gate)), log_closed = log_open - gate;
    double own = log_closed + row->log_lm, memory = log_open + row->log_p, p = log_add(own, memory), g = exp(log_open);
    out.nll = -p;
    out.share = isinf(row->log_p) ? 0.0 : exp(memory - p);
    out.dlog_p = -out.share;
    double dgate = (g - out.share) * GATE_SCALE;
    if (fabs(row->lse) < LARGEST) out.dlse = dgate * m->gate[1] / 10.0;
    for (int i = 0; i < MEMORY_MIXTURE_FEATURES; i++)
        m->dgate[i] += weight * dgate * features[i];
    m->nll += out.nll;
    m->opened += g;
    m->share += out.share;
    return out;
}
