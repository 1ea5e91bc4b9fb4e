/* encoder.c -- chunks through the bidirectional layers (model.md §3).
 *
 * Each worker of the pool takes batches of chunks of its own through all layers with serial ops: no thread ever waits
 * for another inside a batch, and its activations stay near its core. When only landmarks are wanted (an index build),
 * the last layer needs keys and values of every row, but queries, output and MLP of the landmark's row alone: 1 row of
 * 64, which takes 40 % off the arithmetic of a two-layer encoder. */
#include "encoder/encoder.h"
#include "base/memory.h"
#include "encoder/encoder_internal.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

enum { BATCH = 8, KEY_ROWS = 64 };
static const float inner_eps = 1e-6f; /* of every norm inside the encoder, whatever the config says */

/* What one worker needs for a batch; all rows of chunk c at c*S .. c*S+S-1. */
struct workspace {
    int32_t *ids;                                     /* [B*S] */
    struct mat x, norm, qkv, gate_up;                 /* [B*S, d], [B*S, d], [B*S, 3d], [B*S, 2f] */
    struct mat landmark, landmark_norm, landmark_out; /* [B, d]: the shorter way of the last layer */
};

struct encoder {
    struct device *dev;
    struct model_config config;
    struct encoder_weights weights;
    struct workspace *workspaces; /* one for each worker */
    int workers, positions;
    int64_t batch;
    void *memory;        /* of the workspaces */
    int64_t *block_rows; /* [B+1] 0, 1, 2 ...: each landmark reads its own chunk */
    int32_t *block_slots;
    float *block_weights;
    size_t bytes;
};

/* The job that workers share. */
struct job {
    struct encoder *e;
    const struct encoder_output *out;
    const int32_t *ids;
    const float *hidden;
};

/* Deals out one piece of memory after the other; with base NULL it only counts. */
struct dealer {
    unsigned char *base;
    size_t used;
};

static void *take(struct dealer *deal, size_t count, size_t size) {
    void *piece = deal->base ? deal->base + deal->used : NULL;
    deal->used += (count * size + 63) / 64 * 64;
    return piece;
}

/* Rows lie a little further apart than they are long: at strides of a large power of two (2f floats are 8 KiB in a
 * common model) the rows of a block would share few lines of the first-level cache, which costs some percent. */
static struct mat take_rows(struct dealer *deal, int64_t rows, int64_t cols) {
    int64_t stride = (cols + 15) / 16 * 16 + 16;
    float *data = take(deal, (size_t)(rows * stride), sizeof(float));
    return (struct mat){.data = data, .type = DTYPE_F32, .rows = rows, .cols = cols, .stride = stride};
}

static void lay_out(struct workspace *w, const struct encoder *e, struct dealer *deal) {
    int64_t rows = e->batch * e->positions, d = e->config.hidden, f = e->config.ffn;
    w->ids = take(deal, (size_t)rows, sizeof *w->ids);
    w->x = take_rows(deal, rows, d);
    w->norm = take_rows(deal, rows, d);
    w->qkv = take_rows(deal, rows, 3 * d);
    w->gate_up = take_rows(deal, rows, 2 * f);
    w->landmark = take_rows(deal, e->batch, d);
    w->landmark_norm = take_rows(deal, e->batch, d);
    w->landmark_out = take_rows(deal, e->batch, d);
}

static enum status make_workspaces(struct encoder *e) {
    struct workspace none;
    struct dealer deal = {0};
    lay_out(&none, e, &deal);
    size_t bytes = deal.used * (size_t)e->workers;
    e->bytes = bytes + e->weights.bytes;
    TRY(device_allocate(e->dev, &e->memory, bytes));
    TRY(memory_allocate_zero((void **)&e->workspaces, (size_t)e->workers, sizeof *e->workspaces));
    deal = (struct dealer){.base = e->memory};
    for (int w = 0; w < e->workers; w++)
        lay_out(&e->workspaces[w], e, &deal);

