/* ref_backward_loops.h -- the loops of ref_backward.h for one type: included once with double, once with float. */
#include "tests/ref/ref_backward.h"
#include <math.h>
#include <stdlib.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define REF(name) JOIN(PREFIX, name)

void REF(norm_backward)(REAL *dx, REAL *dw, const float *dy, const float *x, const float *w, int64_t n, int64_t d, float eps) {
    for (int64_t r = 0; r < n; r++) {
        REAL squares = 0, mean = 0;
        for (int64_t i = 0; i < d; i++) squares += (REAL)x[r * d + i] * (REAL)x[r * d + i];
        REAL rstd = (REAL)(1 / sqrt(squares / (REAL)d + (REAL)eps));
        for (int64_t i = 0; i < d; i++) mean += (REAL)dy[r * d + i] * (REAL)w[i] * (REAL)x[r * d + i] * rstd;
        mean /= (REAL)d;
        for (int64_t i = 0; i < d; i++) {
            REAL hat = (REAL)x[r * d + i] * rstd;
            dx[r * d + i] += rstd * ((REAL)dy[r * d + i] * (REAL)w[i] - hat * mean);
            dw[i] += (REAL)dy[r * d + i] * hat;
        }
    }
}

void REF(rope_backward)(REAL *dx, const float *dy, int64_t n, int heads, int dim, int period, float theta) {
    for (int64_t r = 0; r < n; r++)
        for (int h = 0; h < heads; h++)
            for (int t = 0; t < dim / 2; t++) {
                double angle = (double)(r % period) * pow((double)theta, -2.0 * t / dim);
                int64_t at = (r * heads + h) * dim + t;
                REAL a = (REAL)dy[at], b = (REAL)dy[at + dim / 2], c = (REAL)cos(angle), s = (REAL)sin(angle);
                dx[at] = a * c + b * s;
                dx[at + dim / 2] = b * c - a * s;
            }
}

void REF(swiglu_backward)(REAL *dgate, REAL *dup, const float *dy, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        REAL g = (REAL)gate[i], s = 1 / (1 + (REAL)exp(-g));
        dgate[i] = (REAL)dy[i] * (REAL)up[i] * s * (1 + g * (1 - s));
        dup[i] = (REAL)dy[i] * g * s;
    }
}

void REF(embed_backward)(REAL *dtable, const float *dx, const int32_t *ids, int32_t pad_id, int64_t n, int64_t d) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < d && ids[r] >= 0 && ids[r] != pad_id; i++) dtable[ids[r] * d + i] += (REAL)dx[r * d + i];
}

static void loss_row(REAL *dx, REAL *dtable, REAL *logits, const float *x, const float *table, int64_t target, int64_t d,
                     int64_t words, REAL scale, float (*store)(float)) {
    REAL top = -INFINITY, sum = 0;
    for (int64_t w = 0; w < words; w++) {
        logits[w] = 0;
        for (int64_t i = 0; i < d; i++) logits[w] += (REAL)x[i] * (REAL)table[w * d + i];
        top = logits[w] > top ? logits[w] : top;
    }
    for (int64_t w = 0; w < words; w++) sum += (REAL)exp(logits[w] - top);
    for (int64_t w = 0; w < words; w++) {
        REAL g = scale * ((REAL)exp(logits[w] - top) / sum - (w == target));
        if (store) g = (REAL)store((float)g);
        for (int64_t i = 0; i < d; i++) {
            dx[i] += g * (REAL)table[w * d + i];
            dtable[w * d + i] += g * (REAL)x[i];
        }
    }
}

/* dx and dtable are added to. */
void REF(loss_backward)(REAL *dx, REAL *dtable, const float *x, const float *table, const int32_t *targets, int64_t n, int64_t d,
                        int64_t words, float scale, float (*store)(float)) {
    REAL *logits = malloc((size_t)words * sizeof *logits);
    for (int64_t r = 0; r < n; r++)
        if (targets[r] >= 0) loss_row(dx + r * d, dtable, logits, x + r * d, table, targets[r], d, words, (REAL)scale, store);
    free(logits);
}

