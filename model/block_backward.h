/* block_backward.h -- the halves of a pre-norm layer in training: a forward pass that keeps activations, and the
 * backward pass (model.md §2.2, §3.2, §5.1). Both towers use it. It has no CUDA twin, because everything runs through
 * dev->ops.
 *
 *   block_keep_qkv     input_norm = RMS(x), qkv = [Wq; Wk; Wv] input_norm
 *   (attention, which the tower computes: o and lse from the columns of qkv)
 *   block_keep_output  h = x + Wo o
 *   block_keep_mlp     y = h + Wdown (silu(Wgate z) * Wup z), z = RMS(sum)     sum is h, in upper layers h + GCA(h)
 *
 * Activations and the gradient of the residual stream have the weights' type. Gradients of weights are float32 and
 * added to. The outputs of norms and SwiGLU are kept, too. That takes half as much memory again, but the backward pass
 * need not compute them. */
#pragma once
#include "model/block.h"
#include "kernels/device/carve.h"

/* The activations of one layer; all are [n, ...] and dense. */
struct block_kept {
    struct mat x, input_norm, input_rstd, qkv, o, lse, h, post_norm, post_rstd, gate_up, gated;
};
/* Allocates memory for one layer of n rows, except x, which is the output of the layer below. */
void block_kept_carve(struct block_kept *out, struct carve *c, const struct model_config *config, enum dtype type,
                      int64_t n);
/* Returns rows first .. first + n - 1 of everything except x. */
struct block_kept block_kept_rows(const struct block_kept *k, int64_t first, int64_t n);
static inline struct mat block_part(struct mat qkv, int part) {
    return mat_cols(qkv, part * (qkv.cols / 3), qkv.cols / 3);
}

/* Scratch memory of the backward pass of one layer: wide [n * max(f, 3d)], narrow [n, d]. */
struct block_work { struct mat wide, narrow; };
void block_work_carve(struct block_work *out, struct carve *c, const struct model_config *config, enum dtype type,
                      int64_t n);
/* Returns the first n * cols elements of wide, as [n, cols]. */
struct mat block_wide(const struct block_work *work, int64_t n, int64_t cols);

void block_keep_qkv(struct device *dev, const struct block_kept *k, const struct block_weights *w, float eps);
void block_keep_output(struct device *dev, const struct block_kept *k, const struct block_weights *w);
/* y data NULL: computes everything except y (for a layer whose activations are computed again). y may not be h. */
void block_keep_mlp(struct device *dev, struct mat y, const struct block_kept *k, struct mat sum,
                    const struct block_weights *w, float eps);

struct block_gradient { struct mat to; bool accumulate; };
/* `g`: gradients under the weights' names. dsum is computed from dy. It is overwritten, or added to with `accumulate`
 * (dsum may then be dy itself, if sum is h). Leaves d(gate_up) in k->gate_up. */
void block_back_mlp(struct device *dev, struct block_gradient dsum, struct mat dy, const struct block_kept *k,
                    struct mat sum, const struct block_weights *w, const struct block_weights *g,
                    const struct block_work *work);
/* dout [n, d] is overwritten; dh is the gradient of the residual stream. */
void block_back_output(struct device *dev, struct mat dout, struct mat dh, const struct block_kept *k,
                       const struct block_weights *w, const struct block_weights *g);
/* On entry dx is the gradient of h. The part through the attention is added. */
void block_back_qkv(struct device *dev, struct mat dx, struct mat dqkv, const struct block_kept *k,
                    const struct block_weights *w, const struct block_weights *g, const struct block_work *work);