    TRY(memory_allocate((void **)&e->block_rows, (size_t)e->batch + 1, sizeof *e->block_rows));
    TRY(memory_allocate((void **)&e->block_slots, (size_t)e->batch, sizeof *e->block_slots));
    TRY(memory_allocate((void **)&e->block_weights, (size_t)e->batch, sizeof *e->block_weights));
    for (int64_t c = 0; c < e->batch; c++) {
        e->block_rows[c] = c;
        e->block_slots[c] = (int32_t)c;
        e->block_weights[c] = 1.0f;
    }
    e->block_rows[e->batch] = e->batch;
    return STATUS_OK;
}

enum status encoder_create(struct encoder **out, struct device *dev, const struct model_config *config,
                           const struct params *params, int max_chunks) {
    struct encoder *e;
    assert(!config->base_lm && config->encoder_layers > 0 && max_chunks >= 0);
    TRY(memory_allocate_zero((void **)&e, 1, sizeof *e));
    e->dev = dev;
    e->config = *config;
    e->positions = model_config_positions(config);
    e->workers = threads_count(dev->threads);
    e->batch = max_chunks > 0 ? (max_chunks + e->workers - 1) / e->workers : BATCH;
    if (e->batch > BATCH) e->batch = BATCH;
    struct weights weights = weights_of_params(params);
    enum status s = encoder_weights_create(&e->weights, dev, config, &weights);
    if (s == STATUS_OK) s = make_workspaces(e);
    if (s == STATUS_OK)
        *out = e;
    else
        encoder_free(e);
    return s;
}

void encoder_free(struct encoder *e) {
    if (!e) return;
    encoder_weights_free(&e->weights, e->dev);
    device_release(e->dev, e->memory);
    memory_free(e->workspaces);
    memory_free(e->block_rows);
    memory_free(e->block_slots);
    memory_free(e->block_weights);
    memory_free(e);
}

size_t encoder_bytes(const struct encoder *e) {
    return e->bytes;
}

static void multiply(struct device *dev, struct mat y, struct mat x, struct encoder_matrix w, bool accumulate) {
    assert(y.cols == w.out && x.cols == w.in);
    dev->ops->matmul->forward_packed(dev, y, x, w.packed, accumulate);
}

static void normalise(struct device *dev, struct mat y, struct mat x, struct mat w, float eps) {
    dev->ops->norm->forward(dev, y, mat_f32(NULL, x.rows, 1), x, w, eps);
}

/* Rows S-1, 2S-1, ...: one landmark for each chunk. */
static struct mat landmark_rows(const struct encoder *e, struct mat m, int64_t chunks) {
    struct mat rows = {.data = mat_row(m, e->positions - 1),
                       .type = m.type,
                       .rows = chunks,
                       .cols = m.cols,
                       .stride = m.stride * e->positions};
    return rows;
}

static struct mat first_rows(struct mat m, int64_t rows) {
    return mat_rows(m, 0, rows);
}

static void copy_rows(struct mat to, struct mat from) {
    for (int64_t r = 0; r < to.rows; r++)
        memcpy(mat_row(to, r), mat_row(from, r), (size_t)to.cols * sizeof(float));
}

/* x += MLP(RMS(x)) */
static void mlp(const struct encoder *e, struct device *dev, const struct encoder_layer *l, struct mat x,
                struct mat norm, struct mat gate_up) {
    int64_t f = e->config.ffn;
    struct mat gate = mat_cols(gate_up, 0, f), up = mat_cols(gate_up, f, f);
    normalise(dev, norm, x, l->post_norm, inner_eps);
    multiply(dev, gate_up, norm, l->gate_up, false);
    dev->ops->elementwise->swiglu(dev, gate, gate, up);
    multiply(dev, x, gate, l->down, true);
}

