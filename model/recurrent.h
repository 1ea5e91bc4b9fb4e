/* recurrent.h -- the recurrent layer of a Block-Recurrent Transformer (model.md §10.1), made of ops.
 *
 * The layer's tokens attend to the state of their block in addition to their window. At the end of a block the state
 * attends to itself and to the block's keys and values, and a gate mixes the result into it. Each of these attentions
 * is GCA with one chunk and weight 1 (kernels/attention/gca.h), so only the gate is a separate op. The state is
 * float32. What is computed from it has the weights' type. */
#pragma once
#include "kernels/attention/gca.h"
#include "kernels/device/carve.h"
#include "kernels/device/device.h"
#include "model/block.h"
#include "model/model_config.h"
#include "model/weights.h"

struct recurrent_weights {
    struct mat q, o; /* [d, d]: projections to a token's query of the state, and of the attention's output */
    struct mat initial, ids;             /* [states, d] */
    struct mat state, state_o;           /* [4d, d]: queries of the state and of the tokens, keys, values; [d, 2d] */
    struct mat norm, gate;               /* [1, d] */
};
/* Finds the weights of a config with a recurrent_layer. */
void recurrent_weights_find(struct recurrent_weights *out, const struct model_config *c, const struct weights *w);

/* The state of a running text. */
struct recurrent_state {
    int heads, block;
    float eps;
    void *memory;
    struct mat state, input, projected, attended, update;   /* [states, ...]; state: float32 */
    struct mat both;                                        /* [block, 2d]: keys and values, which the caller fills */
    struct mat keys, values;                                /* the halves of `both` */
    /* Device memory. A GCA block of n rows uses row_begin[2n] and row_begin[2n + 1], and reads slot 0 with weight 1. */
    int64_t *row_begin;
    int32_t *slot;
    float *weight;
};
enum status recurrent_state_create(struct recurrent_state *out, struct device *dev, const struct model_config *c,
                                   const struct recurrent_weights *w);
void recurrent_state_free(struct recurrent_state *s, struct device *dev);
/* Replaces q [n, d] by what its rows read from the state. */
void recurrent_state_read(struct recurrent_state *s, struct device *dev, struct mat q);
/* Computes the state after the block whose keys and values the caller has filled. */
void recurrent_state_update(struct recurrent_state *s, struct device *dev, const struct recurrent_weights *w);

/* Training: `sequences` sequences of `length` rows, one after another; length is a multiple of the block. In the
 * matrices below, the state of block b of sequence s is in rows (b * sequences + s) * states. */
struct recurrent_train {
    int heads, sequences, states, block;
    int64_t blocks;                      /* blocks per sequence */
    float eps;
    struct mat state, rstd, input, projected, attended, update, lse;   /* kept by the forward pass; state: float32 */
    struct mat q, o, token_lse;                                        /* [n, ...]: of the tokens */
    struct mat dprojected, dattended, dstate, dupdate, dq, dout;       /* of the backward pass */
    /* The blocks of GCA: tokens to states; states to states; states to the tokens of block b (one row of
     * the list per b). */
    int64_t *token_rows, *state_rows;
    int32_t *token_slot, *state_slot, *block_slot, *token_inverse, *state_inverse, *block_inverse;
    float *weight, *dweight;
};
/* type: that of weights and activations. */
void recurrent_train_carve(struct recurrent_train *t, struct carve *c, const struct model_config *config,
                           enum dtype type, int sequences, int64_t length);
/* Fills the lists. Call it once after carve. */
enum status recurrent_train_begin(struct recurrent_train *t, struct device *dev);
/* Computes t->o [n, d]: what the tokens read from the states. norm [n, d]: the layer's input after its norm. keys,
 * values [n, d]: those of its attention. */
void recurrent_train_forward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                             struct mat norm, struct mat keys, struct mat values);
/* dh: the gradient of the stream after the layer's attention. t->dq: that of the tokens' queries. dkeys, dvalues [n, d]
 * and g are added to. */
void recurrent_train_backward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                              const struct recurrent_weights *g, struct mat dh, const struct gca_pool *tokens,
                              struct mat dkeys, struct mat dvalues);
