/* encoder_train.h -- the chunk encoder with its way back (model.md §3, §6.5): what a training step runs.
 *
 * Works on any device: every mat is memory of the device, activations are of the weights' type, gradients of weights
 * and of what is handed over are float32. Nothing is allocated after create. Calls per step: forward, then whoever uses
 * the outputs adds to the gradients below, then backward. */
#pragma once
#include "kernels/device/device.h"
#include "kernels/attention/gca.h"
#include "model/model_config.h"
#include "model/weights.h"

struct encoder_train;
/* weights, gradients (float32, same layout; backward adds to it) and device are borrowed. `recompute`: keep a layer's
 * input alone and run the layer again on the way back (same bits, less memory). */
enum status encoder_train_create(struct encoder_train **out, struct device *dev, const struct model_config *config,
                                 const struct weights *weights, const struct weights *gradients, int64_t max_chunks, bool recompute);
void encoder_train_free(struct encoder_train *t);         /* NULL is fine */
int64_t encoder_train_max_chunks(const struct encoder_train *t);
size_t encoder_train_bytes(const struct encoder_train *t);    /* of device memory */

/* n <= max_chunks chunks. ids [n*S], landmark included, memory of the device (encoder_input tokens); or hidden [n*S, d],
 * the decoder's lower output (encoder_input hidden), borrowed until backward. The other one NULL / data NULL. */
void encoder_train_forward(struct encoder_train *t, const int32_t *ids, struct mat hidden, int64_t n);

/* n more chunks behind those of the last forward (and of calls of this since), of ids that lie behind theirs: encoder_input
 * tokens alone. All of them are one forward to what follows; what was handed out before must be fetched anew. */
void encoder_train_append(struct encoder_train *t, int64_t n);
/* The landmarks [n, d] of n chunks alone, of any type: no activations are kept, so there is no way back; the last forward's are
 * overwritten. Equal to forward's to rounding, at little more than half the work. */
void encoder_train_encode(struct encoder_train *t, struct mat landmarks, const int32_t *ids, int64_t n);

/* Of the last forward, borrowed until the next. */
struct mat encoder_train_states(const struct encoder_train *t);       /* [n*S, d] after encoder.norm */
struct mat encoder_train_landmarks(const struct encoder_train *t);    /* [n, d]: row `chunk` of each, lmk_k_proj applied where the config has it */
struct gca_pool encoder_train_pool(const struct encoder_train *t);    /* slot = chunk; the landmark's row is not live */

/* Gradients to add to between forward (which clears them) and backward. */
struct mat encoder_train_dkeys(const struct encoder_train *t);        /* laid out as pool.keys */
struct mat encoder_train_dvalues(const struct encoder_train *t);
struct mat encoder_train_dlandmarks(const struct encoder_train *t);   /* [n, d] float32 */
struct mat encoder_train_dstates(const struct encoder_train *t);      /* [n*S, d] float32: the masked-token loss */
/* dhidden [n*S, d] gets the gradient of `hidden` added (encoder_input hidden; else data NULL). */
void encoder_train_backward(struct encoder_train *t, struct mat dhidden);
