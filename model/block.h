/* block.h -- the parts of a layer that both towers use, made of ops: the weights of a layer, and the two halves of a
 * pre-norm layer around its attention (model.md §2.2, §3.2, §5.1). It has no CUDA twin, because everything runs through
 * dev->ops.
 *
 *   (qkv = [Wq; Wk; Wv] RMS(x), one product, and attention on its columns 0.., d.., 2d..: each tower computes its own)
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
    struct mat gca_norm, gca_q, gca_o;   /* only in upper layers, otherwise data NULL */
};
/* Finds layer `index` of the decoder. Lower layers come first, then those of the groups in order. */
void block_weights_decoder(struct block_weights *out, const struct model_config *config, const struct weights *w,
                           int index);
void block_weights_encoder(struct block_weights *out, const struct model_config *config, const struct weights *w,
                           int index);

/* [first; second]: one matrix over two that are adjacent in memory, as the tensors of a layer are in params. */
struct mat block_concatenated(struct mat first, struct mat second);

/* Scratch rows of the block functions: norm [n, d], gate_up [n, 2f], both with at least n rows. each: the bits of a row
 * do not depend on the other rows (matmul.forward_each), for rows of different texts. */
struct block_scratch { struct mat norm, gate_up; bool each; };

/* Computes x += o Wo^T. */
void block_output(struct device *dev, struct mat x, struct mat o, const struct block_weights *w);
/* Computes x += MLP(RMS(h)); h may be x. */
void block_mlp(struct device *dev, struct mat x, struct mat h, const struct block_weights *w, float eps,
               struct block_scratch s);
