/* encoder_train.c -- the chunk encoder over many chunks at once, forward and backward.
 *
 * Keys and values are computed in one product of the states with [Wk; Wv], so they are adjacent columns in rows of 2d.
 * So are their gradients, which are float32 sums over all layers that read them. The gradient of the states (from keys,
 * values, landmark, masked tokens) is also summed in float32, and rounded once. */
#include "encoder/encoder_train.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "model/block_backward.h"
#include <assert.h>

static const float inner_eps = 1e-6f; /* of every norm in the encoder's layers, which do not use the config's eps */

struct encoder_tensors {
    struct mat embed, prenorm, norm, kv, landmark; /* kv [2d, d]; landmark: data NULL without retrieval_proj */
    struct block_weights *layers;
};

struct encoder_train {
    struct device *dev;
    struct model_config config;
    struct encoder_tensors w, g;
    enum dtype type;
    int64_t max_chunks, positions;
    int64_t first, chunks; /* chunks first .. chunks - 1 are current: those of one pass, or between passes all */
    int64_t ends[MODEL_GROUPS_MAX + 1]; /* the end of each pass: the forward, then the appends */
    int passes;
    bool recompute, projection; /* encoder_train_keep_projection */
    const int32_t *ids;         /* of the last forward, or NULL */
    struct mat input;           /* embedded ids, or the borrowed hidden rows */
    void *memory;
    size_t bytes;
    /* for max_chunks; a step uses the first rows of them */
    struct block_kept *layers;
    struct mat embedded, prenorm_rstd, out, norm_rstd, states, kv, landmarks, dkv, dstates, dlandmarks;
    struct mat grad; /* of the residual stream */
    struct block_work work;
};

static enum status encoder_train_find_tensors(struct encoder_tensors *out, const struct model_config *config,
                                              const struct weights *w) {
    *out = (struct encoder_tensors){
        .embed = weights_tensor(w, "model.embed_tokens.weight"),
        .prenorm = weights_tensor(w, "model.enc_prenorm.weight"),
        .norm = weights_tensor(w, "model.encoder.norm.weight"),
        .kv = block_concatenated(weights_tensor(w, "model.chunk_k_proj.weight"),
                                 weights_tensor(w, "model.chunk_v_proj.weight")),
    };
    if (config->retrieval_proj) out->landmark = weights_tensor(w, "model.lmk_k_proj.weight");
    TRY(memory_allocate_zero(&out->layers, (size_t)config->encoder_layers));
    for (int i = 0; i < config->encoder_layers; i++)
        block_weights_encoder(&out->layers[i], config, w, i);
    return STATUS_OK;
}

static void encoder_train_layout(void *of, struct carve *c) {
    struct encoder_train *t = of;
    const struct model_config *m = &t->config;
    int64_t n = t->max_chunks * t->positions, d = m->hidden;
    struct block_kept shared = {0};
    for (int i = 0; i < m->encoder_layers; i++) {
        struct mat x = carve_mat(c, t->type, n, d);
        if (!t->recompute || i == 0) block_kept_carve(&shared, c, m, t->type, n);
        t->layers[i] = shared;
        t->layers[i].x = x;
    }
    if (m->encoder_input == ENCODER_INPUT_TOKENS) t->embedded = carve_mat(c, t->type, n, d);
    t->prenorm_rstd = carve_mat(c, DTYPE_F32, n, 1);
    t->out = carve_mat(c, t->type, n, d);
    t->norm_rstd = carve_mat(c, DTYPE_F32, n, 1);
    t->states = carve_mat(c, t->type, n, d);
    t->kv = carve_mat(c, t->type, n, 2 * d);
    t->landmarks = carve_mat(c, t->type, t->max_chunks, d);
    t->dkv = carve_mat(c, DTYPE_F32, n, 2 * d);
    t->dstates = carve_mat(c, DTYPE_F32, n, d);
    t->dlandmarks = carve_mat(c, DTYPE_F32, t->max_chunks, d);
    t->grad = carve_mat(c, t->type, n, d);
    block_work_carve(&t->work, c, m, t->type, n);
}

