/* optimizer.h -- AdamW over all of a model's tensors, after clipping the norm of the whole gradient
 * (kernels/pointwise/adamw.h).
 *
 * Owns the float32 weights, both moments, the gradient, and the copy that the towers compute with. Matrices decay;
 * norms do not; the embedding decays only with decay_embedding. One thread at a time. */
#pragma once
#include "base/status.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

/* trunk: factor of the learning rate for the tensors that a Base LM has as well; 0: they are not updated. */
struct optimizer_config { float beta1, beta2, eps, decay, clip; bool decay_embedding; float trunk; };
struct optimizer_now { float lr; int64_t step; /* from 1 */ };

struct optimizer;
/* `type`: of the copy; DTYPE_F32: the weights themselves. The data of `initial` is read at create only, its table
 * (names, shapes) is borrowed until optimizer_free. */
enum status optimizer_create(struct optimizer **out, struct device *dev, const struct optimizer_config *config,
                             const struct params *initial, enum dtype type);
void optimizer_free(struct optimizer *o);                 /* NULL is fine */
const struct weights *optimizer_weights(const struct optimizer *o);       /* to compute with */
const struct weights *optimizer_gradients(const struct optimizer *o);     /* float32, to add to */
const struct weights *optimizer_master(const struct optimizer *o);        /* float32 */
const struct weights *optimizer_moment(const struct optimizer *o, int which);    /* 0: m, 1: v; for checkpoints */
/* Call after weights were uploaded from a checkpoint: updates the copy. */
void optimizer_refresh(struct optimizer *o);
void optimizer_clear_gradients(struct optimizer *o);
/* Computes the gradient's norm (squared, float32, on the device), then updates weights and moments; not if the
 * norm is not finite. */
void optimizer_step(struct optimizer *o, const struct optimizer_now *now);
/* Waits for the device. */
enum status optimizer_gradient_norm(struct optimizer *o, double *out);