/* Turns queries and keys, which lie side by side, in one pass. */
static void rotate(const struct encoder *e, struct device *dev, struct mat qkv) {
    dev->ops->rope->forward(dev, mat_cols(qkv, 0, 2 * e->config.hidden), 2 * e->config.heads, e->positions,
                            e->config.rope_theta);
}

static void layer(const struct encoder *e, struct device *dev, const struct encoder_layer *l, const struct workspace *w,
                  int64_t chunks) {
    int64_t rows = chunks * e->positions, d = e->config.hidden;
    struct mat x = first_rows(w->x, rows), norm = first_rows(w->norm, rows), qkv = first_rows(w->qkv, rows);
    struct mat q = mat_cols(qkv, 0, d), k = mat_cols(qkv, d, d), v = mat_cols(qkv, 2 * d, d);
    normalise(dev, norm, x, l->input_norm, inner_eps);
    multiply(dev, qkv, norm, l->qkv, false);
    rotate(e, dev, qkv);
    dev->ops->chunk_attention->forward(dev, q, q, k, v, e->config.heads, e->positions);
    multiply(dev, x, q, l->o, true);
    mlp(e, dev, l, x, norm, first_rows(w->gate_up, rows));
}

/* The last layer and the last norm for the landmark's row of each chunk: w->landmark_norm. Query rows of other
 * positions hold what an earlier layer left: they are turned along, and never read. */
static void last_layer_landmarks(const struct encoder *e, struct device *dev, const struct encoder_layer *l,
                                 const struct workspace *w, int64_t chunks) {
    int64_t rows = chunks * e->positions, d = e->config.hidden;
    struct mat norm = first_rows(w->norm, rows), qkv = first_rows(w->qkv, rows);
    struct mat landmark = first_rows(w->landmark, chunks), landmark_norm = first_rows(w->landmark_norm, chunks);
    struct mat query = landmark_rows(e, mat_cols(qkv, 0, d), chunks), o = first_rows(w->landmark_out, chunks);
    normalise(dev, norm, first_rows(w->x, rows), l->input_norm, inner_eps);
    multiply(dev, mat_cols(qkv, d, 2 * d), norm, l->kv, false);
    multiply(dev, query, landmark_rows(e, norm, chunks), l->q, false);
    rotate(e, dev, qkv);

    struct gca_pool pool = {.keys = mat_cols(qkv, d, d),
                            .values = mat_cols(qkv, 2 * d, d),
                            .slot_rows = e->positions,
                            .live_rows = e->positions};
    struct gca_blocks blocks = {
        .row_begin = e->block_rows, .slot = e->block_slots, .weight = e->block_weights, .blocks = (int)chunks, .k = 1};
    dev->ops->gca->forward(dev, o, query, pool, blocks, e->config.heads);
    copy_rows(landmark, landmark_rows(e, w->x, chunks));
    multiply(dev, landmark, o, l->o, true);
    mlp(e, dev, l, landmark, landmark_norm, first_rows(w->gate_up, chunks));
    normalise(dev, landmark_norm, landmark, e->weights.norm, inner_eps);
}

static void load(const struct job *job, struct device *dev, const struct workspace *w, int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    int64_t S = e->positions, chunk = e->config.chunk, rows = chunks * S;
    struct mat x = first_rows(w->x, rows);
    if (job->hidden) {
        struct mat hidden = mat_f32(job->hidden + first * S * x.cols, rows, x.cols);
        copy_rows(x, hidden);
    } else {
        for (int64_t c = 0; c < chunks; c++) {
            memcpy(w->ids + c * S, job->ids + (first + c) * chunk, (size_t)chunk * sizeof *w->ids);
            w->ids[c * S + chunk] = e->config.landmark_id;
        }
        dev->ops->embed->forward(dev, x, e->weights.embedding, w->ids, e->config.pad_id);
    }
    normalise(dev, x, x, e->weights.prenorm, e->config.rms_eps);
}

