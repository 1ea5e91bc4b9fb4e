/* block_backward.c -- the halves of a layer in training: a forward pass that keeps activations, and the backward pass.
 * Joined matrices ([Wq; Wk; Wv], [Wgate; Wup]) turn two or three products into one: in the forward pass, for the
 * input's gradient, and for the weights' gradient, because gradients have the layout of the weights. */
#include "model/block_backward.h"
#include "kernels/ops.h"
#include <assert.h>

void block_kept_carve(struct block_kept *out, struct carve *c, const struct model_config *config, enum dtype type,
                      int64_t n) {
    int64_t d = config->hidden, f = config->ffn;
    *out = (struct block_kept){
        .input_norm = carve_mat(c, type, n, d),
        .input_rstd = carve_mat(c, DTYPE_F32, n, 1),
        .qkv = carve_mat(c, type, n, 3 * d),
        .o = carve_mat(c, type, n, d),
        .lse = carve_mat(c, DTYPE_F32, n, config->heads),
        .h = carve_mat(c, type, n, d),
        .post_norm = carve_mat(c, type, n, d),
        .post_rstd = carve_mat(c, DTYPE_F32, n, 1),
        .gate_up = carve_mat(c, type, n, 2 * f),
        .gated = carve_mat(c, type, n, f),
    };
}

struct block_kept block_kept_rows(const struct block_kept *k, int64_t first, int64_t n) {
    return (struct block_kept){
        .x = k->x,
        .input_norm = mat_rows(k->input_norm, first, n),
        .input_rstd = mat_rows(k->input_rstd, first, n),
        .qkv = mat_rows(k->qkv, first, n),
        .o = mat_rows(k->o, first, n),
        .lse = mat_rows(k->lse, first, n),
        .h = mat_rows(k->h, first, n),
        .post_norm = mat_rows(k->post_norm, first, n),
        .post_rstd = mat_rows(k->post_rstd, first, n),
        .gate_up = mat_rows(k->gate_up, first, n),
        .gated = mat_rows(k->gated, first, n),
    };
}

void block_work_carve(struct block_work *out, struct carve *c, const struct model_config *config, enum dtype type,
                      int64_t n) {
    int64_t d = config->hidden, f = config->ffn, wide = f > 3 * d ? f : 3 * d;
    *out = (struct block_work){.wide = carve_mat(c, type, n, wide), .narrow = carve_mat(c, type, n, d)};
}

struct mat block_wide(const struct block_work *work, int64_t n, int64_t cols) {
    assert(n * cols <= work->wide.rows * work->wide.cols);
    return mat_dense(work->wide.data, work->wide.type, n, cols);
}

void block_keep_qkv(struct device *dev, const struct block_kept *k, const struct block_weights *w, float eps) {
    dev->ops->norm->forward(dev, k->input_norm, k->input_rstd, k->x, w->input_norm, eps);
    dev->ops->matmul->forward(dev, k->qkv, k->input_norm, w->qkv, false);
}

void block_keep_output(struct device *dev, const struct block_kept *k, const struct block_weights *w) {
    dev->ops->matmul->forward_add(dev, k->h, k->x, k->o, w->o);
}

void block_keep_mlp(struct device *dev, struct mat y, const struct block_kept *k, struct mat sum,
                    const struct block_weights *w, float eps) {
    dev->ops->norm->forward(dev, k->post_norm, k->post_rstd, sum, w->post_norm, eps);
    dev->ops->matmul->forward_gated(dev, k->gated, k->gate_up, k->post_norm, w->gate_up);
    if (y.data) dev->ops->matmul->forward_add(dev, y, k->h, k->gated, w->down);
}

void block_back_mlp(struct device *dev, struct block_gradient dsum, struct mat dy, const struct block_kept *k,
                    struct mat sum, const struct block_weights *w, const struct block_weights *g,
                    const struct block_work *work) {
    const struct ops *ops = dev->ops;
    int64_t n = dy.rows, f = w->gate.rows;
    struct mat dgated = block_wide(work, n, f), dnorm = mat_rows(work->narrow, 0, n);
    assert(dnorm.data != dsum.to.data && dnorm.data != dy.data);
    ops->matmul->backward_weight(dev, g->down, dy, k->gated);
    ops->matmul->backward_gated(dev, k->gate_up, dgated, dy, w->down);
    ops->matmul->backward_weight(dev, g->gate_up, k->gate_up, k->post_norm);
    ops->matmul->backward_input(dev, dnorm, k->gate_up, w->gate_up, false);
    ops->norm->backward(dev, dsum.to, g->post_norm, dnorm, sum, w->post_norm, k->post_rstd, dsum.accumulate);
}

void block_back_output(struct device *dev, struct mat dout, struct mat dh, const struct block_kept *k,
                       const struct block_weights *w, const struct block_weights *g) {
    dev->ops->matmul->backward_input(dev, dout, dh, w->o, false);
    dev->ops->matmul->backward_weight(dev, g->o, dh, k->o);
}

void block_back_qkv(struct device *dev, struct mat dx, struct mat dqkv, const struct block_kept *k,
                    const struct block_weights *w, const struct block_weights *g, const struct block_work *work) {
    struct mat dnorm = mat_rows(work->narrow, 0, dx.rows);
    dev->ops->matmul->backward_weight(dev, g->qkv, dqkv, k->input_norm);
    dev->ops->matmul->backward_input(dev, dnorm, dqkv, w->qkv, false);
    dev->ops->norm->backward(dev, dx, g->input_norm, dnorm, k->x, w->input_norm, k->input_rstd, true);
}
