/* recurrent.c -- the recurrent layer: its weights, and the state of a running text. */
#include "model/recurrent.h"
#include "base/memory.h"
#include "kernels/ops.h"
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

/* ---- a running text ---- */

struct recurrent_layout {
    struct recurrent_state *state;
    const struct model_config *config;
    enum dtype type;
};

/* Returns the rows of one call of GCA: those of a block's tokens, or of all states. */
static int64_t recurrent_rows_max(const struct model_config *c) {
    return c->recurrent_block > c->recurrent_states ? c->recurrent_block : c->recurrent_states;
}

static void recurrent_state_layout(void *of, struct carve *c) {
    const struct recurrent_layout *l = of;
    struct recurrent_state *s = l->state;
    int64_t n = l->config->recurrent_states, d = l->config->hidden;
    s->state = carve_mat(c, DTYPE_F32, n, d);
    s->input = carve_mat(c, l->type, n, d);
    s->projected = carve_mat(c, l->type, n, PROJECTIONS * d);
    s->attended = carve_mat(c, l->type, n, 2 * d);
    s->update = carve_mat(c, l->type, n, d);
    s->both = carve_mat(c, l->type, l->config->recurrent_block, 2 * d);
    s->row_begin = carve_bytes(c, 2 * (recurrent_rows_max(l->config) + 1), sizeof *s->row_begin);
    s->slot = carve_bytes(c, 1, sizeof *s->slot);
    s->weight = carve_bytes(c, 1, sizeof *s->weight);
    s->keys = mat_cols(s->both, 0, d);
    s->values = mat_cols(s->both, d, d);
}

/* Computes projected = [Wq Wq' Wk Wv] (RMS(state) + ids). */
static void recurrent_state_project(struct recurrent_state *s, struct device *dev, const struct recurrent_weights *w) {
    dev->ops->norm->forward(dev, s->input, mat_f32(NULL, s->input.rows, 1), s->state, w->norm, s->eps);
    dev->ops->elementwise->add(dev, s->input, s->input, w->ids);
    dev->ops->matmul->forward(dev, s->projected, s->input, w->state, false);
}

/* Uploads the lists of GCA's blocks. */
static enum status recurrent_state_lists(struct recurrent_state *s, struct device *dev, int64_t rows) {
    int64_t *begin;
    const float one = 1.0f;
    const int32_t none = 0;
    TRY(memory_allocate(&begin, (size_t)(2 * (rows + 1))));
    for (int64_t n = 0; n <= rows; n++)
        begin[2 * n] = 0, begin[2 * n + 1] = n;
    device_upload(dev, s->row_begin, begin, (size_t)(2 * (rows + 1)) * sizeof *begin);
    device_upload(dev, s->slot, &none, sizeof none);
    device_upload(dev, s->weight, &one, sizeof one);
    memory_free(begin);
    return STATUS_OK;
}

enum status recurrent_state_create(struct recurrent_state *out, struct device *dev, const struct model_config *c,
                                   const struct recurrent_weights *w) {
    size_t bytes;
    *out = (struct recurrent_state){.heads = c->heads, .block = c->recurrent_block, .eps = c->rms_eps};
    struct recurrent_layout layout = {out, c, w->state.type};
    TRY(carve_device(dev, &out->memory, &bytes, recurrent_state_layout, &layout));
    TRY(recurrent_state_lists(out, dev, recurrent_rows_max(c)));
    dev->ops->elementwise->convert(dev, out->state, w->initial);
    recurrent_state_project(out, dev, w);
    return STATUS_OK;
}

void recurrent_state_free(struct recurrent_state *s, struct device *dev) {
    device_release(dev, s->memory);
    *s = (struct recurrent_state){0};
}

/* All rows of q attend to all rows of the pool. o may be q. */
static void recurrent_attend(const struct recurrent_state *s, struct device *dev, struct mat o, struct mat q,
                             struct mat keys, struct mat values) {
    struct gca_pool pool = {.keys = keys, .values = values, .slot_rows = (int)keys.rows, .live_rows = (int)keys.rows};
    struct gca_blocks blocks = {
        .row_begin = s->row_begin + 2 * q.rows, .slot = s->slot, .weight = s->weight, .blocks = 1, .k = 1};
    dev->ops->gca->forward(dev, o, q, pool, blocks, s->heads);
}

void recurrent_state_read(struct recurrent_state *s, struct device *dev, struct mat q) {
    int64_t d = q.cols;
    recurrent_attend(s, dev, q, q, mat_cols(s->projected, 2 * d, d), mat_cols(s->projected, 3 * d, d));
}

void recurrent_state_update(struct recurrent_state *s, struct device *dev, const struct recurrent_weights *w) {
    int64_t d = s->state.cols;
    struct mat self = mat_cols(s->attended, 0, d), token = mat_cols(s->attended, d, d), p = s->projected;
    recurrent_attend(s, dev, self, mat_cols(p, 0, d), mat_cols(p, 2 * d, d), mat_cols(p, 3 * d, d));
    recurrent_attend(s, dev, token, mat_cols(p, d, d), s->keys, s->values);
    dev->ops->matmul->forward(dev, s->update, s->attended, w->state_o, false);
    dev->ops->state_gate->forward(dev, s->state, s->state, s->update, w->gate);
    recurrent_state_project(s, dev, w);
}