static enum status encoder_train_allocate(struct encoder_train *t) {
    TRY(memory_allocate_zero(&t->layers, (size_t)t->config.encoder_layers));
    return carve_device(t->dev, &t->memory, &t->bytes, encoder_train_layout, t);
}

enum status encoder_train_create(struct encoder_train **out, struct device *dev, const struct model_config *config,
                                 const struct weights *weights, const struct weights *gradients, int64_t max_chunks,
                                 bool recompute) {
    struct encoder_train *t;
    assert(!config->base_lm && config->encoder_layers > 0 && max_chunks > 0 && gradients->type == DTYPE_F32);
    TRY(memory_allocate_zero(&t, 1));
    t->dev = dev;
    t->config = *config;
    t->type = weights->type;
    t->max_chunks = max_chunks;
    t->positions = model_config_positions(config);
    t->recompute = recompute;
    enum status s;
    TRY_GOTO(s, encoder_train_find_tensors(&t->w, config, weights), out);
    TRY_GOTO(s, encoder_train_find_tensors(&t->g, config, gradients), out);
    TRY_GOTO(s, encoder_train_allocate(t), out);
    *out = t;
out:
    if (s != STATUS_OK) encoder_train_free(t);
    return s;
}

void encoder_train_free(struct encoder_train *t) {
    if (!t) return;
    device_release(t->dev, t->memory);
    memory_free(t->layers);
    memory_free(t->w.layers);
    memory_free(t->g.layers);
    memory_free(t);
}

int64_t encoder_train_max_chunks(const struct encoder_train *t) {
    return t->max_chunks;
}

size_t encoder_train_bytes(const struct encoder_train *t) {
    return t->bytes;
}

static int64_t encoder_train_current_chunks(const struct encoder_train *t) {
    return t->chunks - t->first;
}

/* Returns the rows of m that belong to the current chunks. */
static struct mat encoder_train_current_rows(const struct encoder_train *t, struct mat m) {
    return mat_rows(m, t->first * t->positions, encoder_train_current_chunks(t) * t->positions);
}

/* m: rows of the current chunks. Returns the landmark's row of each chunk. */
static struct mat encoder_train_landmark_rows(const struct encoder_train *t, struct mat m) {
    struct mat first = mat_rows(m, t->positions - 1, 1);
    return (struct mat){.data = first.data,
                        .type = m.type,
                        .rows = encoder_train_current_chunks(t),
                        .cols = m.cols,
                        .stride = m.stride * t->positions};
}

static struct block_kept encoder_train_layer_kept(const struct encoder_train *t, int layer) {
    struct block_kept k =
        block_kept_rows(&t->layers[layer], t->first * t->positions, encoder_train_current_chunks(t) * t->positions);
    k.x = encoder_train_current_rows(t, k.x);
    return k;
}

static void encoder_train_layer_attention(struct encoder_train *t, const struct block_kept *kept,
                                          const struct block_weights *w) {
    const struct model_config *m = &t->config;
    struct block_kept k = *kept;
    block_keep_qkv(t->dev, &k, w, inner_eps);
    /* Queries and keys are adjacent columns, so one call rotates both. They stay rotated for the backward pass. */
    t->dev->ops->rope->forward(t->dev, mat_cols(k.qkv, 0, 2 * m->hidden), 2 * m->heads, (int)t->positions,
                               m->rope_theta);
    t->dev->ops->chunk_attention->forward_keep(t->dev, k.o, k.lse, block_part(k.qkv, 0), block_part(k.qkv, 1),
                                               block_part(k.qkv, 2), m->heads, (int)t->positions);
}

/* y data NULL: computes only the layer's activations. */
static void encoder_train_layer_forward(struct encoder_train *t, int layer, struct mat y) {
    const struct block_weights *w = &t->w.layers[layer];
    struct block_kept k = encoder_train_layer_kept(t, layer);
    encoder_train_layer_attention(t, &k, w);
    block_keep_output(t->dev, &k, w);
    block_keep_mlp(t->dev, y, &k, k.h, w, inner_eps);
}

