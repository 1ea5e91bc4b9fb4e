/* recurrent_train.c -- the recurrent layer over whole sequences. The states depend on the layer's keys and values and
 * on earlier states, but not on what the tokens read. So all states are computed first, block after block, then one GCA
 * over all tokens. */
#include "base/memory.h"
#include "kernels/ops.h"
#include "model/recurrent.h"
#include <assert.h>

enum { PROJECTIONS = 4 };

void recurrent_train_carve(struct recurrent_train *t, struct carve *c, const struct model_config *config,
                           enum dtype type, int sequences, int64_t length) {
    int64_t d = config->hidden, n = sequences * length, each = (int64_t)sequences * config->recurrent_states;
    t->heads = config->heads, t->sequences = sequences, t->states = config->recurrent_states;
    t->block = config->recurrent_block, t->blocks = length / t->block, t->eps = config->rms_eps;
    assert(length % t->block == 0);
    int64_t all = each * t->blocks, chunks = sequences * t->blocks;
    t->state = carve_mat(c, DTYPE_F32, all, d);
    t->rstd = carve_mat(c, DTYPE_F32, all, 1);
    t->input = carve_mat(c, type, all, d);
    t->projected = carve_mat(c, type, all, PROJECTIONS * d);
    t->attended = carve_mat(c, type, all, 2 * d);
    t->update = carve_mat(c, type, all, d);
    t->lse = carve_mat(c, DTYPE_F32, 2 * t->blocks * t->heads, each);
    t->q = carve_mat(c, type, n, d);
    t->o = carve_mat(c, type, n, d);
    t->token_lse = carve_mat(c, DTYPE_F32, t->heads, n);
    t->dprojected = carve_mat(c, type, all, PROJECTIONS * d);
    t->dattended = carve_mat(c, type, each, 2 * d);
    t->dstate = carve_mat(c, DTYPE_F32, each, d);
    t->dupdate = carve_mat(c, type, each, d);
    t->dq = carve_mat(c, type, n, d);
    t->dout = carve_mat(c, type, n, d);
    t->token_rows = carve_bytes(c, chunks + 1, sizeof *t->token_rows);
    t->state_rows = carve_bytes(c, sequences + 1, sizeof *t->state_rows);
    t->token_slot = carve_bytes(c, chunks, sizeof *t->token_slot);
    t->state_slot = carve_bytes(c, sequences, sizeof *t->state_slot);
    t->block_slot = carve_bytes(c, chunks, sizeof *t->block_slot);
    t->token_inverse = carve_bytes(c, 2 * chunks + 1, sizeof *t->token_inverse);
    t->state_inverse = carve_bytes(c, 2 * sequences + 1, sizeof *t->state_inverse);
    t->block_inverse = carve_bytes(c, chunks + 1 + sequences, sizeof *t->block_inverse);
    t->weight = carve_bytes(c, chunks, sizeof *t->weight);
    t->dweight = carve_bytes(c, chunks, sizeof *t->dweight);
}

/* The lists, in memory of this process. */
struct recurrent_lists {
    int64_t *token_rows, *state_rows;
    int32_t *token_slot, *state_slot, *block_slot;
    float *weight;
};

static void recurrent_lists_fill(const struct recurrent_lists *l, const struct recurrent_train *t) {
    int64_t chunks = t->sequences * t->blocks;
    for (int64_t i = 0; i <= chunks; i++)
        l->token_rows[i] = i * t->block;
    for (int64_t i = 0; i < chunks; i++) {
        int64_t s = i / t->blocks, b = i % t->blocks;
        l->token_slot[i] = (int32_t)(b * t->sequences + s);
        l->block_slot[b * t->sequences + s] = (int32_t)i;
        l->weight[i] = 1.0f;
    }
    for (int s = 0; s <= t->sequences; s++) {
        l->state_rows[s] = (int64_t)s * t->states;
        if (s < t->sequences) l->state_slot[s] = s;
    }
}

static void recurrent_lists_upload(const struct recurrent_train *t, struct device *dev,
                                   const struct recurrent_lists *l) {
    size_t chunks = (size_t)(t->sequences * t->blocks), sequences = (size_t)t->sequences;
    device_upload(dev, t->token_rows, l->token_rows, (chunks + 1) * sizeof *l->token_rows);
    device_upload(dev, t->state_rows, l->state_rows, (sequences + 1) * sizeof *l->state_rows);
    device_upload(dev, t->token_slot, l->token_slot, chunks * sizeof *l->token_slot);
    device_upload(dev, t->state_slot, l->state_slot, sequences * sizeof *l->state_slot);
    device_upload(dev, t->block_slot, l->block_slot, chunks * sizeof *l->block_slot);
    device_upload(dev, t->weight, l->weight, chunks * sizeof *l->weight);
}

