/* encoder_train.h -- the chunk encoder, forward and backward (model.md §3, §6.5), for training.
 *
 * It runs on any device, and every mat is device memory. Activations have the weights' type. Gradients of weights and
 * of the outputs are float32. No memory is allocated after create. A step calls forward, adds to the gradients of the
 * outputs below, and calls backward. For one thread at a time. */
#pragma once
#include "kernels/device/device.h"
#include "kernels/attention/gca.h"
#include "model/model_config.h"
#include "model/weights.h"

struct encoder_train;
/* weights, gradients (float32, same layout; backward adds to them) and device are borrowed until encoder_train_free.
 * `recompute`: keeps only the input of each layer, and computes its activations again in the backward pass (same bits,
 * less memory). */
enum status encoder_train_create(struct encoder_train **out, struct device *dev, const struct model_config *config,
                                 const struct weights *weights, const struct weights *gradients, int64_t max_chunks,
                                 bool recompute);
void encoder_train_free(struct encoder_train *t);         /* NULL is fine */
int64_t encoder_train_max_chunks(const struct encoder_train *t);
size_t encoder_train_bytes(const struct encoder_train *t);    /* of device memory */

/* Encodes n <= max_chunks chunks. ids [n*S], landmarks included, in device memory (encoder_input tokens); or hidden
 * [n*S, d], the decoder's lower output (encoder_input hidden), borrowed until backward. The other argument is NULL, or
 * has data NULL. */
void encoder_train_forward(struct encoder_train *t, const int32_t *ids, struct mat hidden, int64_t n);

/* Encodes n more chunks after those of the last forward and of earlier appends. Their ids follow the earlier ones in
 * `ids` (encoder_input tokens only). All chunks are then the chunks of one forward; call the functions below again for
 * the results. */
void encoder_train_append(struct encoder_train *t, int64_t n);
/* From now until the next forward, the chunks of the last append train only lmk_k_proj, which the config must have:
 * backward computes its gradient from their landmarks, and otherwise ignores these chunks. */
void encoder_train_keep_projection(struct encoder_train *t);
/* Computes only the landmarks [n, d] of n chunks, in any type. backward cannot be called after it: activations are not
 * kept, and those of the last forward are overwritten. The landmarks equal those of forward up to rounding, and take
 * little more than half the time. */
void encoder_train_encode(struct encoder_train *t, struct mat landmarks, const int32_t *ids, int64_t n);

/* Results of the last forward, borrowed until the next one. */
struct mat encoder_train_states(const struct encoder_train *t);       /* [n*S, d] after encoder.norm */
/* [n, d]: row `chunk` of each chunk, after lmk_k_proj if the config has it */
struct mat encoder_train_landmarks(const struct encoder_train *t);
/* slot i is chunk i; the landmark's row is not read */
struct gca_pool encoder_train_pool(const struct encoder_train *t);

/* Gradients of the results. forward clears them; the caller adds to them before backward. */
struct mat encoder_train_dkeys(const struct encoder_train *t);        /* laid out as pool.keys */
struct mat encoder_train_dvalues(const struct encoder_train *t);
struct mat encoder_train_dlandmarks(const struct encoder_train *t);   /* [n, d] float32 */
struct mat encoder_train_dstates(const struct encoder_train *t);      /* [n*S, d] float32: for the masked-token loss */
/* Adds the gradient of `hidden` to dhidden [n*S, d] (encoder_input hidden; else data NULL). */
void encoder_train_backward(struct encoder_train *t, struct mat dhidden);