static void encoder_train_begin(struct encoder_train *t, const int32_t *ids, struct mat hidden, int64_t n) {
    assert(n > 0 && n <= t->max_chunks && !ids == !!hidden.data);
    assert(!ids == (t->config.encoder_input == ENCODER_INPUT_HIDDEN));
    assert(ids || hidden.rows == n * t->positions);
    t->first = 0;
    t->chunks = n;
    t->passes = 0;
    t->projection = false;
    t->ids = ids;
    t->input = ids ? t->embedded : hidden;
}

/* Makes the rows that the first layer reads. */
static void encoder_train_embed(struct encoder_train *t) {
    const struct ops *ops = t->dev->ops;
    if (t->ids)
        ops->embed->forward(t->dev, encoder_train_current_rows(t, t->embedded), t->w.embed,
                            t->ids + t->first * t->positions, t->config.pad_id);
    ops->norm->forward(t->dev, encoder_train_current_rows(t, t->layers[0].x),
                       encoder_train_current_rows(t, t->prenorm_rstd), encoder_train_current_rows(t, t->input),
                       t->w.prenorm, t->config.rms_eps);
}

/* Computes the last layer after its attention, the norm and the projection, only for the landmarks' rows. */
static struct mat encoder_train_last_layer_landmarks(struct encoder_train *t) {
    const struct ops *ops = t->dev->ops;
    int last = t->config.encoder_layers - 1;
    const struct block_weights *w = &t->w.layers[last];
    struct block_kept k = encoder_train_layer_kept(t, last);
    assert(t->first == 0);
    struct mat h = mat_rows(k.h, 0, t->chunks), states = mat_rows(t->states, 0, t->chunks);
    encoder_train_layer_attention(t, &k, w);
    ops->elementwise->convert(t->dev, h, encoder_train_landmark_rows(t, k.x));
    block_output(t->dev, h, encoder_train_landmark_rows(t, k.o), w);
    block_mlp(t->dev, h, h, w, inner_eps, (struct block_scratch){.norm = k.post_norm, .gate_up = k.gate_up});
    ops->norm->forward(t->dev, states, mat_rows(t->norm_rstd, 0, t->chunks), h, t->w.norm, inner_eps);
    if (!t->w.landmark.data) return states;
    struct mat landmarks = mat_rows(t->landmarks, 0, t->chunks);
    ops->matmul->forward(t->dev, landmarks, states, t->w.landmark, false);
    return landmarks;
}

void encoder_train_encode(struct encoder_train *t, struct mat landmarks, const int32_t *ids, int64_t n) {
    assert(ids && landmarks.rows == n);
    encoder_train_begin(t, ids, (struct mat){0}, n);
    encoder_train_embed(t);
    for (int i = 0; i < t->config.encoder_layers - 1; i++)
        encoder_train_layer_forward(t, i, encoder_train_current_rows(t, t->layers[i + 1].x));
    t->dev->ops->elementwise->convert(t->dev, landmarks, encoder_train_last_layer_landmarks(t));
    t->chunks = 0; /* there is no backward pass after this */
}

/* Computes all layers for the current chunks. */
static void encoder_train_forward_current(struct encoder_train *t) {
    const struct ops *ops = t->dev->ops;
    int last = t->config.encoder_layers - 1;
    encoder_train_embed(t);
    for (int i = 0; i <= last; i++)
        encoder_train_layer_forward(t, i, encoder_train_current_rows(t, i < last ? t->layers[i + 1].x : t->out));

    struct mat states = encoder_train_current_rows(t, t->states),
               landmarks = mat_rows(t->landmarks, t->first, encoder_train_current_chunks(t));
    ops->norm->forward(t->dev, states, encoder_train_current_rows(t, t->norm_rstd),
                       encoder_train_current_rows(t, t->out), t->w.norm, inner_eps);
    ops->matmul->forward(t->dev, encoder_train_current_rows(t, t->kv), states, t->w.kv, false);
    if (t->w.landmark.data)
        ops->matmul->forward(t->dev, landmarks, encoder_train_landmark_rows(t, states), t->w.landmark, false);
    else
        ops->elementwise->convert(t->dev, landmarks, encoder_train_landmark_rows(t, states));
    struct mat sums[] = {encoder_train_current_rows(t, t->dkv), encoder_train_current_rows(t, t->dstates),
                         mat_rows(t->dlandmarks, t->first, encoder_train_current_chunks(t))};
    for (size_t i = 0; i < ARRAY_LEN(sums); i++)
        device_clear(t->dev, sums[i].data, mat_bytes(sums[i]));
    t->ends[t->passes++] = t->chunks;
    t->first = 0;
}

