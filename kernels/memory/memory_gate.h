/* memory_gate.h -- the inputs of a token memory's gate before a token, and the weights that it computes
 * (docs/token-memory.md). One set of formulas for programs in C and for kernels.
 *
 *   p = g_0 p_lm + g_1 p_own + g_2 p_corpus     g = softmax(0, a_1, a_2) over the memories that have entries
 *   a = W2 tanh(W1 f + b1) + b2                 f: features, standardised; 0 for a memory without entries
 *
 * Side 0 is the text's own past, side 1 the corpus. Logarithms are natural; one of 0 is -infinity. */
#pragma once
#include <math.h>
#include <stdbool.h>
#ifdef __CUDACC__
#define MEMORY_GATE_FUNCTION static __host__ __device__ inline
#else
#define MEMORY_GATE_FUNCTION static inline
#endif

enum { MEMORY_SIDES = 2 };

/* Figures of a search: the number of its chunks, and the best, the k-th and the mean score over all k (0 if fewer
 * are found); BM25 scores per token of the query. For the text's own past: its positions, and 0. */
struct memory_marks { float entries, best, kth, mean; };

/* Inputs from one memory before a token. They do not depend on the next token. */
struct memory_evidence {
    float entries;                       /* struct memory_marks; 0: nothing is read */
    float nearest, lse, squares;         /* as in struct token_memory_stats */
    float top, of_top, lm_of_top;        /* log p_mem of its own top token and of the model's; log p_lm of the former */
    float token;                         /* the memory's top token, -1: none */
    float best, kth, mean;               /* struct memory_marks */
};
struct memory_lm_evidence { float entropy, largest; };     /* of p_lm, in nats; log of the largest p_lm */

enum { MEMORY_GATE_HIDDEN = 16, MEMORY_SIDE_FEATURES = 11, MEMORY_FEATURES = 3 + MEMORY_SIDES * MEMORY_SIDE_FEATURES };
/* The parameters from w1 on have the order of the members, so that they can be fitted as one array. */
struct memory_gate {
    double mean[MEMORY_FEATURES], deviation[MEMORY_FEATURES];
    double w1[MEMORY_GATE_HIDDEN][MEMORY_FEATURES], b1[MEMORY_GATE_HIDDEN];
    double w2[MEMORY_SIDES][MEMORY_GATE_HIDDEN], b2[MEMORY_SIDES];
};

/* The source of a feature: -1: the model, or both memories; else the side whose memory it describes. */
MEMORY_GATE_FUNCTION int memory_feature_side(int feature) {
    return feature < 3 ? -1 : (feature - 3) / MEMORY_SIDE_FEATURES;
}

/* Smaller log-probabilities (as of a token that a memory does not have) count as -12. */
MEMORY_GATE_FUNCTION double memory_gate_log(float log_p) {
    return (double)log_p > -12 ? (double)log_p : -12;
}
MEMORY_GATE_FUNCTION void memory_side_features(double f[MEMORY_SIDE_FEATURES], const struct memory_evidence *m) {
    int n = 0;
    f[n++] = log((double)m->entries);
    f[n++] = (double)m->nearest, f[n++] = (double)m->lse, f[n++] = (double)m->squares;
    f[n++] = memory_gate_log(m->top);
    f[n++] = memory_gate_log(m->of_top);
    f[n++] = memory_gate_log(m->lm_of_top);
    f[n++] = m->top == m->of_top; /* both would print the same token */
    f[n++] = (double)m->best;
    f[n++] = (double)m->kth;
    f[n++] = (double)m->mean;
}
/* Inputs of the gate before they are standardised. */
MEMORY_GATE_FUNCTION void memory_gate_features(double f[MEMORY_FEATURES], const struct memory_lm_evidence *lm,
                                               const struct memory_evidence of[MEMORY_SIDES]) {
    for (int i = 2; i < MEMORY_FEATURES; i++)
        f[i] = 0;
    f[0] = (double)lm->entropy, f[1] = (double)lm->largest;
    f[2] = of[0].entries > 0 && of[1].entries > 0 && of[0].token == of[1].token;
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (of[side].entries > 0) memory_side_features(f + 3 + side * MEMORY_SIDE_FEATURES, &of[side]);
}
/* A feature as the gate reads it: standardised, -5 to 5, so that another store or a longer text does not drive the gate
 * far from what it was fitted on; 0 without its memory. */
MEMORY_GATE_FUNCTION double memory_gate_standard(const struct memory_gate *gate, int feature, double value,
                                                 bool there) {
    double x = (value - gate->mean[feature]) / gate->deviation[feature];
    return !there ? 0 : x > 5 ? 5 : x < -5 ? -5 : x;
}
/* A hidden unit, from standardised features. */
MEMORY_GATE_FUNCTION double memory_gate_unit(const struct memory_gate *gate, int unit, const double *f) {
    double x = gate->b1[unit];
    for (int i = 0; i < MEMORY_FEATURES; i++)
        x += gate->w1[unit][i] * f[i];
    return tanh(x);
}
/* a of a side, from the hidden units. */
MEMORY_GATE_FUNCTION double memory_gate_side(const struct memory_gate *gate, int side, const double *hidden) {
    double a = gate->b2[side];
    for (int h = 0; h < MEMORY_GATE_HIDDEN; h++)
        a += gate->w2[side][h] * hidden[h];
    return a;
}
/* Weights of the model and of each side: they sum to 1, and that of a side without entries is 0. */
MEMORY_GATE_FUNCTION void memory_gate_softmax(double g[1 + MEMORY_SIDES], const double a[MEMORY_SIDES],
                                              const struct memory_evidence of[MEMORY_SIDES]) {
    double top = 0, sum = 0;
    for (int side = 0; side < MEMORY_SIDES; side++)
        if (of[side].entries > 0 && a[side] > top) top = a[side];
    for (int i = 0; i <= MEMORY_SIDES; i++) {
        g[i] = i == 0 ? exp(-top) : of[i - 1].entries > 0 ? exp(a[i - 1] - top) : 0;
        sum += g[i];
    }
    for (int i = 0; i <= MEMORY_SIDES; i++)
        g[i] /= sum;
}
MEMORY_GATE_FUNCTION void memory_gate_weights(double g[1 + MEMORY_SIDES], const struct memory_gate *gate,
                                              const struct memory_lm_evidence *lm,
                                              const struct memory_evidence of[MEMORY_SIDES]) {
    double f[MEMORY_FEATURES], hidden[MEMORY_GATE_HIDDEN], a[MEMORY_SIDES];
    memory_gate_features(f, lm, of);
    for (int i = 0; i < MEMORY_FEATURES; i++) {
        int side = memory_feature_side(i);
        f[i] = memory_gate_standard(gate, i, f[i], side < 0 || of[side].entries > 0);
    }
    for (int h = 0; h < MEMORY_GATE_HIDDEN; h++)
        hidden[h] = memory_gate_unit(gate, h, f);
    for (int side = 0; side < MEMORY_SIDES; side++)
        a[side] = memory_gate_side(gate, side, hidden);
    memory_gate_softmax(g, a, of);
}
