/* ref_token_memory_loops.h -- the loops of the oracle of token memories, for one REAL and PREFIX. */
#include "tests/ref/ref_token_memory.h"
#include <math.h>
#include <stdlib.h>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define NAME(op) JOIN(PREFIX, _token_memory##op)

static REAL loops_exp(REAL x) { return (REAL)(sizeof(REAL) == 4 ? (double)expf((float)x) : exp((double)x)); }
static REAL loops_log(REAL x) { return (REAL)(sizeof(REAL) == 4 ? (double)logf((float)x) : log((double)x)); }

static const float *loops_key(const struct ref_token_memory *m, int64_t at, int past) {
    return (past ? m->past_keys : m->slot_keys) + at * m->d;
}
static REAL loops_distance(const struct ref_token_memory *m, int64_t row, const float *key) {
    REAL own = 0, square = 0, dot = 0;
    for (int64_t i = 0; i < m->d; i++) {
        REAL s = (REAL)m->states[row * m->d + i], k = (REAL)key[i];
        own += s * s, square += k * k, dot += s * k;
    }
    REAL x = own + square - 2 * dot;
    return x < 0 ? 0 : x;
}

void NAME()(REAL *stats, REAL *w, const struct ref_token_memory *m) {
    int64_t columns = ref_token_memory_columns(m), n = m->n;
    for (int64_t r = 0; r < n; r++) {
        REAL near = (REAL)INFINITY, sum = 0, hit = 0, squares = 0, *own = w + r * columns, hit_near = (REAL)INFINITY;
        int past;
        for (int64_t i = 0; i < columns; i++) {
            int64_t at = ref_token_memory_key(m, r, i, &past);
            own[i] = at < 0 ? (REAL)INFINITY : loops_distance(m, r, loops_key(m, at, past));
            int32_t value = at < 0 ? -1 : (past ? m->past_value : m->slot_value)[at];
            if (own[i] < near) near = own[i];
            if (value >= 0 && value == m->target[r] && own[i] < hit_near) hit_near = own[i];
        }
        for (int64_t i = 0; i < columns; i++) {
            int64_t at = ref_token_memory_key(m, r, i, &past);
            int32_t value = at < 0 ? -1 : (past ? m->past_value : m->slot_value)[at];
            if (value >= 0 && value == m->target[r]) hit += loops_exp((hit_near - own[i]) / (REAL)m->tau);
            own[i] = at < 0 ? 0 : loops_exp((near - own[i]) / (REAL)m->tau);
            sum += own[i];
        }
        for (int64_t i = 0; i < columns && sum != 0; i++) own[i] /= sum, squares += own[i] * own[i];
        int empty = sum == 0;
        stats[r] = hit == 0 ? (REAL)-INFINITY : (near - hit_near) / (REAL)m->tau + loops_log(hit) - loops_log(sum);
        stats[n + r] = empty ? (REAL)-INFINITY : loops_log(sum) - near / (REAL)m->tau;
        stats[2 * n + r] = near;
        stats[3 * n + r] = empty ? 0 : squares;
        stats[4 * n + r] = empty ? 0 : 1 / sum;
    }
}

void NAME(_backward)(REAL *dstates, REAL *dslots, REAL *dpast, REAL *dtau, const float *dlog_p, const float *dlse,
                     int sizes, const struct ref_token_memory *m) {
    int64_t columns = ref_token_memory_columns(m), n = m->n;
    REAL *stats = malloc((size_t)(5 * n + 1) * sizeof *stats), *w = malloc((size_t)(n * columns + 1) * sizeof *w);
    NAME()(stats, w, m);
    for (int64_t r = 0; r < n; r++) {
        REAL of_p = stats[r] == (REAL)-INFINITY ? 0 : (REAL)dlog_p[r];
        for (int64_t i = 0; i < columns; i++) {
            int past;
            int64_t at = ref_token_memory_key(m, r, i, &past);
            if (at < 0) continue;
            const float *key = loops_key(m, at, past);
            int32_t value = (past ? m->past_value : m->slot_value)[at];
            REAL distance = loops_distance(m, r, key), u = ((REAL)dlse[r] - of_p) * w[r * columns + i];
            if (value == m->target[r] && of_p != 0)
                u += of_p * loops_exp(-distance / (REAL)m->tau - stats[n + r] - stats[r]);
            REAL *dkey = (past ? dpast : dslots) + at * m->d;
            if (sizes && u < 0) u = -u;
            for (int64_t c = 0; c < m->d; c++) {
                REAL apart = (REAL)m->states[r * m->d + c] - (REAL)key[c];
                if (sizes && apart < 0) apart = -apart;
                dstates[r * m->d + c] += (sizes ? 2 : -2) / (REAL)m->tau * u * apart;
                dkey[c] += 2 / (REAL)m->tau * u * apart;
            }
            *dtau += u * distance / ((REAL)m->tau * (REAL)m->tau);
        }
    }
    free(stats), free(w);
}

/* -log((1 - g) p_lm + g p_mem), g = 1 / (1 + exp(-gate)), and its derivatives. */
REAL NAME(_mix)(REAL *dgate, REAL *dlog_lm, REAL *dlog_p, float log_lm, float log_p, float gate) {
    REAL g = 1 / (1 + loops_exp(-(REAL)gate)), lm = loops_exp((REAL)log_lm), memory = loops_exp((REAL)log_p);
    REAL p = (1 - g) * lm + g * memory;
    *dgate = -g * (1 - g) * (memory - lm) / p;
    *dlog_lm = -(1 - g) * lm / p;
    *dlog_p = -g * memory / p;
    return -loops_log(p);
}