void encoder_train_forward(struct encoder_train *t, const int32_t *ids, struct mat hidden, int64_t n) {
    encoder_train_begin(t, ids, hidden, n);
    encoder_train_forward_current(t);
}

void encoder_train_append(struct encoder_train *t, int64_t n) {
    assert(t->ids && t->passes > 0 && t->passes < (int)ARRAY_LEN(t->ends) && n > 0 && t->chunks + n <= t->max_chunks);
    t->first = t->chunks;
    t->chunks += n;
    encoder_train_forward_current(t);
}

void encoder_train_keep_projection(struct encoder_train *t) {
    assert(t->w.landmark.data && t->passes > 1);
    t->projection = true;
}

struct mat encoder_train_states(const struct encoder_train *t) {
    return encoder_train_current_rows(t, t->states);
}
struct mat encoder_train_landmarks(const struct encoder_train *t) {
    return mat_rows(t->landmarks, 0, t->chunks);
}
struct gca_pool encoder_train_pool(const struct encoder_train *t) {
    int64_t d = t->config.hidden;
    struct mat kv = encoder_train_current_rows(t, t->kv);
    return (struct gca_pool){.keys = mat_cols(kv, 0, d),
                             .values = mat_cols(kv, d, d),
                             .slot_rows = (int)t->positions,
                             .live_rows = t->config.chunk,
                             .off_by_one = t->config.softmax_off_by_one};
}
struct mat encoder_train_dkeys(const struct encoder_train *t) {
    return mat_cols(encoder_train_current_rows(t, t->dkv), 0, t->config.hidden);
}
struct mat encoder_train_dvalues(const struct encoder_train *t) {
    return mat_cols(encoder_train_current_rows(t, t->dkv), t->config.hidden, t->config.hidden);
}
struct mat encoder_train_dlandmarks(const struct encoder_train *t) {
    return mat_rows(t->dlandmarks, 0, t->chunks);
}
struct mat encoder_train_dstates(const struct encoder_train *t) {
    return encoder_train_current_rows(t, t->dstates);
}

/* Returns m in the type of activations: m itself, or its values rounded into `buffer`. */
static struct mat encoder_train_to_activation_type(struct encoder_train *t, struct mat m, struct mat buffer) {
    if (m.type == t->type) return m;
    struct mat to = mat_dense(buffer.data, t->type, m.rows, m.cols);
    assert(m.rows * m.cols <= buffer.rows * buffer.cols);
    t->dev->ops->elementwise->convert(t->dev, to, m);
    return to;
}

/* Adds the gradients of keys, values and landmarks to dstates, and returns it in the type of activations. */
static struct mat encoder_train_states_backward(struct encoder_train *t) {
    const struct matmul_ops *matmul = t->dev->ops->matmul;
    struct mat states = encoder_train_states(t), dstates = encoder_train_dstates(t);
    struct mat dkv = encoder_train_to_activation_type(t, encoder_train_current_rows(t, t->dkv), t->work.wide);
    matmul->backward_weight(t->dev, t->g.kv, dkv, states);
    matmul->backward_input(t->dev, dstates, dkv, t->w.kv, true);

    struct mat dlandmarks = encoder_train_dlandmarks(t), reached = encoder_train_landmark_rows(t, dstates);
    if (t->w.landmark.data) {
        dlandmarks = encoder_train_to_activation_type(t, dlandmarks, t->work.wide);
        matmul->backward_weight(t->dev, t->g.landmark, dlandmarks, encoder_train_landmark_rows(t, states));
        matmul->backward_input(t->dev, reached, dlandmarks, t->w.landmark, true);
    } else {
        t->dev->ops->elementwise->add(t->dev, reached, reached, dlandmarks);
    }
    return encoder_train_to_activation_type(t, dstates, t->work.narrow);
}

