/* memory_gate.c -- what a gate sees, and the weights that it gives. */
#include "decoder/memory_config.h"
#include <math.h>

const char *const memory_kind_names[MEMORY_KINDS] = {"own", "corpus", "both"};

/* Log-probabilities below this one (of a token that a memory does not have, say) count as it. */
static const double least = -12;
/* Standardised features end here, so that another store or a longer text does not drive a gate far from what it was
 * fitted on. */
static const double furthest = 5;

bool memory_kind_reads(enum memory_kind kind, int side) {
    return kind == MEMORY_BOTH || (int)kind == side;
}

static double at_least(float log_p) {
    return (double)log_p > least ? (double)log_p : least;
}

static void side_features(double f[MEMORY_SIDE_FEATURES], const struct memory_evidence *m) {
    int n = 0;
    f[n++] = log((double)m->entries);
    f[n++] = (double)m->nearest;
    f[n++] = (double)m->lse;
    f[n++] = (double)m->squares;
    f[n++] = at_least(m->top);
    f[n++] = at_least(m->of_top);
    f[n++] = at_least(m->lm_of_top);
    f[n++] = m->top == m->of_top; /* both would print the same token */
    f[n++] = (double)m->best;
    f[n++] = (double)m->kth;
    f[n++] = (double)m->mean;
}

int memory_feature_side(int feature) {
    return feature < 3 ? -1 : (feature - 3) / MEMORY_SIDE_FEATURES;
}

void memory_gate_features(double f[MEMORY_FEATURES], const struct memory_lm_evidence *lm,
                          const struct memory_evidence of[MEMORY_SIDES]) {
    for (int i = 0; i < MEMORY_FEATURES; i++)
        f[i] = 0;
    f[0] = (double)lm->entropy;
    f[1] = (double)lm->largest;
    f[2] = of[0].entries > 0 && of[1].entries > 0 && of[0].token == of[1].token;
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (of[side].entries > 0) side_features(f + 3 + side * MEMORY_SIDE_FEATURES, &of[side]);
}

double memory_gate_standard(const struct memory_gate *gate, int feature, double value, bool there) {
    double x = (value - gate->mean[feature]) / gate->deviation[feature];
    return !there ? 0 : x > furthest ? furthest : x < -furthest ? -furthest : x;
}

void memory_gate_weights(double g[1 + MEMORY_SIDES], const struct memory_gate *gate,
                         const struct memory_lm_evidence *lm, const struct memory_evidence of[MEMORY_SIDES]) {
    double f[MEMORY_FEATURES], a[MEMORY_SIDES], top = 0, sum = 0;
    memory_gate_features(f, lm, of);
    for (int i = 0; i < MEMORY_FEATURES; i++) {
        int side = memory_feature_side(i);
        f[i] = memory_gate_standard(gate, i, f[i], side < 0 || of[side].entries > 0);
    }
    for (int side = 0; side < MEMORY_SIDES; side++)
        a[side] = gate->b2[side];
    for (int h = 0; h < MEMORY_GATE_HIDDEN; h++) {
        double x = gate->b1[h];
        for (int i = 0; i < MEMORY_FEATURES; i++)
            x += gate->w1[h][i] * f[i];
        x = tanh(x);
        for (int side = 0; side < MEMORY_SIDES; side++)
            a[side] += gate->w2[side][h] * x;
    }
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (of[side].entries > 0 && a[side] > top) top = a[side];
    for (int i = 0; i <= MEMORY_SIDES; i++) {
        g[i] = i == 0 ? exp(-top) : of[i - 1].entries > 0 ? exp(a[i - 1] - top) : 0;
        sum += g[i];
    }
    for (int i = 0; i <= MEMORY_SIDES; i++)
        g[i] /= sum;
}

struct memory_gate memory_gate_fixed(enum memory_kind kind, double weight) {
    struct memory_gate gate = {0};
    int sides = kind == MEMORY_BOTH ? MEMORY_SIDES : 1;
    for (int i = 0; i < MEMORY_FEATURES; i++)
        gate.deviation[i] = 1;
    for (int side = 0; side < MEMORY_SIDES; side++)
        gate.b2[side] = log(weight / (sides * (1 - weight)));
    return gate;
}

double memory_mixed(const double g[1 + MEMORY_SIDES], double log_lm, const double log_p[MEMORY_SIDES]) {
    double part[1 + MEMORY_SIDES], top = -INFINITY, sum = 0;
    for (int i = 0; i <= MEMORY_SIDES; i++) {
        part[i] = g[i] > 0 ? log(g[i]) + (i == 0 ? log_lm : log_p[i - 1]) : -INFINITY;
        if (part[i] > top) top = part[i];
    }
    if (top == -INFINITY) return top;
    for (int i = 0; i <= MEMORY_SIDES; i++)
        sum += exp(part[i] - top);
    return top + log(sum);
}
