/* decode_rows.h -- decoding on a GPU: one position each of several texts through all layers and the head.
 *
 * A pass reads the weights once for all of its texts. It computes what the ops compute one by one (model.md §2, §5).
 * As in the step of one text (kernels/decode_step/decode_step.h) the residual stream is float32, and rows that a norm
 * has scaled enter products as two bf16 numbers each; results of attention and of SwiGLU enter as one. Every sum of a
 * row has an order that depends on the model's shape and the row's position alone. So a row's logits, keys and values
 * have the same bits whatever rows are computed with it, and in whatever order. They are not those of decode_step, but
 * closer to them than bf16 rounding of the residual stream would be.
 *
 * A landmark is a position like any other. Retrieval stays with the caller. */
#pragma once
#include "kernels/decode_step/decode_step.h"

enum { DECODE_ROWS_MAX = 64, DECODE_ROWS_CALLS = 4 };

/* Activations of DECODE_ROWS_MAX rows. One thread at a time. */
struct decode_rows;
/* Weights are read as they are, without a copy: config's matrices are borrowed until decode_rows_free. *out is NULL if
 * the kernels do not support the device, type or shape: they take bf16, heads of 64 or 128, d and f multiples of 8. */
enum status decode_rows_create(struct decode_rows **out, struct device *dev, const struct decode_step_config *config);
void decode_rows_free(struct decode_rows *r);               /* NULL is fine */

/* One text's row. Pointers: memory of the device. */
struct decode_row {
    int64_t position;                    /* < 0: no text */
    /* Keys and values of layer i: bf16 [ring_rows, 2d] at ring + i * ring_step bytes; position p is row p % ring_rows.
     * ring_rows: at least window + 1. The pass adds the row's own. */
    unsigned char *ring;
    int64_t ring_step;
    int32_t ring_rows, id;
    const int32_t *picked;               /* the id, if an earlier op writes it; NULL: `id` */
    float *logits;                       /* [V], or within the device's reach (device_reach); NULL: not wanted */
    void *lower;                         /* [d] in bf16: the input of the first layer of group 0; NULL: not wanted */
    /* What each group reads, as decode_step_fusion: slot and weight [k]; k 0: nothing. */
    struct decode_row_chunks {
        const void *keys, *values;
        const int32_t *slot;
        const float *weight;
        int64_t stride;                  /* numbers from row to row of the pool */
        int32_t k, slot_rows, live_rows, off_by_one;
    } chunks[DECODE_STEP_GROUPS_MAX];
};
/* 1 <= n <= DECODE_ROWS_MAX rows of different texts (a text's rows would have to see each other's keys). At most
 * DECODE_ROWS_CALLS calls at a time: before another one, wait for the first of them. The same bits each time. */
void decode_rows_run(struct decode_rows *r, const struct decode_row *rows, int n);
