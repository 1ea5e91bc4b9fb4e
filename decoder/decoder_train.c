/* decoder_train.c -- the decoder over whole sequences: memory, and the forward pass.
 *
 * The backward pass reads activations where the forward pass wrote them. A layer's output is the next layer's input,
 * and only the residual is copied (block_backward.h). With `recompute` a layer keeps only its input, and all layers
 * share one set of buffers for the other activations. */
#include "base/memory.h"
#include "decoder/decoder_train_internal.h"
#include <assert.h>

static const float query_norm_eps = 1e-5f; /* of lmk_norms, which do not use the config's eps (model.md §4.1) */

int decoder_train_first(const struct decoder_train *t, int group) {
    int layer = t->config.lower_layers;
    for (int g = 0; g < group; g++)
        layer += t->config.group_layers[g];
    return layer;
}

static void decoder_train_layout_gca(struct decoder_train_gca_kept *out, struct carve *c,
                                     const struct decoder_train *t) {
    const struct model_config *m = &t->config;
    int64_t n = t->rows, d = m->hidden;
    *out = (struct decoder_train_gca_kept){
        .norm = carve_mat(c, t->type, n, d),
        .rstd = carve_mat(c, DTYPE_F32, n, 1),
        .q = carve_mat(c, t->type, n, d),
        .o = carve_mat(c, t->type, n, d),
        .lse = carve_mat(c, DTYPE_F32, (int64_t)m->topk * m->heads, n),
        .sum = carve_mat(c, t->type, n, d),
    };
}

static void decoder_train_layout_layers(struct decoder_train *t, struct carve *c) {
    struct decoder_train_layer shared = {0};
    int first_upper = t->config.lower_layers;
    for (int i = 0; i < model_config_layers(&t->config); i++) {
        struct mat x = carve_mat(c, t->type, t->rows, t->config.hidden);
        if (!t->recompute || i == 0) block_kept_carve(&shared.kept, c, &t->config, t->type, t->rows);
        if (i >= first_upper && (!t->recompute || i == first_upper)) decoder_train_layout_gca(&shared.gca, c, t);
        t->layers[i] = shared;
        t->layers[i].kept.x = x;
    }
}

static void decoder_train_layout(void *of, struct carve *c) {
    struct decoder_train *t = of;
    const struct model_config *m = &t->config;
    int64_t n = t->rows, d = m->hidden;
    decoder_train_layout_layers(t, c);
    for (int g = 0; g < m->groups; g++) {
        struct decoder_train_group *group = &t->groups[g];
        group->norm = carve_mat(c, t->type, t->queries, d);
        group->rstd = carve_mat(c, DTYPE_F32, t->queries, 1);
        group->query = m->retrieval_proj ? carve_mat(c, t->type, t->queries, d) : group->norm;
    }
    t->out = carve_mat(c, t->type, n, d);
    t->final = carve_mat(c, t->type, n, d);
    t->final_rstd = carve_mat(c, DTYPE_F32, n, 1);
    t->grad = carve_mat(c, t->type, n, d);
    if (t->recompute) t->keys = carve_mat(c, t->type, n, d);
    block_work_carve(&t->work, c, m, t->type, n);
    if (m->recurrent_layer > 0)
        recurrent_train_carve(&t->recurrent, c, m, t->type, (int)(t->rows / t->length), t->length);
    if (m->groups == 0) return;
    t->dsum = carve_mat(c, t->type, n, d);
    t->dquery = carve_mat(c, t->type, t->queries, d);
    t->dweight = carve_bytes(c, t->queries * m->topk, sizeof *t->dweight);
}

static enum status decoder_train_allocate(struct decoder_train *t) {
    TRY(memory_allocate_zero(&t->layers, (size_t)model_config_layers(&t->config)));
    TRY(carve_device(t->dev, &t->memory, &t->bytes, decoder_train_layout, t));
    return t->config.recurrent_layer > 0 ? recurrent_train_begin(&t->recurrent, t->dev) : STATUS_OK;
}