/* Computes the gradient of lmk_k_proj from the chunks of the last pass, and removes these chunks. */
static void encoder_train_projection_backward(struct encoder_train *t) {
    t->first = t->ends[t->passes - 2];
    struct mat dlandmarks = mat_rows(t->dlandmarks, t->first, encoder_train_current_chunks(t));
    struct mat states = encoder_train_landmark_rows(t, encoder_train_current_rows(t, t->states));
    t->dev->ops->matmul->backward_weight(t->dev, t->g.landmark,
                                         encoder_train_to_activation_type(t, dlandmarks, t->work.wide), states);
    t->chunks = t->first;
    t->first = 0;
    t->passes--;
}

/* Computes a layer's activations again, pass by pass as in the forward pass, so that the bits are equal. */
static void encoder_train_layer_recompute(struct encoder_train *t, int layer) {
    int64_t all = t->chunks;
    for (int i = 0; i < t->passes; i++) {
        t->first = i > 0 ? t->ends[i - 1] : 0;
        t->chunks = t->ends[i];
        encoder_train_layer_forward(t, layer, (struct mat){0});
    }
    t->first = 0;
    t->chunks = all;
}

static void encoder_train_layer_backward(struct encoder_train *t, int layer) {
    const struct model_config *m = &t->config;
    const struct block_weights *w = &t->w.layers[layer], *g = &t->g.layers[layer];
    /* With `recompute` the layers share buffers, which still have the last layer's activations. */
    if (t->recompute && layer < m->encoder_layers - 1) encoder_train_layer_recompute(t, layer);
    struct block_kept k = encoder_train_layer_kept(t, layer);
    struct mat grad = encoder_train_current_rows(t, t->grad), dout = encoder_train_current_rows(t, t->work.narrow);
    block_back_mlp(t->dev, (struct block_gradient){grad, true}, grad, &k, k.h, w, g, &t->work);
    block_back_output(t->dev, dout, grad, &k, w, g);
    struct mat dqkv = block_wide(&t->work, grad.rows, 3 * grad.cols);
    struct chunk_attention_kept kept = {
        k.o, k.lse, block_part(k.qkv, 0), block_part(k.qkv, 1), block_part(k.qkv, 2), m->heads, (int)t->positions};
    t->dev->ops->chunk_attention->backward(t->dev, block_part(dqkv, 0), block_part(dqkv, 1), block_part(dqkv, 2), dout,
                                           &kept);
    t->dev->ops->rope->backward(t->dev, mat_cols(dqkv, 0, 2 * m->hidden), 2 * m->heads, (int)t->positions,
                                m->rope_theta);
    block_back_qkv(t->dev, grad, dqkv, &k, w, g, &t->work);
}

void encoder_train_backward(struct encoder_train *t, struct mat dhidden) {
    const struct ops *ops = t->dev->ops;
    assert(t->chunks > 0 && !dhidden.data == !!t->ids);
    if (t->projection) encoder_train_projection_backward(t);
    struct mat grad = encoder_train_current_rows(t, t->grad);
    ops->norm->backward(t->dev, grad, t->g.norm, encoder_train_states_backward(t),
                        encoder_train_current_rows(t, t->out), t->w.norm, encoder_train_current_rows(t, t->norm_rstd),
                        false);
    for (int i = t->config.encoder_layers - 1; i >= 0; i--)
        encoder_train_layer_backward(t, i);
    struct mat to = dhidden.data ? dhidden : grad;
    ops->norm->backward(t->dev, to, t->g.prenorm, grad, encoder_train_current_rows(t, t->input), t->w.prenorm,
                        encoder_train_current_rows(t, t->prenorm_rstd), dhidden.data != NULL);
    if (t->ids) ops->embed->backward(t->dev, t->g.embed, grad, t->ids, t->config.pad_id);
}
