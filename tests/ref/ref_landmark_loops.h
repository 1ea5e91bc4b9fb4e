/* ref_landmark_loops.h -- the loops of ref_landmark.h for one type: included once with double, once with float.
 *
 * Every key that a row reads is in one group: 0 for tokens of its own block and for earlier landmarks, 1 + c for the
 * tokens of block c. A group has one softmax; a token of block c has its softmax times that of its landmark. */
#include "tests/ref/ref_landmark.h"
#include <math.h>
#include <stdlib.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define REF(name) JOIN(PREFIX, name)

/* One row of one head. score, weight: by key position; group -1: not read. */
struct grouped { int64_t *group; REAL *score, *weight; };

static struct grouped grouped_create(int64_t keys) {
    return (struct grouped){calloc((size_t)keys, sizeof(int64_t)), calloc((size_t)keys, sizeof(REAL)),
                            calloc((size_t)keys, sizeof(REAL))};
}
static void grouped_free(struct grouped *g) { free(g->group), free(g->score), free(g->weight); }

/* How many earlier landmarks come before that at `at` in the order of scores. */
static int64_t grouped_rank(const struct grouped *g, int64_t at, int64_t end, int64_t size) {
    int64_t before = 0;
    for (int64_t p = size - 1; p < end; p += size)
        before += g->score[p] > g->score[at] || (g->score[p] == g->score[at] && p < at);
    return before;
}

static void grouped_scores(struct grouped *g, const float *q, const float *k, int64_t i, int h,
                           struct ref_landmark s) {
    int64_t d = (int64_t)s.heads * s.dim, size = s.block + 1, begin = i / size * size;
    REAL slope = (REAL)pow(2.0, -8.0 * (h + 1) / s.heads);
    for (int64_t j = 0; j <= i; j++) {
        bool landmark = j % size == s.block, own = j >= begin;
        int64_t distance = own ? i - j : landmark ? i - j : j / size * size + s.block - j;
        if (!own && landmark && distance > s.window) distance = s.window;
        REAL dot = 0;
        for (int t = 0; t < s.dim; t++) dot += (REAL)q[h * s.dim + t] * (REAL)k[j * d + h * s.dim + t];
        g->score[j] = dot / (REAL)sqrt(s.dim) - slope * (REAL)distance;
        g->group[j] = own && landmark ? -1 : own || landmark ? 0 : 1 + j / size;
    }
    for (int64_t p = s.block; p < begin && s.topk > 0; p += size)
        if (grouped_rank(g, p, begin, size) >= s.topk)
            for (int64_t j = p - s.block; j <= p; j++) g->group[j] = -1;
}

static REAL grouped_softmax(struct grouped *g, int64_t keys, int64_t group) {
    REAL top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++)
        if (g->group[j] == group && g->score[j] > top) top = g->score[j];
    for (int64_t j = 0; j < keys; j++)
        if (g->group[j] == group) sum += (REAL)exp(g->score[j] - top);
    for (int64_t j = 0; j < keys; j++)
        if (g->group[j] == group) g->weight[j] = (REAL)exp(g->score[j] - top) / sum;
    return top + (REAL)log(sum);
}

/* The softmax of each group; returns the log sum exp of group 0. */
static REAL grouped_weights(struct grouped *g, int64_t i, struct ref_landmark s) {
    int64_t size = s.block + 1;
    REAL lse = grouped_softmax(g, i + 1, 0);
    for (int64_t c = 0; c < i / size; c++)
        if (g->group[c * size] > 0) grouped_softmax(g, i + 1, 1 + c);
    return lse;
}

/* Whether key j's value is read, and by which weight in all. */
static REAL grouped_value(const struct grouped *g, int64_t j, struct ref_landmark s) {
    int64_t size = s.block + 1;
    if (g->group[j] < 0 || j % size == s.block) return 0;
    return g->group[j] == 0 ? g->weight[j] : g->weight[j] * g->weight[j / size * size + s.block];
}

void REF(landmark)(REAL *o, REAL *lse, const float *q, const float *k, const float *v, struct ref_landmark s) {
    int64_t d = (int64_t)s.heads * s.dim;
    struct grouped g = grouped_create(s.first + s.n);
    for (int64_t r = 0; r < s.n; r++)
        for (int h = 0; h < s.heads; h++) {
            grouped_scores(&g, q + r * d, k, s.first + r, h, s);
            lse[r * s.heads + h] = grouped_weights(&g, s.first + r, s);
            for (int t = h * s.dim; t < (h + 1) * s.dim; t++) {
                REAL sum = 0;
                for (int64_t j = 0; j <= s.first + r; j++) sum += grouped_value(&g, j, s) * (REAL)v[j * d + t];
                o[r * d + t] = sum;
            }
        }
    grouped_free(&g);
}

/* From the gradient of each key's softmax weight, in dweight, to that of its score: group by group. */
static void grouped_backward(struct grouped *g, REAL *dweight, int64_t keys, int64_t group) {
    REAL mean = 0;
    for (int64_t j = 0; j < keys; j++)
        if (g->group[j] == group) mean += g->weight[j] * dweight[j];
    for (int64_t j = 0; j < keys; j++)
        if (g->group[j] == group) dweight[j] = g->weight[j] * (dweight[j] - mean);
}

/* dweight [i + 1] becomes the gradient of the scores. dout, v: this head's columns. */
static void grouped_dscores(REAL *dweight, struct grouped *g, const float *dout, const float *v, int64_t i,
                            struct ref_landmark s) {
    int64_t d = (int64_t)s.heads * s.dim, size = s.block + 1;
    for (int64_t j = 0; j <= i; j++) dweight[j] = 0;
    for (int64_t j = 0; j <= i; j++) {
        if (g->group[j] < 0 || j % size == s.block) continue;
        REAL dot = 0;
        for (int t = 0; t < s.dim; t++) dot += (REAL)dout[t] * (REAL)v[j * d + t];
        int64_t landmark = j / size * size + s.block;
        dweight[j] = g->group[j] == 0 ? dot : dot * g->weight[landmark];
        if (g->group[j] > 0) dweight[landmark] += dot * g->weight[j];
    }
    for (int64_t group = 0; group <= i / size; group++) grouped_backward(g, dweight, i + 1, group);
}

void REF(landmark_backward)(REAL *dq, REAL *dk, REAL *dv, const float *dout, const float *q, const float *k,
                            const float *v, struct ref_landmark s) {
    int64_t d = (int64_t)s.heads * s.dim;
    REAL *dscore = calloc((size_t)s.n, sizeof *dscore), scale = 1 / (REAL)sqrt(s.dim);
    struct grouped g = grouped_create(s.n);
    for (int64_t i = 0; i < s.n * d; i++) dq[i] = dk[i] = dv[i] = 0;
    for (int64_t i = 0; i < s.n; i++)
        for (int h = 0; h < s.heads; h++) {
            int64_t at = i * d + h * s.dim;
            grouped_scores(&g, q + i * d, k, i, h, s);
            grouped_weights(&g, i, s);
            grouped_dscores(dscore, &g, dout + at, v + h * s.dim, i, s);
            for (int64_t j = 0; j <= i; j++) {
                REAL value = grouped_value(&g, j, s);
                for (int t = 0; t < s.dim && g.group[j] >= 0; t++) {
                    dq[at + t] += dscore[j] * scale * (REAL)k[j * d + h * s.dim + t];
                    dk[j * d + h * s.dim + t] += dscore[j] * scale * (REAL)q[at + t];
                    dv[j * d + h * s.dim + t] += value * (REAL)dout[at + t];
                }
            }
        }
    grouped_free(&g);
    free(dscore);
}
