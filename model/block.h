/* block.h -- what the layers of both towers share, made of ops: weights of a layer, and the two halves of a pre-norm
 * layer around its attention (model.md §2.2, §3.2, §5.1). No twin: everything runs through dev->ops.
 *
 *   block_qkv     qkv = [Wq; Wk; Wv] RMS(x)           one product: the three matrices follow one another in params
 *   (attention, done by the tower on the columns 0.., d.., 2d.. of qkv: mat_cols)
 *   block_output  x += Wo o                           the residual
 *   block_mlp     x += Wdown (silu(Wgate z) * Wup z), z = RMS(h); h is x in plain layers, x + GCA(x) in upper ones */
#pragma once
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

struct block_weights {
    struct mat input_norm, post_norm;    /* [1, d] */
    struct mat q, k, v, o;               /* [d, d] */
    struct mat qkv, kv;                  /* [3d, d], [2d, d]: the same memory as q, k, v */
    struct mat gate, up, down;           /* [f, d], [f, d], [d, f] */
    struct mat gate_up;                  /* [2f, d]: the same memory as gate, up */
    struct mat gca_norm, gca_q, gca_o;   /* upper layers only, else data NULL */
};
/* Layer `index` of the decoder: lower layers first, then those of the groups in order. */
void block_weights_decoder(struct block_weights *out, const struct model_config *config, const struct weights *w,
                           int index);
void block_weights_encoder(struct block_weights *out, const struct model_config *config, const struct weights *w,
                           int index);

/* [first; second]: one matrix over two that are adjacent in memory, as tensors of one layer are in params. */
struct mat block_concatenated(struct mat first, struct mat second);

/* Rows that block functions use for themselves: norm [n, d], gate_up [n, 2f], both with at least n rows. each: a row's
 * results have the bits that it has alone (matmul.forward_each); for rows of different texts. */
struct block_scratch { struct mat norm, gate_up; bool each; };

/* qkv [n, 3d] from x [n, d]. */
void block_qkv(struct device *dev, struct mat qkv, struct mat x, const struct block_weights *w, float eps,
               struct block_scratch s);
/* x += o Wo^T. */
void block_output(struct device *dev, struct mat x, struct mat o, const struct block_weights *w);
/* x += MLP(RMS(h)); h may be x. */
void block_mlp(struct device *dev, struct mat x, struct mat h, const struct block_weights *w, float eps,
               struct block_scratch s);
