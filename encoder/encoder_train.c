/* encoder_train.c -- the chunk encoder over many chunks at once, kept, and its way back.
 *
 * Keys and values are one product [Wk; Wv] of the states, so they lie side by side in rows of 2d, and so do their
 * gradients. Those arrive in float32 from every layer that read them; what reaches the states is gathered in float32
 * too (keys, values, landmark, masked tokens), and rounded once. */
#include "encoder/encoder_train.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "model/block_backward.h"
#include <assert.h>

static const float inner_eps = 1e-6f; /* of every norm inside the encoder, whatever the config says */

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
    int64_t first, chunks;          /* first .. chunks - 1 are in hand: a pass's, and between passes all */
    int64_t ends[MODEL_GROUPS_MAX]; /* of the passes that made them: forward, then append */
    int passes;
    bool recompute;
    const int32_t *ids; /* of the last forward, or NULL */
    struct mat input;   /* embedded ids, or the borrowed hidden rows */
    void *memory;
    size_t bytes;
    /* For max_chunks; a step's are the first rows of them. */
    struct block_kept *layers;
    struct mat embedded, prenorm_rstd, out, norm_rstd, states, kv, landmarks, dkv, dstates, dlandmarks;
    struct mat grad; /* of the residual stream */
    struct block_work work;
};

static struct mat joined(struct mat first, struct mat second) {
    assert((unsigned char *)first.data + mat_bytes(first) == second.data);
    return mat_dense(first.data, first.type, first.rows + second.rows, first.cols);
}

static enum status find_tensors(struct encoder_tensors *out, const struct model_config *config,
                                const struct weights *w) {
    *out = (struct encoder_tensors){
        .embed = weights_tensor(w, "model.embed_tokens.weight"),
        .prenorm = weights_tensor(w, "model.enc_prenorm.weight"),
        .norm = weights_tensor(w, "model.encoder.norm.weight"),
        .kv = joined(weights_tensor(w, "model.chunk_k_proj.weight"), weights_tensor(w, "model.chunk_v_proj.weight")),
    };
    if (config->retrieval_proj) out->landmark = weights_tensor(w, "model.lmk_k_proj.weight");
    void *layers;
    TRY(memory_allocate_zero_bytes(&layers, (size_t)config->encoder_layers, sizeof *out->layers));
    out->layers = layers;
    for (int i = 0; i < config->encoder_layers; i++)
        block_weights_encoder(&out->layers[i], config, w, i);
    return STATUS_OK;
}

