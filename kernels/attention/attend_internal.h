/* attend_internal.h -- softmax(q K^T / sqrt(dh) + bias) V for a tile of queries of one head and runs of keys: the core
 * of attention, chunk_attention and gca on a CPU.
 *
 * A vector lane is a query: a tile is transposed once (q^T, dh x 64), then scores, maxima, sums and outputs are
 * computed lane by lane. So no sum crosses a vector, K and V are read in place, and dh may be any number. The softmax
 * is online: it keeps a running maximum and sum, and rescales the outputs when the maximum rises. Few queries
 * (decoding) would leave most lanes empty, so up to ATTEND_SINGLE_ROWS rows are computed one by one, with dh across the
 * lanes. */
#pragma once
#include "kernels/device/device.h"
#include <stdbool.h>
#include <stdint.h>

enum { ATTEND_ROWS = 64, ATTEND_KEYS = 64, ATTEND_SINGLE_ROWS = 4, ATTEND_DIM_MAX = 512 };

struct attend {
    int rows, dim, width;                /* width: lanes in use; 0: rows one by one */
    float scale;
    const float *q; int64_t q_stride;
    float *queries;                      /* [dim][width] */
    float *scores;                       /* [ATTEND_KEYS][width], or [rows][ATTEND_KEYS] */
    float *out;                          /* [dim][width], or [rows][dim]: not yet divided by sum */
    float *total;                        /* the same shape: see attend_add */
    float *top, *sum;                    /* [ATTEND_ROWS] running maximum, running sum of exp(score - top) */
};

/* Position of the first query minus that of the first key; a query sees distances 0 .. window. */
struct attend_bias { int64_t distance; int window; float slope; };

/* Bytes of scratch memory of a tile, and of the keys and values of a run. */
static inline size_t attend_bytes(int dim) {
    return (2 + ATTEND_KEYS + 3 * (size_t)dim) * ATTEND_ROWS * sizeof(float);
}
static inline size_t attend_wide_bytes(int dim) { return (size_t)2 * ATTEND_KEYS * (size_t)dim * sizeof(float); }
/* Loads a tile of 1 .. ATTEND_ROWS queries and sets the total to zero. q must stay until the last attend_keys. */
void attend_begin(struct attend *a, void *scratch, const float *q, int64_t stride, int rows, int dim);
/* Begins one softmax; null_key: it already contains one key of score 0 and value 0. */
void attend_softmax(struct attend *a, bool null_key);
/* Adds 1 .. ATTEND_KEYS keys. bias NULL: none. */
void attend_keys(struct attend *a, const float *keys, int64_t key_stride, const float *values, int64_t value_stride,
                 int n, const struct attend_bias *bias);
/* A run of keys and values, float32 or bf16. bias: of each head; they differ in the slope alone. */
struct attend_run {
    const void *keys, *values;
    int64_t key_stride, value_stride;
    int n;
    bool bf16;
    const struct attend_bias *bias;
};
/* The same for adjacent heads of at most ATTEND_SINGLE_ROWS queries: head h has the columns from h * dim on. */
void attend_keys_heads(struct attend *a, int heads, struct attend_run run);
/* The same as attend_keys with keys and values in bf16. wide: 2 * ATTEND_KEYS * dim floats of scratch memory. */
void attend_keys_bf16(struct attend *a, float *wide, struct attend_run run);
/* total += weight * result of this softmax (0 if it has no key). */
void attend_add(struct attend *a, float weight);
/* total = keep[r] total + weight[r] result of this softmax, of each query r < ATTEND_ROWS. */
void attend_mix(struct attend *a, const float *keep, const float *weight);
/* Stores the log sum exp of this softmax, of each query, into column `head` of rows from `row` on; -inf if it had no
 * key. lse.data NULL: stores nothing. */
void attend_keep(const struct attend *a, struct mat lse, int64_t row, int64_t head);
/* Writes the total. */
void attend_store(const struct attend *a, float *o, int64_t stride);
