/* decode_step.h -- decoding on a GPU: one position of one text through all layers and the head, in a single kernel.
 *
 * With one row every product is bound by reading its weights, and a launch for each op costs more than the work.
 * The kernel computes what the ops compute one by one (model.md §2, §5), but keeps activations in float32 between
 * them. The result has the same bits each time. A landmark is a position like any other. Retrieval and losses stay
 * with the ops. */
#pragma once
#include "kernels/attention/gca.h"
#include "kernels/decode_step/logit_share.h"
#include "kernels/device/device.h"
#include "kernels/pick/pick.h"

/* A copy of the layers' weights in the order in which the kernel reads them; shared by all texts of a model. */
struct decode_step_weights;
struct decode_step_layer {
    struct mat input_norm, qkv, o;                        /* [1, d], [3d, d], [d, d] */
    struct mat gca_norm, gca_q, gca_o;                    /* [1, d], [d, d], [d, d]; not read if group is -1 */
    struct mat post_norm, gate_up, down;                  /* [1, d], [2f, d], [d, f] */
    int group;                                            /* group of chunks that the layer reads; -1: no GCA */
};
enum { DECODE_STEP_GROUPS_MAX = 8 };
struct decode_step_config {
    const struct decode_step_layer *layers; int n_layers;
    struct mat embed, final_norm;              /* not copied: borrowed until decode_step_weights_free */
    int heads, window;
    float eps;
    /* The head's matrix; data NULL: embed. DTYPE_I8 (matmul->pack_i8): so are the layers' matrices, and it is copied,
     * too; heads of 64 and at most 1,024 columns. */
    struct mat head;
};
/* Copies the layers' weights as they are now. *out is NULL if the kernel does not support the device, type or shape. */
enum status decode_step_weights_create(struct decode_step_weights **out, struct device *dev,
                                       const struct decode_step_config *config);
void decode_step_weights_free(struct decode_step_weights *w);         /* NULL is fine */

/* What one text needs. rings: each layer's keys and values, bf16 [n, 2d], n the same for all, at least window + 1. The
 * weights and the rings' memory are borrowed until decode_step_free. *out is NULL if a ring has 2^31 numbers or
 * more. */
struct decode_step;
enum status decode_step_create(struct decode_step **out, const struct decode_step_weights *weights,
                               const struct mat *rings);
void decode_step_free(struct decode_step *t);               /* NULL is fine */

enum { DECODE_STEP_SLOTS_MAX = 64 };
/* blocks.blocks 0: the group reads nothing; else one block with k <= DECODE_STEP_SLOTS_MAX. */
struct decode_step_fusion { struct gca_pool pool; struct gca_blocks blocks; };
/* Results of a step; NULL: not wanted. */
struct decode_step_output {
    float *logits;                              /* [V], memory of the device or within its reach (device_reach) */
    bool awaited;                               /* decode_step_wait follows; the logits are host memory */
    /* The rest is memory of the device, in the weights' type. inputs [groups, d]: the input of each group's first
     * layer. keys [d]: the input of layer key_layer's MLP after its norm (layers count from 1). */
    void *inputs, *keys; int key_layer;
    /* A pick of these logits, which are memory of the device; decode_step_picks takes it; not with keys. The step makes
     * it sooner than an op after the step could. */
    const struct pick_row *pick;
};
/* Whether a step can make the pick: greedy, no penalty, no log-probability. Its id has the same bits as pick_ops'. */
static inline bool decode_step_picks(const struct pick_row *row) {
    return !(row->rule.scale > 0) && !row->seen && !row->logprob;
}
/* An id, or memory of the device where an earlier op writes it. */
struct decode_step_id { int32_t id; const int32_t *picked; };         /* picked NULL: id */
/* Computes the id at `position`; the rings hold the positions of its window. */
void decode_step_run_id(struct decode_step *t, const struct decode_step_output *out, struct decode_step_id id,
                        int64_t position, const struct decode_step_fusion *fusions);
void decode_step_run(struct decode_step *t, const struct decode_step_output *out, int32_t id, int64_t position,
                     const struct decode_step_fusion *fusions);

/* Waits until the logits of the last step whose output is `awaited` are complete in host memory. That is sooner than
 * the end of the kernel, which a wait for the device would add. A fault is kept for device_sync. */
void decode_step_wait(struct decode_step *t);

/* What the last step that was to make a key state and logits leaves on the device, for an op after it. Valid until
 * decode_step_free; overwritten by the next such step. */
struct decode_step_result {
    /* The key state is complete when *ready - at, as a signed number, is 0 or more, long before the logits are. The
     * very next op of the device may start early and wait for that (programmatic dependent launch). */
    const uint32_t *ready; uint32_t at;
    /* Likewise for logits and shares, for the op after that one. */
    const uint32_t *done; uint32_t done_at;
    const struct logit_share *shares; int n_shares;       /* all logits */
    int idle;                                             /* multiprocessors that the step does not use */
};
struct decode_step_result decode_step_result(const struct decode_step *t);
