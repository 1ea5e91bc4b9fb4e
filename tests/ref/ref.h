/* ref.h -- the oracle: every op in plain loops, no BLAS, no threads, straight from the headers' equations.
 *
 * Each loop exists twice from one text (ref_loops.inc): ref_* sums in double and is the reference; naive_* does the
 * same in float and shows the accuracy of that storage type (tolerance: twins.h). All arrays are dense. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct ref_attention { int64_t n, first; int heads, dim, window; };
struct ref_rows { int64_t n, d; float eps; };
struct ref_chunk_attention { int64_t chunks; int heads, dim, positions; };
struct ref_gca {
    int64_t n;
    int heads, dim, slot_rows, live_rows, blocks, k;
    bool off_by_one;
    const int64_t *row_begin;
    const int32_t *slot;
    const float *weight;                 /* NULL: combine by lse */
};

#define REF_DECLARE(prefix, real) \
    void prefix##_matmul(real *y, const float *x, const float *w, int64_t n, int64_t out, int64_t in, \
                         const float *add); \
    void prefix##_norm(real *y, real *rstd, const float *x, const float *w, int64_t n, int64_t d, float eps); \
    void prefix##_rope(real *y, const float *x, int64_t n, int heads, int dim, int period, float theta); \
    void prefix##_attention(real *o, const float *q, const float *k, const float *v, struct ref_attention s); \
    void prefix##_chunk_attention(real *o, const float *q, const float *k, const float *v, \
                                  struct ref_chunk_attention s); \
    void prefix##_gca(real *o, real *part, real *lse, const float *q, const float *k, const float *v, \
                      struct ref_gca s); \
    void prefix##_layer_norm(real *y, const float *x, const float *add, const float *bias, const float *w, \
                             const float *b, struct ref_rows s); \
    void prefix##_gelu(real *y, const float *x, const float *bias, int64_t n, int64_t d); \
    void prefix##_mean(real *y, const float *x, const int64_t *begin, int64_t n, int64_t d, bool unit); \
    void prefix##_add(real *y, const float *a, const float *b, int64_t n); \
    void prefix##_swiglu(real *y, const float *gate, const float *up, int64_t n); \
    void prefix##_loss(real *nll, const float *x, const float *table, const int32_t *targets, int64_t n, int64_t d, \
                       int64_t words); \
    void prefix##_scores(real *s, const float *q, const float *l, int64_t n, int64_t e, int64_t d);

REF_DECLARE(ref, double)
REF_DECLARE(naive, float)
