/* encoder.h -- the chunk encoder: a chunk's tokens (or hidden rows) give its landmark vector and its K and V
 * (model.md §3).
 *
 * A chunk is `chunk` real ids followed by the landmark (S = chunk + 1 positions). A short chunk is padded with -1,
 * which reads pad_id. The bits of the results depend neither on which chunks are encoded together nor on the number of
 * threads. If only landmarks are requested, the last layer is computed for the landmark's row only; up to rounding, the
 * landmarks equal those of a call that also requests states, keys or values. For one thread at a time per encoder. No
 * memory is allocated after create.
 *
 * The encoder runs on any device and computes in the weights' type (bf16 on a GPU, or float32). ids are host memory.
 * Results are device memory and complete after device_sync (a download waits for them). */
#pragma once
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

struct encoder;
/* Weights (model/weights.h) and device are borrowed until encoder_free. max_chunks: the most chunks of one batch; 0: as
 * many as the device can compute at once. Longer calls are divided into batches. */
enum status encoder_create(struct encoder **out, struct device *dev, const struct model_config *config,
                           const struct weights *weights, int max_chunks);
void encoder_free(struct encoder *e);                     /* NULL is fine */
/* device memory of packed weights and activations */
size_t encoder_bytes(const struct encoder *e);
enum dtype encoder_type(const struct encoder *e);         /* of weights and activations */
/* number of chunks that use the whole device: the best size of a call */
int64_t encoder_batch(const struct encoder *e);
enum { ENCODER_BATCH_GPU = 2048 };       /* on a GPU, if max_chunks was 0 */

/* Destinations of the results; any member may be NULL. */
struct encoder_output {
    /* [n, d]: row `chunk` of the encoder's output, after lmk_k_proj if the config has it */
    float *landmarks;
    float *states;                       /* [n, S, d]: after encoder.norm */
    /* Pools of slots of 64 rows [slots*64, d] in the weights' type. Chunk i is written to slot[i] (slot NULL: to slot
     * i). With chunks of 63 ids, row 63 is zeroed. slot is host memory. */
    struct mat keys, values;
    const int32_t *slot;
};
/* Encodes ids [n, chunk] (encoder_input tokens only). */
void encoder_encode(struct encoder *e, const struct encoder_output *out, const int32_t *ids, int64_t n);
/* Encodes hidden [n*S, d]: outputs of the last lower layer, in the weights' type (encoder_input hidden only). */
void encoder_encode_hidden(struct encoder *e, const struct encoder_output *out, struct mat hidden, int64_t n);

/* Encode one chunk in parts, between other work of a GPU (on the CPU, begin encodes it at once). begin copies `out` and
 * the contents of ids, hidden and slot. Each advance issues a part that takes some microseconds, and returns false if
 * no part was left. The results are complete after the last part, and equal those of encoder_encode up to rounding. If
 * another function of this encoder is called before the first part was issued, it runs before the chunk; otherwise it
 * runs after the chunk's last part. */
void encoder_begin(struct encoder *e, const struct encoder_output *out, const int32_t *ids, struct mat hidden);
bool encoder_advance(struct encoder *e);
void encoder_finish(struct encoder *e);                   /* issues all remaining parts */