enum status recurrent_train_begin(struct recurrent_train *t, struct device *dev) {
    struct recurrent_lists l = {0};
    size_t chunks = (size_t)(t->sequences * t->blocks), sequences = (size_t)t->sequences;
    enum status s;
    TRY_GOTO(s, memory_allocate(&l.token_rows, chunks + 1), out);
    TRY_GOTO(s, memory_allocate(&l.state_rows, sequences + 1), out);
    TRY_GOTO(s, memory_allocate(&l.token_slot, chunks), out);
    TRY_GOTO(s, memory_allocate(&l.state_slot, sequences), out);
    TRY_GOTO(s, memory_allocate(&l.block_slot, chunks), out);
    TRY_GOTO(s, memory_allocate(&l.weight, chunks), out);
    recurrent_lists_fill(&l, t);
    recurrent_lists_upload(t, dev, &l);
out:
    memory_free(l.token_rows);
    memory_free(l.state_rows);
    memory_free(l.token_slot);
    memory_free(l.state_slot);
    memory_free(l.block_slot);
    memory_free(l.weight);
    return s;
}

static struct gca_blocks recurrent_blocks(const struct recurrent_train *t, const int64_t *rows, const int32_t *slot,
                                          int64_t blocks) {
    return (struct gca_blocks){.row_begin = rows, .slot = slot, .weight = t->weight, .blocks = (int)blocks, .k = 1};
}

static struct gca_inverse recurrent_invert(struct device *dev, int32_t *list, const int32_t *slot, int64_t entries,
                                           int64_t slots) {
    dev->ops->gca->invert(dev, list, list + slots + 1, slot, entries, slots);
    return (struct gca_inverse){.begin = list, .entry = list + slots + 1, .slots = slots};
}

/* Returns the rows of the states of block b. */
static struct mat recurrent_rows(const struct recurrent_train *t, struct mat m, int64_t b) {
    int64_t each = (int64_t)t->sequences * t->states;
    return mat_rows(m, b * each, each);
}

static struct mat recurrent_part(struct mat projected, int part) {
    int64_t d = projected.cols / PROJECTIONS;
    return mat_cols(projected, part * d, d);
}

static struct gca_pool recurrent_pool(const struct recurrent_train *t, struct mat projected) {
    return (struct gca_pool){.keys = recurrent_part(projected, 2),
                             .values = recurrent_part(projected, 3),
                             .slot_rows = t->states,
                             .live_rows = t->states};
}

static struct gca_pool recurrent_tokens(const struct recurrent_train *t, struct mat keys, struct mat values) {
    return (struct gca_pool){.keys = keys, .values = values, .slot_rows = t->block, .live_rows = t->block};
}

/* Returns lse of the states' attention: 0: to the states, 1: to the tokens. */
static struct mat recurrent_lse(const struct recurrent_train *t, int64_t b, int which) {
    return mat_rows(t->lse, (2 * b + which) * t->heads, t->heads);
}

static void recurrent_step(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                           const struct gca_pool *tokens, int64_t b) {
    const struct ops *ops = dev->ops;
    struct mat p = recurrent_rows(t, t->projected, b), a = recurrent_rows(t, t->attended, b);
    struct mat u = recurrent_rows(t, t->update, b);
    int64_t d = u.cols;
    ops->gca->forward_keep(dev, mat_cols(a, 0, d), recurrent_lse(t, b, 0), recurrent_part(p, 0), recurrent_pool(t, p),
                           recurrent_blocks(t, t->state_rows, t->state_slot, t->sequences), t->heads);
    ops->gca->forward_keep(dev, mat_cols(a, d, d), recurrent_lse(t, b, 1), recurrent_part(p, 1), *tokens,
                           recurrent_blocks(t, t->state_rows, t->block_slot + b * t->sequences, t->sequences),
                           t->heads);
    ops->matmul->forward(dev, u, a, w->state_o, false);
    ops->state_gate->forward(dev, recurrent_rows(t, t->state, b + 1), recurrent_rows(t, t->state, b), u, w->gate);
}

void recurrent_train_forward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                             struct mat norm, struct mat keys, struct mat values) {
    const struct ops *ops = dev->ops;
    struct gca_pool tokens = recurrent_tokens(t, keys, values);
    int64_t chunks = t->sequences * t->blocks;
    for (int s = 0; s < t->sequences; s++)
        ops->elementwise->convert(dev, mat_rows(t->state, (int64_t)s * t->states, t->states), w->initial);
    for (int64_t b = 0; b < t->blocks; b++) {
        struct mat input = recurrent_rows(t, t->input, b);
        ops->norm->forward(dev, input, recurrent_rows(t, t->rstd, b), recurrent_rows(t, t->state, b), w->norm, t->eps);
        for (int s = 0; s < t->sequences; s++) {
            struct mat one = mat_rows(input, (int64_t)s * t->states, t->states);
            ops->elementwise->add(dev, one, one, w->ids);
        }
        ops->matmul->forward(dev, recurrent_rows(t, t->projected, b), input, w->state, false);
        if (b + 1 < t->blocks) recurrent_step(t, dev, w, &tokens, b);
    }
    ops->matmul->forward(dev, t->q, norm, w->q, false);
    ops->gca->forward_keep(dev, t->o, t->token_lse, t->q, recurrent_pool(t, t->projected),
                           recurrent_blocks(t, t->token_rows, t->token_slot, chunks), t->heads);
}