void REF(contrastive)(REAL *nll, REAL *dx, REAL *dtable, const float *x, const float *table, const int32_t *targets,
                      const int32_t *excluded, int64_t n, int64_t d, int64_t words, float scale, float weight, float (*store)(float)) {
    REAL *logit = malloc((size_t)words * sizeof *logit);
    for (int64_t r = 0; r < n; r++, x += d, dx += d) {
        REAL top = -INFINITY, sum = 0;
        nll[r] = 0;
        for (int64_t w = 0; w < words; w++) {
            logit[w] = 0;
            for (int64_t i = 0; i < d; i++) logit[w] += (REAL)scale * (REAL)x[i] * (REAL)table[w * d + i];
            if (w == excluded[r]) logit[w] = -INFINITY;
            top = logit[w] > top ? logit[w] : top;
        }
        if (targets[r] < 0) continue;
        for (int64_t w = 0; w < words; w++) sum += (REAL)exp(logit[w] - top);
        nll[r] = top + (REAL)log(sum) - logit[targets[r]];
        for (int64_t w = 0; w < words; w++) {
            REAL g = (REAL)weight * (REAL)scale * ((REAL)exp(logit[w] - top) / sum - (w == targets[r]));
            if (store) g = (REAL)store((float)g);
            for (int64_t i = 0; i < d; i++) {
                dx[i] += g * (REAL)table[w * d + i];
                dtable[w * d + i] += g * (REAL)x[i];
            }
        }
    }
    free(logit);
}

void REF(weigh)(REAL *weight, const float *score, int64_t n, int k) {
    for (int64_t r = 0; r < n; r++) {
        REAL top = -INFINITY, sum = 0;
        for (int i = 0; i < k; i++) top = (REAL)score[r * k + i] > top ? (REAL)score[r * k + i] : top;
        for (int i = 0; i < k; i++) sum += isinf(top) ? 0 : (REAL)exp((REAL)score[r * k + i] - top);
        for (int i = 0; i < k; i++) weight[r * k + i] = isinf(top) ? 0 : (REAL)exp((REAL)score[r * k + i] - top) / sum;
    }
}

void REF(topk_backward)(REAL *dq, REAL *dl, const float *dweight, const float *weight, const int64_t *index, const float *q,
                        const float *l, int64_t n, int64_t d, int k) {
    for (int64_t r = 0; r < n; r++) {
        REAL sum = 0;
        for (int i = 0; i < k; i++) sum += (REAL)weight[r * k + i] * (REAL)dweight[r * k + i];
        for (int i = 0; i < k; i++) {
            if (index[r * k + i] < 0) continue;
            REAL score = (REAL)weight[r * k + i] * ((REAL)dweight[r * k + i] - sum) / (REAL)sqrt((REAL)d);
            for (int64_t t = 0; t < d; t++) {
                dq[r * d + t] += score * (REAL)l[index[r * k + i] * d + t];
                dl[index[r * k + i] * d + t] += score * (REAL)q[r * d + t];
            }
        }
    }
}

REAL REF(squares)(const float *g, int64_t n) {
    REAL sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (REAL)g[i] * (REAL)g[i];
    return sum;
}

void REF(adamw)(REAL *p, REAL *m, REAL *v, const float *g, int64_t n, struct ref_adamw s) {
    REAL norm = (REAL)sqrt((double)REF(squares)(g, n)), scale = s.clip > 0 && norm > (REAL)s.clip ? (REAL)s.clip / norm : 1;
    REAL left1 = (REAL)(1 - pow((double)s.beta1, (double)s.step)), left2 = (REAL)(1 - pow((double)s.beta2, (double)s.step));
    for (int64_t i = 0; i < n; i++) {
        REAL x = scale * (REAL)g[i];
        m[i] = (REAL)s.beta1 * m[i] + (1 - (REAL)s.beta1) * x;
        v[i] = (REAL)s.beta2 * v[i] + (1 - (REAL)s.beta2) * x * x;
        p[i] -= (REAL)s.lr * (m[i] / left1 / ((REAL)sqrt(v[i] / left2) + (REAL)s.eps) + (REAL)s.decay * p[i]);
    }
}
