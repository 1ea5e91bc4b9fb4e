/* decoder_train_backward.c -- the decoder's backward pass (model.md §6.5).
 *
 * One matrix has the gradient of the residual stream. Each half of a layer adds its part to it. GCA's output reaches
 * the stream only through the MLP's input. So its gradient is that of `sum`, which is also added to the stream's. */
#include "decoder/decoder_train_internal.h"
#include <assert.h>

/* The gradients of a group's layers for the encoder and for the retrieval weights. */
struct decoder_train_outputs {
    struct mat dkeys, dvalues;
    float *dweight;
    struct gca_inverse inverse;
};

/* Computes from dsum the gradients through GCA: of the stream, of the chunks' keys and values, and of the weights. */
static void decoder_train_gca_backward(struct decoder_train *t, int layer, const struct decoder_train_group *group,
                                       const struct decoder_train_outputs *outputs, bool first) {
    const struct ops *ops = t->dev->ops;
    const struct decoder_train_gca_kept *f = &t->layers[layer].gca;
    const struct block_weights *w = &t->w.layers[layer], *g = &t->g.layers[layer];
    struct mat dout = t->work.narrow, dq = block_wide(&t->work, t->rows, t->config.hidden);
    struct mat lse = mat_rows(f->lse, 0, (int64_t)group->blocks.k * t->config.heads);
    int64_t results = t->queries * group->blocks.k;
    ops->elementwise->add(t->dev, t->grad, t->grad, t->dsum);
    ops->matmul->backward_input(t->dev, dout, t->dsum, w->gca_o, false);
    ops->matmul->backward_weight(t->dev, g->gca_o, t->dsum, f->o);
    /* All layers of the group read the same weights, so their gradients are summed. */
    struct gca_gradients to = {dq, outputs->dkeys, outputs->dvalues, first ? outputs->dweight : t->dweight};
    ops->gca->backward(t->dev, &to, dout, f->q, group->pool, group->blocks, outputs->inverse, lse);
    struct mat sum = mat_f32(outputs->dweight, 1, results);
    if (!first) ops->elementwise->add(t->dev, sum, sum, mat_f32(t->dweight, 1, results));
    ops->matmul->backward_weight(t->dev, g->gca_q, dq, f->norm);
    struct mat dnorm = t->work.narrow;
    ops->matmul->backward_input(t->dev, dnorm, dq, w->gca_q, false);
    ops->norm->backward(t->dev, t->grad, g->gca_norm, dnorm, t->layers[layer].kept.h, w->gca_norm, f->rstd, true);
}

/* The tokens' queries of the state are also computed from the layer's normed input. */
static void decoder_train_query_of_state_backward(struct decoder_train *t, const struct block_kept *k,
                                                  const struct block_weights *w, const struct block_weights *g) {
    struct mat dnorm = t->work.narrow;
    t->dev->ops->matmul->backward_weight(t->dev, t->g.recurrent.q, t->recurrent.dq, k->input_norm);
    t->dev->ops->matmul->backward_input(t->dev, dnorm, t->recurrent.dq, t->w.recurrent.q, false);
    t->dev->ops->norm->backward(t->dev, t->grad, g->input_norm, dnorm, k->x, w->input_norm, k->input_rstd, true);
}

static void decoder_train_attend_backward(struct decoder_train *t, const struct block_kept *k, struct mat dqkv,
                                          struct mat dout) {
    const struct attention_sequences window = decoder_train_attention(t, k);
    const struct landmark_sequences blocks = decoder_train_landmarks(t, k);
    struct mat dq = block_part(dqkv, 0), dk = block_part(dqkv, 1), dv = block_part(dqkv, 2);
    if (t->config.landmark_block > 0)
        t->dev->ops->landmark_attention->backward_sequences(t->dev, dq, dk, dv, dout, k->o, k->lse, &blocks);
    else
        t->dev->ops->attention->backward_sequences(t->dev, dq, dk, dv, dout, k->o, k->lse, &window);
}

static void decoder_train_attention_backward(struct decoder_train *t, int layer) {
    const struct block_kept *k = &t->layers[layer].kept;
    const struct block_weights *w = &t->w.layers[layer], *g = &t->g.layers[layer];
    struct mat dout = t->work.narrow, dqkv = block_wide(&t->work, t->rows, 3 * (int64_t)t->config.hidden);
    block_back_output(t->dev, dout, t->grad, k, w, g);
    decoder_train_attend_backward(t, k, dqkv, dout);
    const bool recurrent = layer + 1 == t->config.recurrent_layer;
    if (recurrent) {
        struct gca_pool tokens = {.keys = block_part(k->qkv, 1), .values = block_part(k->qkv, 2)};
        recurrent_train_backward(&t->recurrent, t->dev, &t->w.recurrent, &t->g.recurrent, t->grad, &tokens,
                                 block_part(dqkv, 1), block_part(dqkv, 2));
    }
    block_back_qkv(t->dev, t->grad, dqkv, k, w, g, &t->work);
    if (recurrent) decoder_train_query_of_state_backward(t, k, w, g);
}