/* Computes from the gradient of state b + 1, in t->dstate, those of its inputs. The part of state b that goes through
 * the gate stays in t->dstate. */
static void recurrent_step_backward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                                    const struct recurrent_weights *g, const struct gca_pool *tokens,
                                    struct gca_gradients to, int64_t b) {
    const struct ops *ops = dev->ops;
    struct mat p = recurrent_rows(t, t->projected, b), dp = recurrent_rows(t, t->dprojected, b);
    int64_t d = t->state.cols, chunks = t->sequences * t->blocks;
    struct state_gate_gradients gate = {t->dstate, t->dupdate, g->gate};
    ops->state_gate->backward(dev, &gate, t->dstate, recurrent_rows(t, t->state, b), recurrent_rows(t, t->update, b),
                              w->gate);
    ops->matmul->backward_weight(dev, g->state_o, t->dupdate, recurrent_rows(t, t->attended, b));
    ops->matmul->backward_input(dev, t->dattended, t->dupdate, w->state_o, false);
    struct gca_gradients self = {recurrent_part(dp, 0), recurrent_part(dp, 2), recurrent_part(dp, 3), t->dweight};
    ops->gca->backward(dev, &self, mat_cols(t->dattended, 0, d), recurrent_part(p, 0), recurrent_pool(t, p),
                       recurrent_blocks(t, t->state_rows, t->state_slot, t->sequences),
                       recurrent_invert(dev, t->state_inverse, t->state_slot, t->sequences, t->sequences),
                       recurrent_lse(t, b, 0));
    const int32_t *slot = t->block_slot + b * t->sequences;
    to.dq = recurrent_part(dp, 1), to.dweight = t->dweight;
    ops->gca->backward(dev, &to, mat_cols(t->dattended, d, d), recurrent_part(p, 1), *tokens,
                       recurrent_blocks(t, t->state_rows, slot, t->sequences),
                       recurrent_invert(dev, t->block_inverse, slot, t->sequences, chunks), recurrent_lse(t, b, 1));
}

/* Computes the gradient of state b, in t->dstate, through its norm and its projections. */
static void recurrent_input_backward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                                     const struct recurrent_weights *g, int64_t b) {
    const struct ops *ops = dev->ops;
    struct mat dinput = t->dupdate;
    ops->matmul->backward_input(dev, dinput, recurrent_rows(t, t->dprojected, b), w->state, false);
    for (int s = 0; s < t->sequences; s++)
        ops->elementwise->add(dev, g->ids, g->ids, mat_rows(dinput, (int64_t)s * t->states, t->states));
    ops->norm->backward(dev, t->dstate, g->norm, dinput, recurrent_rows(t, t->state, b), w->norm,
                        recurrent_rows(t, t->rstd, b), b + 1 < t->blocks);
}

void recurrent_train_backward(struct recurrent_train *t, struct device *dev, const struct recurrent_weights *w,
                              const struct recurrent_weights *g, struct mat dh, const struct gca_pool *tokens,
                              struct mat dkeys, struct mat dvalues) {
    const struct ops *ops = dev->ops;
    int64_t chunks = t->sequences * t->blocks;
    struct gca_pool pool = recurrent_tokens(t, tokens->keys, tokens->values);
    ops->matmul->backward_input(dev, t->dout, dh, w->o, false);
    ops->matmul->backward_weight(dev, g->o, dh, t->o);
    device_clear(dev, t->dprojected.data, mat_bytes(t->dprojected));
    struct gca_gradients read = {t->dq, recurrent_part(t->dprojected, 2), recurrent_part(t->dprojected, 3), t->dweight};
    ops->gca->backward(dev, &read, t->dout, t->q, recurrent_pool(t, t->projected),
                       recurrent_blocks(t, t->token_rows, t->token_slot, chunks),
                       recurrent_invert(dev, t->token_inverse, t->token_slot, chunks, chunks), t->token_lse);
    struct gca_gradients to = {.dkeys = dkeys, .dvalues = dvalues};
    for (int64_t b = t->blocks - 1; b >= 0; b--) {
        if (b + 1 < t->blocks) recurrent_step_backward(t, dev, w, g, &pool, to, b);
        recurrent_input_backward(t, dev, w, g, b);
    }
    ops->matmul->backward_weight(dev, g->state, t->dprojected, t->input);
    for (int s = 0; s < t->sequences; s++)
        ops->elementwise->add(dev, g->initial, g->initial, mat_rows(t->dstate, (int64_t)s * t->states, t->states));
}