static void carve_all(void *of, struct carve *c) {
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

static enum status allocate(struct encoder_train *t) {
    void *layers;
    TRY(memory_allocate_zero_bytes(&layers, (size_t)t->config.encoder_layers, sizeof *t->layers));
    t->layers = layers;
    return carve_device(t->dev, &t->memory, &t->bytes, carve_all, t);
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
    enum status s = find_tensors(&t->w, config, weights);
    if (s == STATUS_OK) s = find_tensors(&t->g, config, gradients);
    if (s == STATUS_OK) s = allocate(t);
    if (s == STATUS_OK)
        *out = t;
    else
        encoder_train_free(t);
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

static int64_t in_hand(const struct encoder_train *t) {
    return t->chunks - t->first;
}

/* The rows of m that the chunks in hand fill. */
static struct mat rows_of(const struct encoder_train *t, struct mat m) {
    return mat_rows(m, t->first * t->positions, in_hand(t) * t->positions);
}

/* Of m's rows, which are those of the chunks in hand, one for each: its landmark's. */
static struct mat landmark_rows(const struct encoder_train *t, struct mat m) {
    struct mat first = mat_rows(m, t->positions - 1, 1);
    return (struct mat){
        .data = first.data, .type = m.type, .rows = in_hand(t), .cols = m.cols, .stride = m.stride * t->positions};
}

static struct block_kept kept_of(const struct encoder_train *t, int layer) {
    struct block_kept k = block_kept_rows(&t->layers[layer], t->first * t->positions, in_hand(t) * t->positions);
    k.x = rows_of(t, k.x);
    return k;
}

static void layer_attention(struct encoder_train *t, const struct block_kept *kept, const struct block_weights *w) {
    const struct model_config *m = &t->config;
    struct block_kept k = *kept;
    block_keep_qkv(t->dev, &k, w, inner_eps);
    /* Queries and keys lie side by side: turned in one pass, and kept turned. */
    t->dev->ops->rope->forward(t->dev, mat_cols(k.qkv, 0, 2 * m->hidden), 2 * m->heads, (int)t->positions,
                               m->rope_theta);
    t->dev->ops->chunk_attention->forward_keep(t->dev, k.o, k.lse, block_part(k.qkv, 0), block_part(k.qkv, 1),
                                               block_part(k.qkv, 2), m->heads, (int)t->positions);
}

/* y data NULL: the layer's activations alone. */
static void layer_forward(struct encoder_train *t, int layer, struct mat y) {
    const struct block_weights *w = &t->w.layers[layer];
    struct block_kept k = kept_of(t, layer);
    layer_attention(t, &k, w);
    block_keep_output(t->dev, &k, w);
    block_keep_mlp(t->dev, y, &k, k.h, w, inner_eps);
}

static void start(struct encoder_train *t, const int32_t *ids, struct mat hidden, int64_t n) {
    assert(n > 0 && n <= t->max_chunks && !ids == !!hidden.data);
    assert(!ids == (t->config.encoder_input == ENCODER_INPUT_HIDDEN));
    assert(ids || hidden.rows == n * t->positions);
    t->first = 0;
    t->chunks = n;
    t->passes = 0;
    t->ids = ids;
    t->input = ids ? t->embedded : hidden;
}

/* What the first layer reads. */
static void embed(struct encoder_train *t) {
    const struct ops *ops = t->dev->ops;
    if (t->ids)
        ops->embed->forward(t->dev, rows_of(t, t->embedded), t->w.embed, t->ids + t->first * t->positions,
                            t->config.pad_id);
    ops->norm->forward(t->dev, rows_of(t, t->layers[0].x), rows_of(t, t->prenorm_rstd), rows_of(t, t->input),
                       t->w.prenorm, t->config.rms_eps);
}

/* The last layer behind its attention, and what stands above it, on the landmarks' rows alone. */
static struct mat landmarks_alone(struct encoder_train *t) {
    const struct ops *ops = t->dev->ops;
    int last = t->config.encoder_layers - 1;
    const struct block_weights *w = &t->w.layers[last];
    struct block_kept k = kept_of(t, last);
    assert(t->first == 0);
    struct mat h = mat_rows(k.h, 0, t->chunks), states = mat_rows(t->states, 0, t->chunks);
    layer_attention(t, &k, w);
    ops->elementwise->convert(t->dev, h, landmark_rows(t, k.x));
    block_output(t->dev, h, landmark_rows(t, k.o), w);
    block_mlp(t->dev, h, h, w, inner_eps, (struct block_scratch){.norm = k.post_norm, .gate_up = k.gate_up});
    ops->norm->forward(t->dev, states, mat_rows(t->norm_rstd, 0, t->chunks), h, t->w.norm, inner_eps);
    if (!t->w.landmark.data) return states;
    struct mat landmarks = mat_rows(t->landmarks, 0, t->chunks);
    ops->matmul->forward(t->dev, landmarks, states, t->w.landmark, false);
    return landmarks;
}

void encoder_train_encode(struct encoder_train *t, struct mat landmarks, const int32_t *ids, int64_t n) {
    assert(ids && landmarks.rows == n);
    start(t, ids, (struct mat){0}, n);
    embed(t);
    for (int i = 0; i < t->config.encoder_layers - 1; i++)
        layer_forward(t, i, rows_of(t, t->layers[i + 1].x));
    t->dev->ops->elementwise->convert(t->dev, landmarks, landmarks_alone(t));
    t->chunks = 0; /* nothing to go back from */
}

/* The chunks in hand, through all layers. */
static void pass(struct encoder_train *t) {
    const struct ops *ops = t->dev->ops;
    int last = t->config.encoder_layers - 1;
    embed(t);
    for (int i = 0; i <= last; i++)
        layer_forward(t, i, rows_of(t, i < last ? t->layers[i + 1].x : t->out));

    struct mat states = rows_of(t, t->states), landmarks = mat_rows(t->landmarks, t->first, in_hand(t));
    ops->norm->forward(t->dev, states, rows_of(t, t->norm_rstd), rows_of(t, t->out), t->w.norm, inner_eps);
    ops->matmul->forward(t->dev, rows_of(t, t->kv), states, t->w.kv, false);
    if (t->w.landmark.data)
        ops->matmul->forward(t->dev, landmarks, landmark_rows(t, states), t->w.landmark, false);
    else
        ops->elementwise->convert(t->dev, landmarks, landmark_rows(t, states));
    struct mat sums[] = {rows_of(t, t->dkv), rows_of(t, t->dstates), mat_rows(t->dlandmarks, t->first, in_hand(t))};
    for (size_t i = 0; i < ARRAY_LEN(sums); i++)
        device_clear(t->dev, sums[i].data, mat_bytes(sums[i]));
    t->ends[t->passes++] = t->chunks;
    t->first = 0;
}

void encoder_train_forward(struct encoder_train *t, const int32_t *ids, struct mat hidden, int64_t n) {
    start(t, ids, hidden, n);
    pass(t);
}

void encoder_train_append(struct encoder_train *t, int64_t n) {
    assert(t->ids && t->passes > 0 && t->passes < MODEL_GROUPS_MAX && n > 0 && t->chunks + n <= t->max_chunks);
    t->first = t->chunks;
    t->chunks += n;
    pass(t);
}

struct mat encoder_train_states(const struct encoder_train *t) {
    return rows_of(t, t->states);
}
struct mat encoder_train_landmarks(const struct encoder_train *t) {
    return mat_rows(t->landmarks, 0, t->chunks);
}
struct gca_pool encoder_train_pool(const struct encoder_train *t) {
    int64_t d = t->config.hidden;
    struct mat kv = rows_of(t, t->kv);
    return (struct gca_pool){.keys = mat_cols(kv, 0, d),
                             .values = mat_cols(kv, d, d),
                             .slot_rows = (int)t->positions,
                             .live_rows = t->config.chunk,
                             .off_by_one = t->config.softmax_off_by_one};
}
struct mat encoder_train_dkeys(const struct encoder_train *t) {
    return mat_cols(rows_of(t, t->dkv), 0, t->config.hidden);
}
struct mat encoder_train_dvalues(const struct encoder_train *t) {
    return mat_cols(rows_of(t, t->dkv), t->config.hidden, t->config.hidden);
}
struct mat encoder_train_dlandmarks(const struct encoder_train *t) {
    return mat_rows(t->dlandmarks, 0, t->chunks);
}
struct mat encoder_train_dstates(const struct encoder_train *t) {
    return rows_of(t, t->dstates);
}

/* m in the type of activations: itself, or rounded into the first elements of `room`. */
static struct mat rounded(struct encoder_train *t, struct mat m, struct mat room) {
    if (m.type == t->type) return m;
    struct mat to = mat_dense(room.data, t->type, m.rows, m.cols);
    assert(m.rows * m.cols <= room.rows * room.cols);
    t->dev->ops->elementwise->convert(t->dev, to, m);
    return to;
}

/* dstates: all that reached the states; returns it in the type of activations. */
static struct mat gather_states(struct encoder_train *t) {
    const struct matmul_ops *matmul = t->dev->ops->matmul;
    struct mat states = encoder_train_states(t), dstates = encoder_train_dstates(t);
    struct mat dkv = rounded(t, rows_of(t, t->dkv), t->work.wide);
    matmul->backward_weight(t->dev, t->g.kv, dkv, states);
    matmul->backward_input(t->dev, dstates, dkv, t->w.kv, true);

    struct mat dlandmarks = encoder_train_dlandmarks(t), reached = landmark_rows(t, dstates);
    if (t->w.landmark.data) {
        dlandmarks = rounded(t, dlandmarks, t->work.wide);
        matmul->backward_weight(t->dev, t->g.landmark, dlandmarks, landmark_rows(t, states));
        matmul->backward_input(t->dev, reached, dlandmarks, t->w.landmark, true);
    } else {
        t->dev->ops->elementwise->add(t->dev, reached, reached, dlandmarks);
    }
    return rounded(t, dstates, t->work.narrow);
}

/* A layer's activations anew, in the passes that made them, for the same bits. */
static void layer_again(struct encoder_train *t, int layer) {
    int64_t all = t->chunks;
    for (int i = 0; i < t->passes; i++) {
        t->first = i > 0 ? t->ends[i - 1] : 0;
        t->chunks = t->ends[i];
        layer_forward(t, layer, (struct mat){0});
    }
    t->first = 0;
    t->chunks = all;
}

static void layer_backward(struct encoder_train *t, int layer) {
    const struct model_config *m = &t->config;
    const struct block_weights *w = &t->w.layers[layer], *g = &t->g.layers[layer];
    /* A layer's activations are gone where it shares their room; the last one's are still there. */
    if (t->recompute && layer < m->encoder_layers - 1) layer_again(t, layer);
    struct block_kept k = kept_of(t, layer);
    struct mat grad = rows_of(t, t->grad), dout = rows_of(t, t->work.narrow);
    block_back_mlp(t->dev, grad, true, grad, &k, k.h, w, g, &t->work);
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
    struct mat grad = rows_of(t, t->grad);
    ops->norm->backward(t->dev, grad, t->g.norm, gather_states(t), rows_of(t, t->out), t->w.norm,
                        rows_of(t, t->norm_rstd), false);
    for (int i = t->config.encoder_layers - 1; i >= 0; i--)
        layer_backward(t, i);
    struct mat to = dhidden.data ? dhidden : grad;
    ops->norm->backward(t->dev, to, t->g.prenorm, grad, rows_of(t, t->input), t->w.prenorm, rows_of(t, t->prenorm_rstd),
                        dhidden.data != NULL);
    if (t->ids) ops->embed->backward(t->dev, t->g.embed, grad, t->ids, t->config.pad_id);
}
