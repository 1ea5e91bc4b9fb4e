/* optimizer.h -- AdamW over all of a model's tensors, after clipping the gradient's norm (kernels/pointwise/adamw.h).
 *
 * Each part has a norm of its own, so that what trains one part does not scale down the step of another: the token
 * memory's tensors always, the retriever's with retriever_apart.
 *
 * Owns the float32 weights, both moments, the gradient, and the copy that the towers compute with. Matrices decay;
 * norms do not; the embedding decays only with decay_embedding. One thread at a time. */
#pragma once
#include "base/status.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

/* TRUNK: the tensors that a Base LM has as well; RETRIEVER: encoder, landmarks, GCA; MEMORY: memory.*. */
enum optimizer_part { OPTIMIZER_TRUNK, OPTIMIZER_RETRIEVER, OPTIMIZER_MEMORY, OPTIMIZER_PARTS };

/* trunk: factor of the trunk's learning rate; 0: it is not updated. clip: the largest norm of each part; 0: any.
 * retriever_apart: the language model's loss does not reach the retriever; otherwise both parts have one norm. */
struct optimizer_config { float beta1, beta2, eps, decay, clip; bool decay_embedding; float trunk;
                          bool retriever_apart; };
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
/* Computes the gradient's norms (squared, float32, on the device), then updates weights and moments; a part whose norm
 * is not finite stays as it is. */
void optimizer_step(struct optimizer *o, const struct optimizer_now *now);
/* out[part]: the norm before clipping; -1: the model has no such tensors, or they count in the trunk's. Waits for the
 * device. */
enum status optimizer_gradient_norms(struct optimizer *o, double out[OPTIMIZER_PARTS]);