enum status decoder_train_create(struct decoder_train **out, struct device *dev, const struct model_config *config,
                                 const struct weights *weights, const struct weights *gradients, int sequences,
                                 int64_t chunks, bool recompute) {
    struct decoder_train *t;
    assert(sequences > 0 && chunks > 0 && gradients->type == DTYPE_F32);
    TRY(memory_allocate_zero(&t, 1));
    t->dev = dev;
    t->config = *config;
    t->type = weights->type;
    t->positions = model_config_positions(config);
    t->queries = sequences * chunks;
    t->length = chunks * t->positions;
    t->rows = sequences * t->length;
    t->recompute = recompute;
    enum status s;
    TRY_GOTO(s, decoder_weights_find(&t->w, config, weights), out);
    TRY_GOTO(s, decoder_weights_find(&t->g, config, gradients), out);
    TRY_GOTO(s, decoder_train_allocate(t), out);
    *out = t;
out:
    if (s != STATUS_OK) decoder_train_free(t);
    return s;
}

void decoder_train_free(struct decoder_train *t) {
    if (!t) return;
    device_release(t->dev, t->memory);
    memory_free(t->layers);
    memory_free(t->w.layers);
    memory_free(t->g.layers);
    memory_free(t);
}

size_t decoder_train_bytes(const struct decoder_train *t) {
    return t->bytes;
}

struct mat decoder_train_landmark_rows(const struct decoder_train *t, struct mat x) {
    struct mat first = mat_rows(x, t->positions - 1, 1);
    return (struct mat){
        .data = first.data, .type = x.type, .rows = t->queries, .cols = x.cols, .stride = x.stride * t->positions};
}

/* Computes sum = h + GCA(h) (model.md §5.2). */
static void decoder_train_gca(struct decoder_train *t, const struct block_weights *w, const struct block_kept *k,
                              const struct decoder_train_gca_kept *f, const struct decoder_train_group *group) {
    const struct ops *ops = t->dev->ops;
    struct mat lse = mat_rows(f->lse, 0, (int64_t)group->blocks.k * t->config.heads);
    ops->norm->forward(t->dev, f->norm, f->rstd, k->h, w->gca_norm, t->config.rms_eps);
    ops->matmul->forward(t->dev, f->q, f->norm, w->gca_q, false);
    ops->gca->forward_keep(t->dev, f->o, lse, f->q, group->pool, group->blocks, t->config.heads);
    ops->matmul->forward_add(t->dev, f->sum, k->h, f->o, w->gca_o);
}

struct attention_sequences decoder_train_attention(const struct decoder_train *t, const struct block_kept *k) {
    return (struct attention_sequences){block_part(k->qkv, 0), block_part(k->qkv, 1), block_part(k->qkv, 2), t->length,
                                        t->config.heads,       t->config.window};
}

struct landmark_sequences decoder_train_landmarks(const struct decoder_train *t, const struct block_kept *k) {
    const struct model_config *m = &t->config;
    return (struct landmark_sequences){block_part(k->qkv, 0),
                                       block_part(k->qkv, 1),
                                       block_part(k->qkv, 2),
                                       t->length,
                                       {m->heads, m->landmark_block, m->window}};
}

static void decoder_train_attend(struct decoder_train *t, const struct block_kept *k) {
    const struct attention_sequences window = decoder_train_attention(t, k);
    const struct landmark_sequences blocks = decoder_train_landmarks(t, k);
    if (t->config.landmark_block > 0)
        t->dev->ops->landmark_attention->forward_sequences(t->dev, k->o, k->lse, &blocks);
    else
        t->dev->ops->attention->forward_sequences(t->dev, k->o, k->lse, &window);
}

void decoder_train_layer_forward(struct decoder_train *t, int layer, int group, struct mat y) {
    const struct model_config *m = &t->config;
    const struct block_weights *w = &t->w.layers[layer];
    const struct decoder_train_layer *l = &t->layers[layer];
    const struct block_kept *k = &l->kept;
    block_keep_qkv(t->dev, k, w, m->rms_eps);
    decoder_train_attend(t, k);
    block_keep_output(t->dev, k, w);
    if (layer + 1 == m->recurrent_layer) {
        recurrent_train_forward(&t->recurrent, t->dev, &t->w.recurrent, k->input_norm, block_part(k->qkv, 1),
                                block_part(k->qkv, 2));
        t->dev->ops->matmul->forward(t->dev, k->h, t->recurrent.o, t->w.recurrent.o, true);
    }
    bool fused = group >= 0 && t->groups[group].blocks.blocks > 0;
    if (fused) decoder_train_gca(t, w, k, &l->gca, &t->groups[group]);
    block_keep_mlp(t->dev, y, k, fused ? l->gca.sum : k->h, w, m->rms_eps);
    if (layer + 1 == t->key_layer && t->recompute) device_copy_rows(t->dev, t->keys, k->post_norm);
    t->ready = layer;
}

