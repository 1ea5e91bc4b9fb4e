/* token_step.h -- one position of one text through all layers and the head in a single kernel: decoding on a GPU.
 *
 * With one row every product is bound by reading its weights, and a launch for each op costs more than the work. What
 * it computes is what the ops compute one by one (model.md §2, §5), with activations kept in float32 between them; same
 * bits each time. A landmark is a position like any other; retrieval and losses stay with the ops. */
#pragma once
#include "kernels/block.h"
#include "kernels/gca.h"

/* The layers' weights once more, in the order in which the kernel reads them; shared by all texts of a model. */
struct token_weights;
struct token_weights_layer { const struct block_weights *weights; int group; };     /* group -1: no GCA */
struct token_weights_config {
    const struct token_weights_layer *layers; int n_layers;
    struct mat embed, final_norm;                         /* read where they are: borrowed until token_weights_free */
    int heads, window;
    float eps;
};
/* *out is NULL where this device, type or shape has no such kernel. Copies what the layers' weights are now. */
enum status token_weights_create(struct token_weights **out, struct device *dev, const struct token_weights_config *config);
void token_weights_free(struct token_weights *w);         /* NULL is fine */

/* What one text needs. rings: each layer's keys and values, bf16 [n, 2d], n the same for all, at least window + 1. The
 * weights and the rings' memory are borrowed until token_step_free. *out is NULL where a ring has 2^31 numbers or more. */
struct token_step;
enum status token_step_create(struct token_step **out, const struct token_weights *weights, const struct mat *rings);
void token_step_free(struct token_step *t);               /* NULL is fine */

enum { TOKEN_STEP_SLOTS_MAX = 64 };
/* blocks.blocks 0: the group reads nothing; else one block with k <= TOKEN_STEP_SLOTS_MAX. */
struct token_step_fusion { struct gca_pool pool; struct gca_blocks blocks; };
/* Id `id` at `position`, whose window lies in the rings. logits [V] float32, memory of the device or within its reach
 * (device_reach); inputs [groups, d] of the device: what the first layer of each group read, in the weights' type. NULL:
 * not wanted. */
void token_step_run(struct token_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct token_step_fusion *fusions);
