/* recurrent.c -- the recurrent layer: weights, and the state of a running text. */
#include "model/recurrent.h"
#include "kernels/ops.h"
#include <assert.h>
#include <stdio.h>

enum { PROJECTIONS = 4 }; /* of a state: queries of the state, queries of the tokens, keys, values */

static struct mat recurrent_tensor(const struct model_config *c, const struct weights *w, const char *name) {
    char full[160];
    snprintf(full, sizeof full, "language_model.model.layers.%d.recurrent.%s.weight", c->recurrent_layer - 1, name);
    return weights_tensor(w, full);
}

void recurrent_weights_find(struct recurrent_weights *out, const struct model_config *c, const struct weights *w) {
    struct mat self = recurrent_tensor(c, w, "state_q_self_proj"), token = recurrent_tensor(c, w, "state_q_token_proj");
    struct mat k = recurrent_tensor(c, w, "state_k_proj"), v = recurrent_tensor(c, w, "state_v_proj");
    *out = (struct recurrent_weights){
        .q = recurrent_tensor(c, w, "q_proj"),
        .o = recurrent_tensor(c, w, "o_proj"),
        .initial = recurrent_tensor(c, w, "initial_state"),
        .ids = recurrent_tensor(c, w, "state_ids"),
        .state = block_concatenated(self, block_concatenated(token, block_concatenated(k, v))),
        .state_o = recurrent_tensor(c, w, "state_o_proj"),
        .norm = recurrent_tensor(c, w, "state_norm"),
        .gate = recurrent_tensor(c, w, "gate"),
    };
}

enum status recurrent_check_device(const struct device *dev, const struct model_config *c) {
    if (c->recurrent_layer == 0 || (dev->shares_memory && dev->ops->state_gate)) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED,
                "recurrent_layer is %d: the state of a Block-Recurrent Transformer is computed on a CPU only: use "
                "--device cpu",
                c->recurrent_layer);
}

/* ---- a running text ---- */

struct recurrent_layout {
    struct recurrent_state *state;
    const struct model_config *config;
};

static void recurrent_state_layout(void *of, struct carve *c) {
    const struct recurrent_layout *l = of;
    struct recurrent_state *s = l->state;
    int64_t n = l->config->recurrent_states, d = l->config->hidden;
    s->state = carve_mat(c, DTYPE_F32, n, d);
    s->input = carve_mat(c, DTYPE_F32, n, d);
    s->projected = carve_mat(c, DTYPE_F32, n, PROJECTIONS * d);
    s->attended = carve_mat(c, DTYPE_F32, n, 2 * d);
    s->update = carve_mat(c, DTYPE_F32, n, d);
    s->both = carve_mat(c, DTYPE_F32, l->config->recurrent_block, 2 * d);
    s->keys = mat_cols(s->both, 0, d);
    s->values = mat_cols(s->both, d, d);
}

/* projected = [Wq Wq' Wk Wv] (RMS(state) + ids) */
static void recurrent_state_project(struct recurrent_state *s, struct device *dev, const struct recurrent_weights *w) {
    dev->ops->norm->forward(dev, s->input, mat_f32(NULL, s->input.rows, 1), s->state, w->norm, s->eps);
    dev->ops->elementwise->add(dev, s->input, s->input, w->ids);
    dev->ops->matmul->forward(dev, s->projected, s->input, w->state, false);
}

enum status recurrent_state_create(struct recurrent_state *out, struct device *dev, const struct model_config *c,
                                   const struct recurrent_weights *w) {
    size_t bytes;
    *out = (struct recurrent_state){.heads = c->heads, .block = c->recurrent_block, .eps = c->rms_eps};
    struct recurrent_layout layout = {out, c};
    assert(dev->shares_memory && w->state.type == DTYPE_F32);
    TRY(carve_device(dev, &out->memory, &bytes, recurrent_state_layout, &layout));
    device_copy_rows(dev, out->state, w->initial);
    recurrent_state_project(out, dev, w);
    return STATUS_OK;
}

void recurrent_state_free(struct recurrent_state *s, struct device *dev) {
    device_release(dev, s->memory);
    *s = (struct recurrent_state){0};
}

/* All rows of q read all rows of the pool. o may be q. */
static void recurrent_attend(struct device *dev, struct mat o, struct mat q, struct mat keys, struct mat values,
                             int heads) {
    const int64_t rows[] = {0, q.rows};
    const int32_t slot = 0;
    const float weight = 1.0f;
    struct gca_pool pool = {.keys = keys, .values = values, .slot_rows = (int)keys.rows, .live_rows = (int)keys.rows};
    struct gca_blocks blocks = {.row_begin = rows, .slot = &slot, .weight = &weight, .blocks = 1, .k = 1};
    dev->ops->gca->forward(dev, o, q, pool, blocks, heads);
}

void recurrent_state_read(struct recurrent_state *s, struct device *dev, struct mat q) {
    int64_t d = q.cols;
    recurrent_attend(dev, q, q, mat_cols(s->projected, 2 * d, d), mat_cols(s->projected, 3 * d, d), s->heads);
}

void recurrent_state_update(struct recurrent_state *s, struct device *dev, const struct recurrent_weights *w) {
    int64_t d = s->state.cols;
    struct mat self = mat_cols(s->attended, 0, d), token = mat_cols(s->attended, d, d), p = s->projected;
    recurrent_attend(dev, self, mat_cols(p, 0, d), mat_cols(p, 2 * d, d), mat_cols(p, 3 * d, d), s->heads);
    recurrent_attend(dev, token, mat_cols(p, d, d), s->keys, s->values, s->heads);
    dev->ops->matmul->forward(dev, s->update, s->attended, w->state_o, false);
    dev->ops->state_gate->forward(dev, s->state, s->state, s->update, w->gate);
    recurrent_state_project(s, dev, w);
}
