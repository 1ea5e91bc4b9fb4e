/* encoder.h -- the chunk encoder: a chunk's tokens (or hidden rows) to its landmark vector and its K, V (model.md §3).
 *
 * A chunk is `chunk` real ids and the landmark behind them (S = chunk + 1 positions). Short chunks are padded with
 * pad_id: give -1. Results do not depend, to the bit, on which chunks are encoded together nor on the number of threads.
 * Landmarks alone take a shorter way than states, keys or values (the last layer is worked out for the landmark's row
 * only), so landmarks asked for together with those equal landmarks asked for alone to rounding, not to the bit.
 * One thread at a time per encoder; after create nothing is allocated.
 *
 * Any device: it computes in the weights' type (bf16 on a GPU, or float32). ids are memory of this process; everything
 * else is memory of the device, and is there when the device has come so far (device_sync, or a download). */
#pragma once
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

struct encoder;
/* Weights (model/weights.h) and device are borrowed until encoder_free. max_chunks: encoded at once; more are cut into
 * batches. 0: chosen so that a batch fills the device. */
enum status encoder_create(struct encoder **out, struct device *dev, const struct model_config *config,
                           const struct weights *weights, int max_chunks);
void encoder_free(struct encoder *e);                     /* NULL is fine */
size_t encoder_bytes(const struct encoder *e);            /* weights packed and activations held, in memory of the device */
enum dtype encoder_type(const struct encoder *e);         /* of weights and activations */
int64_t encoder_batch(const struct encoder *e);           /* chunks that fill the device: a good number to encode at once */

/* Where results go; any member may be NULL. */
struct encoder_output {
    float *landmarks;                    /* [n, d]: row chunk of the encoder's output, lmk_k_proj applied where the config has it */
    float *states;                       /* [n, S, d]: after encoder.norm */
    /* Pools of slots of 64 rows [slots*64, d] in the weights' type: chunk i fills the live rows of slot[i] (slot NULL: i),
     * row 63 of a 63-chunk is zeroed. slot is memory of this process. */
    struct mat keys, values;
    const int32_t *slot;
};
/* ids [n, chunk] (encoder_input tokens only). */
void encoder_encode(struct encoder *e, const struct encoder_output *out, const int32_t *ids, int64_t n);
/* hidden [n*S, d]: outputs of the last lower layer, in the weights' type (encoder_input hidden only). */
void encoder_encode_hidden(struct encoder *e, const struct encoder_output *out, struct mat hidden, int64_t n);

/* One chunk, to be encoded beside other work of the device (of a GPU: on the CPU it is done when begin returns). begin keeps
 * what it is given, `out` and what ids, hidden and slot hold; each advance issues a part of some microseconds, false: none
 * was left. Results are there behind the last part; they equal encoder_encode's to rounding. Whatever else is asked of the
 * encoder comes first if begin alone was called, else behind the rest. */
void encoder_begin(struct encoder *e, const struct encoder_output *out, const int32_t *ids, struct mat hidden);
bool encoder_advance(struct encoder *e);
void encoder_finish(struct encoder *e);                   /* advances to the end */
