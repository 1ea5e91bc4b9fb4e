/* decoder_train.h -- the decoder over whole sequences, forward and backward (model.md §6.4, §6.5), for training.
 *
 * The input is N sequences of C chunks, with their landmarks: n = N*C*S rows. Row (s*C + c)*S + i is position i of
 * chunk c of sequence s. (A Base LM without landmarks has n = N*L rows.) It runs on any device. Activations have the
 * weights' type. No memory is allocated after create. A training step calls, in this order:
 *
 *   decoder_train_lower
 *   for each group g = 0 ..:  decoder_train_query(g) (once, if the caller retrieves),  decoder_train_group(g)
 *   decoder_train_loss
 *   for each group g, last first:  decoder_train_group_backward(g),  decoder_train_query_backward(g) (if it was
 *   queried)
 *   decoder_train_lower_backward
 *
 * A Base LM has no groups. */
#pragma once
#include "kernels/device/device.h"
#include "kernels/attention/gca.h"
#include "kernels/pointwise/loss.h"
#include "model/model_config.h"
#include "model/weights.h"

struct decoder_train;
/* weights, gradients (float32, same layout; added to) and device are borrowed. chunks: C (Base LM: L positions).
 * `recompute`: keeps only each layer's input, and computes its activations again in the backward pass (same bits, less
 * memory). */
enum status decoder_train_create(struct decoder_train **out, struct device *dev, const struct model_config *config,
                                 const struct weights *weights, const struct weights *gradients, int sequences,
                                 int64_t chunks,
                                 bool recompute);
void decoder_train_free(struct decoder_train *t);         /* NULL is fine */
size_t decoder_train_bytes(const struct decoder_train *t);    /* of device memory */

/* Computes the lower layers. ids [n]: device memory, borrowed until the step ends. Returns the last lower layer's
 * output [n, d], borrowed until decoder_train_lower_backward; the decoder variant's encoder reads it. */
struct mat decoder_train_lower(struct decoder_train *t, const int32_t *ids);
/* Computes the queries [N*C, d] of group g, one for each chunk's landmark: lmk_norms[g], then lmk_q_proj[g] if
 * the config has it. */
struct mat decoder_train_query(struct decoder_train *t, int group);
/* Computes the layers of group g. blocks.row_begin, slot, weight: as in gca.h. Block s*C + c is the S rows of chunk c
 * of sequence s, so there are N*C blocks. blocks.blocks 0: no retrieval, and GCA gives zero. All arguments are borrowed
 * until decoder_train_group_backward. */
void decoder_train_group(struct decoder_train *t, int group, struct gca_pool pool, struct gca_blocks blocks);
/* Computes the final norm, the tied head and nll[r] of rows.targets[r] (< 0: 0). The backward pass starts from the sum
 * of nll, weighted and scaled as in loss.h. */
void decoder_train_loss(struct decoder_train *t, float *nll, struct loss_rows rows);
/* Computes the same losses without a gradient, for evaluation. */
void decoder_train_score(struct decoder_train *t, float *nll, const int32_t *targets);

/* dkeys, dvalues (in the layout of the pool's) are added to. dweight [blocks*K] float32 is overwritten with the sum
 * over the group's layers. All are NULL, or have data NULL, if the group had no blocks. */
void decoder_train_group_backward(struct decoder_train *t, int group, struct mat dkeys, struct mat dvalues,
                                  float *dweight, struct gca_inverse inverse);
/* dquery [N*C, d] float32: the gradient of decoder_train_query's result. `cut`: the backward pass stops at the
 * projection (with retrieval_proj) or at lmk_norms' input, so that this gradient does not reach other layers
 * (training-keys.md: contrastive.cut_query). It may be called several times; gradients are summed. */
void decoder_train_query_backward(struct decoder_train *t, int group, struct mat dquery, bool cut);
/* The key states of layer key_layer (from 1; docs/token-memory.md) are the input of its MLP after its norm. After
 * decoder_train_keep_keys, the forward pass keeps them. decoder_train_keys [n, d] returns them, borrowed until the
 * next forward pass. The backward pass adds dkeys [n, d], in the weights' type (data NULL: none; borrowed), to
 * their gradient. */
void decoder_train_keep_keys(struct decoder_train *t, int key_layer);
struct mat decoder_train_keys(const struct decoder_train *t);
void decoder_train_add_dkeys(struct decoder_train *t, struct mat dkeys);
/* Computes only key states of passages, with a separate decoder_train whose sequences are the passages. The last layer
 * is key_layer: later layers and the head are not computed. Groups have no neighbours. The forward pass returns
 * decoder_train_keys. The backward pass computes from their gradient those of all layers and the embedding. */
struct mat decoder_train_passages(struct decoder_train *t, const int32_t *ids);
void decoder_train_passages_backward(struct decoder_train *t, struct mat dkeys);
/* The backward pass of the lower layers and the embedding. If the encoder read the lower output, encoder_train_backward
 * must have added to decoder_train_dhidden before. */
/* [n, d] in the weights' type: the gradient of the lower output so far */
struct mat decoder_train_dhidden(struct decoder_train *t);
void decoder_train_lower_backward(struct decoder_train *t);
