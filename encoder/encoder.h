/* encoder.h -- the chunk encoder: a chunk's tokens (or hidden rows) to its landmark vector and its K, V (model.md §3).
 *
 * A chunk is `chunk` real ids and the landmark behind them (S = chunk + 1 positions). Short chunks are padded with
 * pad_id: give -1. Results do not depend, to the bit, on which chunks are encoded together nor on the number of threads.
 * Landmarks alone take a shorter way than states, keys or values (the last layer is worked out for the landmark's row
 * only), so landmarks asked for together with those equal landmarks asked for alone to rounding, not to the bit.
 * One thread at a time per encoder; after create nothing is allocated. */
#pragma once
#include "kernels/device.h"
#include "kernels/model_config.h"
#include "kernels/params.h"

struct encoder;
/* Weights and device are borrowed until encoder_free. max_chunks: encoded at once; more are cut into batches.
 * 0: chosen so that a batch fills the device's threads. */
enum status encoder_create(struct encoder **out, struct device *dev, const struct model_config *config,
                           const struct params *params, int max_chunks);
void encoder_free(struct encoder *e);                     /* NULL is fine */
size_t encoder_bytes(const struct encoder *e);            /* activations held */

/* Where results go; any member may be NULL. */
struct encoder_output {
    float *landmarks;                    /* [n, d]: row chunk of the encoder's output, lmk_k_proj applied where the config has it */
    float *states;                       /* [n, S, d]: after encoder.norm */
    float *const *keys, *const *values;  /* n pointers to [slot_rows = 64, d]: live rows filled, row 63 of a 63-chunk zeroed */
};
/* ids [n, chunk] (encoder_input tokens only). */
void encoder_encode(struct encoder *e, const struct encoder_output *out, const int32_t *ids, int64_t n);
/* hidden [n, S, d]: outputs of the last lower layer (encoder_input hidden only). */
void encoder_encode_hidden(struct encoder *e, const struct encoder_output *out, const float *hidden, int64_t n);