/* Computes layers first .. end - 1. Each writes the next one's input. */
static void decoder_train_layers_forward(struct decoder_train *t, int first, int end, int group) {
    int all = model_config_layers(&t->config);
    for (int i = first; i < end; i++)
        decoder_train_layer_forward(t, i, group, i + 1 < all ? t->layers[i + 1].kept.x : t->out);
}

/* Returns the input of `layer`; for the number of layers, the output of the last one. */
static struct mat decoder_train_layer_input(const struct decoder_train *t, int layer) {
    return layer < model_config_layers(&t->config) ? t->layers[layer].kept.x : t->out;
}

static void decoder_train_embed(struct decoder_train *t) {
    int pad = t->config.base_lm ? 0 : t->config.pad_id; /* model.md §10 */
    t->dev->ops->embed->forward(t->dev, decoder_train_layer_input(t, 0), t->w.embed, t->ids, pad);
}

struct mat decoder_train_lower(struct decoder_train *t, const int32_t *ids) {
    t->ids = ids;
    decoder_train_embed(t);
    decoder_train_layers_forward(t, 0, t->config.lower_layers, -1);
    return decoder_train_layer_input(t, t->config.lower_layers);
}

struct mat decoder_train_query(struct decoder_train *t, int group) {
    struct decoder_train_group *g = &t->groups[group];
    struct mat x = decoder_train_layer_input(t, decoder_train_first(t, group));
    assert(group >= 0 && group < t->config.groups);
    t->dev->ops->norm->forward(t->dev, g->norm, g->rstd, decoder_train_landmark_rows(t, x), t->w.query_norm[group],
                               query_norm_eps);
    if (t->config.retrieval_proj)
        t->dev->ops->matmul->forward(t->dev, g->query, g->norm, t->w.query_proj[group], false);
    return g->query;
}

void decoder_train_keep_keys(struct decoder_train *t, int key_layer) {
    assert(key_layer >= 1 && key_layer <= model_config_layers(&t->config));
    t->key_layer = key_layer;
    if (!t->recompute) t->keys = t->layers[key_layer - 1].kept.post_norm;
}

struct mat decoder_train_keys(const struct decoder_train *t) {
    assert(t->key_layer > 0);
    return t->keys;
}

struct mat decoder_train_passages(struct decoder_train *t, const int32_t *ids) {
    assert(t->key_layer > 0);
    t->ids = ids;
    for (int g = 0; g < t->config.groups; g++)
        t->groups[g].blocks.blocks = 0;
    decoder_train_embed(t);
    decoder_train_layers_forward(t, 0, t->key_layer - 1, -1);
    decoder_train_layer_forward(t, t->key_layer - 1, -1, (struct mat){0});
    return t->keys;
}

void decoder_train_group(struct decoder_train *t, int group, struct gca_pool pool, struct gca_blocks blocks) {
    assert(group >= 0 && group < t->config.groups);
    assert(blocks.blocks == 0 || (blocks.blocks == t->queries && blocks.k > 0 && blocks.k <= t->config.topk));
    t->groups[group].pool = pool;
    t->groups[group].blocks = blocks;
    decoder_train_layers_forward(t, decoder_train_first(t, group), decoder_train_first(t, group + 1), group);
}

static void decoder_train_final_norm(struct decoder_train *t) {
    t->dev->ops->norm->forward(t->dev, t->final, t->final_rstd, t->out, t->w.final_norm, t->config.rms_eps);
}

void decoder_train_score(struct decoder_train *t, float *nll, const int32_t *targets) {
    decoder_train_final_norm(t);
    t->dev->ops->loss->forward(t->dev, nll, t->final, t->w.embed, targets);
}

void decoder_train_loss(struct decoder_train *t, float *nll, struct loss_rows rows) {
    struct mat dfinal = t->work.narrow;
    decoder_train_final_norm(t);
    t->dev->ops->loss->forward_backward(t->dev, nll, dfinal, t->g.embed, t->final, t->w.embed, rows);
    t->dev->ops->norm->backward(t->dev, t->grad, t->g.final_norm, dfinal, t->out, t->w.final_norm, t->final_rstd,
                                false);
}