/* Adds the gradient of key states through the norm that made them from x. */
static void decoder_train_keys_backward(struct decoder_train *t, struct mat dx, struct mat dkeys,
                                        const struct decoder_train_layer *l, struct mat x, bool accumulate) {
    int layer = t->key_layer - 1;
    t->dev->ops->norm->backward(t->dev, dx, t->g.layers[layer].post_norm, dkeys, x, t->w.layers[layer].post_norm,
                                l->kept.post_rstd, accumulate);
}

/* outputs NULL: a layer without GCA. first: the first layer of its group in the backward pass. */
static void decoder_train_layer_backward(struct decoder_train *t, int layer, int group,
                                         const struct decoder_train_outputs *outputs, bool first) {
    const struct decoder_train_layer *l = &t->layers[layer];
    const struct block_weights *w = &t->w.layers[layer], *g = &t->g.layers[layer];
    struct mat dkeys = layer + 1 == t->key_layer ? t->dkeys : (struct mat){0};
    if (t->recompute && t->ready != layer) decoder_train_layer_forward(t, layer, group, (struct mat){0});
    if (outputs) {
        block_back_mlp(t->dev, (struct block_gradient){t->dsum, false}, t->grad, &l->kept, l->gca.sum, w, g, &t->work);
        if (dkeys.data) decoder_train_keys_backward(t, t->dsum, dkeys, l, l->gca.sum, true);
        decoder_train_gca_backward(t, layer, &t->groups[group], outputs, first);
    } else {
        block_back_mlp(t->dev, (struct block_gradient){t->grad, true}, t->grad, &l->kept, l->kept.h, w, g, &t->work);
        if (dkeys.data) decoder_train_keys_backward(t, t->grad, dkeys, l, l->kept.h, true);
    }
    decoder_train_attention_backward(t, layer);
}

void decoder_train_group_backward(struct decoder_train *t, int group, struct mat dkeys, struct mat dvalues,
                                  float *dweight, struct gca_inverse inverse) {
    int first = decoder_train_first(t, group), end = decoder_train_first(t, group + 1);
    bool fused = t->groups[group].blocks.blocks > 0;
    struct decoder_train_outputs outputs = {.dkeys = dkeys, .dvalues = dvalues, .dweight = dweight, .inverse = inverse};
    assert(!fused || (dkeys.data && dvalues.data && dweight && inverse.begin));
    for (int i = end - 1; i >= first; i--)
        decoder_train_layer_backward(t, i, group, fused ? &outputs : NULL, i == end - 1);
}

void decoder_train_query_backward(struct decoder_train *t, int group, struct mat dquery, bool cut) {
    const struct ops *ops = t->dev->ops;
    const struct decoder_train_group *g = &t->groups[group];
    struct mat dnorm = dquery;
    assert(dquery.type == DTYPE_F32 && dquery.rows == t->queries);
    if (t->type != DTYPE_F32) {
        dnorm = t->dquery;
        ops->elementwise->convert(t->dev, dnorm, dquery);
    }
    if (t->config.retrieval_proj) {
        ops->matmul->backward_weight(t->dev, t->g.query_proj[group], dnorm, g->norm);
        if (cut) return;
        struct mat through = mat_rows(t->work.narrow, 0, t->queries);
        ops->matmul->backward_input(t->dev, through, dnorm, t->w.query_proj[group], false);
        dnorm = through;
    }
    struct mat x = decoder_train_landmark_rows(t, t->layers[decoder_train_first(t, group)].kept.x);
    struct mat dx = cut ? mat_rows(t->dsum, 0, t->queries) : decoder_train_landmark_rows(t, t->grad);
    ops->norm->backward(t->dev, dx, t->g.query_norm[group], dnorm, x, t->w.query_norm[group], g->rstd, !cut);
}

void decoder_train_add_dkeys(struct decoder_train *t, struct mat dkeys) {
    assert(t->key_layer > 0);
    t->dkeys = dkeys;
}

/* Computes the embedding's gradient from t->grad. A Base LM embeds negative ids as id 0. Rows of id 0 get gradients;
 * rows of negative ids do not. */
static void decoder_train_embed_backward(struct decoder_train *t) {
    t->dev->ops->embed->backward(t->dev, t->g.embed, t->grad, t->ids, t->config.base_lm ? -1 : t->config.pad_id);
}

void decoder_train_passages_backward(struct decoder_train *t, struct mat dkeys) {
    int last = t->key_layer - 1;
    const struct decoder_train_layer *l = &t->layers[last];
    if (t->recompute && t->ready != last) decoder_train_layer_forward(t, last, -1, (struct mat){0});
    decoder_train_keys_backward(t, t->grad, dkeys, l, l->kept.h, false);
    decoder_train_attention_backward(t, last);
    for (int i = last - 1; i >= 0; i--)
        decoder_train_layer_backward(t, i, -1, NULL, false);
    decoder_train_embed_backward(t);
}

struct mat decoder_train_dhidden(struct decoder_train *t) {
    return t->grad;
}

void decoder_train_lower_backward(struct decoder_train *t) {
    for (int i = t->config.lower_layers - 1; i >= 0; i--)
        decoder_train_layer_backward(t, i, -1, NULL, false);
    decoder_train_embed_backward(t);
}
