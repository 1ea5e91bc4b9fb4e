/* optimizer.h -- AdamW over all of a model's tensors, after clipping the gradient's norm (kernels/pointwise/adamw.h).
 *
 * The token memory's tensors have a norm of their own, and so have the retriever's with retriever_apart: the loss that
 * trains one part then does not scale down the step of another.
 *
 * The optimizer owns the float32 weights, both moments, the gradient, and the copy that the towers compute with.
 * Matrices decay; norms do not; the embedding decays only with decay_embedding. One thread at a time. */
#pragma once
#include "base/status.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

/* TRUNK: the tensors that a Base LM has as well; RETRIEVER: encoder, landmarks, GCA; MEMORY: memory.*. */
enum optimizer_part { OPTIMIZER_TRUNK, OPTIMIZER_RETRIEVER, OPTIMIZER_MEMORY, OPTIMIZER_PARTS };

/* trunk: factor of the trunk's learning rate; 0: the trunk is not updated. clip: the largest norm of each part; 0: no
 * clipping. retriever_apart: set if the language model's loss does not reach the retriever; otherwise the retriever and
 * the trunk have one common norm. */
struct optimizer_config { float beta1, beta2, eps, decay, clip; bool decay_embedding; float trunk;
                          bool retriever_apart; };
struct optimizer_now { float lr; int64_t step; /* from 1 */ };

struct optimizer;
/* type: of the copy that the towers compute with; DTYPE_F32: they use the float32 weights themselves. The data of
 * `initial` is only read during this call; its table (names, shapes) is borrowed until optimizer_free. */
enum status optimizer_create(struct optimizer **out, struct device *dev, const struct optimizer_config *config,
                             const struct params *initial, enum dtype type);
void optimizer_free(struct optimizer *o);                 /* NULL is fine */
const struct weights *optimizer_weights(const struct optimizer *o);       /* the copy that the towers compute with */
const struct weights *optimizer_gradients(const struct optimizer *o);     /* float32, to add to */
const struct weights *optimizer_master(const struct optimizer *o);        /* float32 */
const struct weights *optimizer_moment(const struct optimizer *o, int which);    /* 0: m, 1: v; for checkpoints */
/* Updates the copy. Call it after uploading weights from a checkpoint. */
void optimizer_refresh(struct optimizer *o);
void optimizer_clear_gradients(struct optimizer *o);
/* Computes the gradient's norms on the device, then updates weights and moments. A part whose norm is not finite is not
 * updated. */
void optimizer_step(struct optimizer *o, const struct optimizer_now *now);
/* out[part]: the norm before clipping; -1: the model has no such tensors, or the trunk's norm includes them. Waits for
 * the device. */
enum status optimizer_gradient_norms(struct optimizer *o, double out[OPTIMIZER_PARTS]);
