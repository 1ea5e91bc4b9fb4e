/* recurrent.h -- the recurrent layer of a Block-Recurrent Transformer (model.md §10.1), made of ops.
 *
 * The layer's tokens attend to the state of their block beside their window; at a block's end the state attends to
 * itself and to the block's keys and values, and a gate mixes the result into it. Every attention here is GCA with one
 * chunk and weight 1 (kernels/attention/gca.h), so only the gate is an op of its own. The state itself is float32, what
 * is computed from it is of the weights' type. */
#pragma once
#include "kernels/attention/gca.h"
#include "kernels/device/carve.h"
#include "kernels/device/device.h"
#include "model/block.h"
#include "model/model_config.h"
#include "model/weights.h"

struct recurrent_weights {
    struct mat q, o;                     /* [d, d]: a token's query of the state, and what it read */
    struct mat initial, ids;             /* [states, d] */
    struct mat state, state_o;           /* [4d, d]: queries of state and of tokens, keys, values; [d, 2d] */
    struct mat norm, gate;               /* [1, d] */
};
/* Of a config with a recurrent_layer. */
void recurrent_weights_find(struct recurrent_weights *out, const struct model_config *c, const struct weights *w);

/* A running text's state. */
struct recurrent_state {
    int heads, block;
    float eps;
    void *memory;
    struct mat state, input, projected, attended, update;   /* [states, ...]; state: float32 */
    struct mat both;                                        /* [block, 2d]: keys and values, for the caller to fill */
    struct mat keys, values;                                /* its halves */
    /* Of the device: GCA's one block of n rows is row_begin[2n], row_begin[2n + 1]; it reads slot 0 with weight 1. */
    int64_t *row_begin;
    int32_t *slot;
    float *weight;
};
enum status recurrent_state_create(struct recurrent_state *out, struct device *dev, const struct model_config *c,
                                   const struct recurrent_weights *w);
void recurrent_state_free(struct recurrent_state *s, struct device *dev);
/* q [n, d] becomes what its rows read from the state. */
void recurrent_state_read(struct recurrent_state *s, struct device *dev, struct mat q);
/* The state after the block whose keys and values were filled. */
void recurrent_state_update(struct recurrent_state *s, struct device *dev, const struct recurrent_weights *w);

/* Training: `sequences` of `length` rows one after the other, length a multiple of the block. Block b of sequence s has
 * the state in rows (b * sequences + s) * states of the matrices below. */
struct recurrent_train {
    int heads, sequences, states, block;
    int64_t blocks;                      /* of a sequence */
    float eps;
    struct mat state, rstd, input, projected, attended, update, lse;   /* kept by forward; state: float32 */
    struct mat q, o, token_lse;                                        /* [n, ...]: the tokens' side */
    struct mat dprojected, dattended, dstate, dupdate, dq, dout;       /* of backward */
    /* Blocks of GCA: tokens to states; states to states; states to the tokens of block b (a row of each for b). */
    int64_t *token_rows, *state_rows;
    int32_t *token_slot, *state_slot, *block_slot, *token_inverse, *state_inverse, *block_inverse;
    float *weight, *dweight;
};
/* type: of weights and activations. */
void recurrent_train_carve(struct recurrent_train *t, struct carve *c, const struct model_config *config,
                           enum dtype type, int sequences, int64_t length);
/* Fills the lists, once after carve. */
enum status recurrent_train_begin(struct recurrent_train *t, struct device *dev);
/* t->o [n, d]: what the tokens read. norm [n, d]: the layer's normed input; keys, values [n, d] of its attention. */
void recurrent_train_forward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                             struct mat norm, struct mat keys, struct mat values);
/* dh: gradient of the stream after the layer's attention. t->dq: of the tokens' queries. dkeys, dvalues [n, d]
 * and g are added to. */
void recurrent_train_backward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                              const struct recurrent_weights *g, struct mat dh, const struct gca_pool *tokens,
                              struct mat dkeys, struct mat dvalues);
