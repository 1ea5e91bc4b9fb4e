/* decode_step.h -- one position of one text through all layers and the head in a single kernel: decoding on a GPU.
 *
 * With one row every product is bound by reading its weights, and a launch for each op costs more than the work. What
 * it computes is what the ops compute one by one (model.md §2, §5), with activations kept in float32 between them; same
 * bits each time. A landmark is a position like any other; retrieval and losses stay with the ops. */
#pragma once
#include "kernels/attention/gca.h"
#include "kernels/device/device.h"

/* The layers' weights once more, in the order in which the kernel reads them; shared by all texts of a model. */
struct decode_step_weights;
struct decode_step_layer {
    struct mat input_norm, qkv, o;                        /* [1, d], [3d, d], [d, d] */
    struct mat gca_norm, gca_q, gca_o;                    /* [1, d], [d, d], [d, d]; not read where group is -1 */
    struct mat post_norm, gate_up, down;                  /* [1, d], [2f, d], [d, f] */
    int group;                                            /* of the chunks that the layer reads; -1: no GCA */
};
enum { DECODE_STEP_GROUPS_MAX = 8 };
struct decode_step_config {
    const struct decode_step_layer *layers; int n_layers;
    struct mat embed, final_norm;                         /* read where they are: borrowed until decode_step_weights_free */
    int heads, window;
    float eps;
};
/* *out is NULL where this device, type or shape has no such kernel. Copies what the layers' weights are now. */
enum status decode_step_weights_create(struct decode_step_weights **out, struct device *dev, const struct decode_step_config *config);
void decode_step_weights_free(struct decode_step_weights *w);         /* NULL is fine */

/* What one text needs. rings: each layer's keys and values, bf16 [n, 2d], n the same for all, at least window + 1. The
 * weights and the rings' memory are borrowed until decode_step_free. *out is NULL where a ring has 2^31 numbers or more. */
struct decode_step;
enum status decode_step_create(struct decode_step **out, const struct decode_step_weights *weights, const struct mat *rings);
void decode_step_free(struct decode_step *t);               /* NULL is fine */

enum { DECODE_STEP_SLOTS_MAX = 64 };
/* blocks.blocks 0: the group reads nothing; else one block with k <= DECODE_STEP_SLOTS_MAX. */
struct decode_step_fusion { struct gca_pool pool; struct gca_blocks blocks; };
/* Id `id` at `position`, whose window lies in the rings. logits [V] float32, memory of the device or within its reach
 * (device_reach); inputs [groups, d] of the device: what the first layer of each group read, in the weights' type. NULL:
 * not wanted. */
void decode_step_run(struct decode_step *t, float *logits, void *inputs, int32_t id, int64_t position,
                    const struct decode_step_fusion *fusions);