static void write_landmarks(const struct job *job, struct device *dev, struct mat rows, int64_t first) {
    const struct encoder *e = job->e;
    struct mat out = mat_f32(job->out->landmarks + first * rows.cols, rows.rows, rows.cols);
    if (e->weights.landmark.packed) {
        multiply(dev, out, rows, e->weights.landmark, false);
        return;
    }
    copy_rows(out, rows);
}

/* Keys or values of one chunk: its real rows projected; a 63-chunk's last row, the landmark's, is zero. */
static void write_projection(const struct encoder *e, struct device *dev, float *out, struct mat states,
                             struct encoder_matrix w) {
    int64_t live = e->config.chunk, d = e->config.hidden;
    multiply(dev, mat_f32(out, live, d), first_rows(states, live), w, false);
    memset(out + live * d, 0, (size_t)((KEY_ROWS - live) * d) * sizeof(float));
}

static void write_states(const struct job *job, struct device *dev, struct mat states, int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    const struct encoder_output *out = job->out;
    int64_t S = e->positions, d = e->config.hidden;
    if (out->states) copy_rows(mat_f32(out->states + first * S * d, chunks * S, d), states);
    if (out->landmarks) write_landmarks(job, dev, landmark_rows(e, states, chunks), first);
    for (int64_t c = 0; c < chunks; c++) {
        struct mat chunk = mat_rows(states, c * S, S);
        if (out->keys) write_projection(e, dev, out->keys[first + c], chunk, e->weights.chunk_k);
        if (out->values) write_projection(e, dev, out->values[first + c], chunk, e->weights.chunk_v);
    }
}

static void encode_batch(void *context, int64_t begin, int64_t end, int worker) {
    const struct job *job = context;
    const struct encoder *e = job->e;
    const struct workspace *w = &e->workspaces[worker];
    struct device *dev = device_worker(e->dev, worker);
    int last = e->config.encoder_layers - 1;
    bool all_rows = job->out->states || job->out->keys || job->out->values;
    load(job, dev, w, begin, end - begin);
    for (int i = 0; i < last; i++)
        layer(e, dev, &e->weights.layers[i], w, end - begin);
    if (!all_rows) {
        last_layer_landmarks(e, dev, &e->weights.layers[last], w, end - begin);
        write_landmarks(job, dev, first_rows(w->landmark_norm, end - begin), begin);
        return;
    }
    struct mat x = first_rows(w->x, (end - begin) * e->positions);
    layer(e, dev, &e->weights.layers[last], w, end - begin);
    normalise(dev, x, x, e->weights.norm, inner_eps);
    write_states(job, dev, x, begin, end - begin);
}

/* A range of threads_for may be longer than its grain: it is all of them when there is one thread. */
static void encode_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct job *job = context;
    int64_t batch = job->e->batch;
    for (int64_t at = begin; at < end; at += batch)
        encode_batch(context, at, at + batch < end ? at + batch : end, worker);
}

static void encode(const struct job *job, int64_t n) {
    struct encoder *e = job->e;
    if (!job->out->landmarks && !job->out->states && !job->out->keys && !job->out->values) return;
    /* A few chunks are spread over all workers rather than batched. */
    int64_t grain = (n + e->workers - 1) / e->workers;
    if (grain > e->batch) grain = e->batch;
    if (n > 0) threads_for(e->dev->threads, n, grain, encode_range, (void *)job);
}

void encoder_encode(struct encoder *e, const struct encoder_output *out, const int32_t *ids, int64_t n) {
    assert(e->config.encoder_input == ENCODER_INPUT_TOKENS);
    encode(&(struct job){.e = e, .out = out, .ids = ids}, n);
}

void encoder_encode_hidden(struct encoder *e, const struct encoder_output *out, const float *hidden, int64_t n) {
    assert(e->config.encoder_input == ENCODER_INPUT_HIDDEN);
    encode(&(struct job){.e = e, .out = out, .hidden = hidden}, n);
}
