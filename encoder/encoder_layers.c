/* encoder_layers.c -- the bidirectional layers for a batch of chunks (model.md §3), with the ops of one device.
 *
 * If only landmarks are requested (an index build), the last layer computes keys and values of every row, but queries,
 * output and MLP only of the landmark's row, 1 of 64. This saves 40 % of the arithmetic of a two-layer encoder. */
#include "encoder/encoder_internal.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

/* LAYER_PARTS: parts of a layer, if a chunk is encoded in parts */
enum { KEY_ROWS = 64, LAYER_PARTS = 4 };
static const float inner_eps = 1e-6f; /* of every norm in the encoder's layers, which do not use the config's eps */

static void encoder_matmul(struct device *dev, struct mat y, struct mat x, struct encoder_matrix w, bool accumulate) {
    assert(y.cols == w.out && x.cols == w.in);
    dev->ops->matmul->forward_packed(dev, y, x, w.packed, accumulate);
}

static void encoder_norm(struct device *dev, struct mat y, struct mat x, struct mat w, float eps) {
    dev->ops->norm->forward(dev, y, mat_f32(NULL, x.rows, 1), x, w, eps);
}

/* Returns rows S-1, 2S-1, ...: the landmark of each chunk. */
static struct mat encoder_landmark_rows(const struct encoder *e, struct mat m, int64_t chunks) {
    struct mat rows = mat_rows(m, e->positions - 1, 1);
    rows.rows = chunks;
    rows.stride = m.stride * e->positions;
    return rows;
}

static struct mat encoder_first_rows(struct mat m, int64_t rows) {
    return mat_rows(m, 0, rows);
}

/* Computes x += MLP(RMS(x)), in two halves. */
static void encoder_mlp_up(const struct encoder *e, struct device *dev, const struct encoder_layer *l, struct mat x,
                           struct mat norm, struct mat gate_up) {
    int64_t f = e->config.ffn;
    struct mat gate = mat_cols(gate_up, 0, f), up = mat_cols(gate_up, f, f);
    encoder_norm(dev, norm, x, l->post_norm, inner_eps);
    encoder_matmul(dev, gate_up, norm, l->gate_up, false);
    dev->ops->elementwise->swiglu(dev, gate, gate, up);
}

static void encoder_mlp_down(const struct encoder *e, struct device *dev, const struct encoder_layer *l, struct mat x,
                             struct mat gate_up) {
    encoder_matmul(dev, x, mat_cols(gate_up, 0, e->config.ffn), l->down, true);
}

/* Rotates queries and keys in one call, because they are adjacent columns. */
static void encoder_rope(const struct encoder *e, struct device *dev, struct mat qkv) {
    dev->ops->rope->forward(dev, mat_cols(qkv, 0, 2 * e->config.hidden), 2 * e->config.heads, e->positions,
                            e->config.rope_theta);
}

static void encoder_layer_part(const struct encoder *e, struct device *dev, const struct encoder_layer *l,
                               const struct encoder_workspace *w, int64_t chunks, int part) {
    int64_t rows = chunks * e->positions, d = e->config.hidden;
    struct mat x = encoder_first_rows(w->x, rows), norm = encoder_first_rows(w->norm, rows),
               qkv = encoder_first_rows(w->qkv, rows);
    struct mat q = mat_cols(qkv, 0, d), k = mat_cols(qkv, d, d), v = mat_cols(qkv, 2 * d, d);
    struct mat gate_up = encoder_first_rows(w->gate_up, rows);
    switch (part) {
    case 0:
        encoder_norm(dev, norm, x, l->input_norm, inner_eps);
        encoder_matmul(dev, qkv, norm, l->qkv, false);
        encoder_rope(e, dev, qkv);
        break;
    case 1:
        dev->ops->chunk_attention->forward(dev, q, q, k, v, e->config.heads, e->positions);
        encoder_matmul(dev, x, q, l->o, true);
        break;
    case 2:
        encoder_mlp_up(e, dev, l, x, norm, gate_up);
        break;
    default:
        encoder_mlp_down(e, dev, l, x, gate_up);
    }
}

/* Computes keys, values and the landmarks' queries of the last layer from w->x, not rotated. */
static void encoder_last_layer_products(const struct encoder *e, struct device *dev, const struct encoder_layer *l,
                                        const struct encoder_workspace *w, int64_t chunks) {
    int64_t rows = chunks * e->positions, d = e->config.hidden;
    struct mat norm = encoder_first_rows(w->norm, rows), qkv = encoder_first_rows(w->qkv, rows);
    struct mat query = encoder_landmark_rows(e, mat_cols(qkv, 0, d), chunks);
    encoder_norm(dev, norm, encoder_first_rows(w->x, rows), l->input_norm, inner_eps);
    encoder_matmul(dev, mat_cols(qkv, d, 2 * d), norm, l->kv, false);
    encoder_matmul(dev, query, encoder_landmark_rows(e, norm, chunks), l->q, false);
}

/* The rest of the last layer for the landmark's row of each chunk: w->landmark. residual: of these rows. */
static void encoder_last_layer_landmarks(const struct encoder *e, struct device *dev, const struct encoder_layer *l,
                                         const struct encoder_workspace *w, int64_t chunks, struct mat query,
                                         struct mat residual) {
    int64_t rows = chunks * e->positions, d = e->config.hidden;
    struct mat qkv = encoder_first_rows(w->qkv, rows), landmark = encoder_first_rows(w->landmark, chunks),
               landmark_norm = encoder_first_rows(w->landmark_norm, chunks),
               o = encoder_first_rows(w->landmark_out, chunks);
    struct gca_pool pool = {.keys = mat_cols(qkv, d, d),
                            .values = mat_cols(qkv, 2 * d, d),
                            .slot_rows = e->positions,
                            .live_rows = e->positions};
    struct gca_blocks blocks = {
        .row_begin = e->block_rows, .slot = e->block_slots, .weight = e->block_weights, .blocks = (int)chunks, .k = 1};
    dev->ops->gca->forward(dev, o, query, pool, blocks, e->config.heads);
    device_copy_rows(dev, landmark, residual);
    encoder_matmul(dev, landmark, o, l->o, true);
    encoder_mlp_up(e, dev, l, landmark, landmark_norm, encoder_first_rows(w->gate_up, chunks));
    encoder_mlp_down(e, dev, l, landmark, encoder_first_rows(w->gate_up, chunks));
}

void encoder_stage(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first,
                   int64_t chunks) {
    const struct encoder *e = job->e;
    int64_t S = e->positions, chunk = e->config.chunk, n = job->hidden.data ? 0 : chunks;
    const bool send = e->sent && n > ENCODER_SEND_CHUNKS && !job->out->slot;
    int32_t *ids = send ? e->sent : w->ids;
    if (send) device_send_wait(dev); /* for the ids of the batch before */
    for (int64_t c = 0; c < n; c++) {
        memcpy(ids + c * S, job->ids + (first + c) * chunk, (size_t)chunk * sizeof *ids);
        ids[c * S + chunk] = e->config.landmark_id;
    }
    if (send) {
        device_send(dev, w->ids_device, ids, (size_t)(n * S) * sizeof *ids);
        return;
    }
    if (job->out->slot) memcpy(w->ids + chunks * S, job->out->slot + first, (size_t)chunks * sizeof *w->ids);
    int64_t begin = n > 0 ? 0 : chunks * S, end = chunks * S + (job->out->slot ? chunks : 0);
    device_upload(dev, w->ids_device + begin, w->ids + begin, (size_t)(end - begin) * sizeof *w->ids);
}

static void encoder_embed(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                          int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    int64_t rows = chunks * e->positions;
    struct mat x = encoder_first_rows(w->x, rows);
    if (job->hidden.data)
        device_copy_rows(dev, x, mat_rows(job->hidden, first * e->positions, rows));
    else
        dev->ops->embed->forward(dev, x, e->weights.embedding, w->ids_device, e->config.pad_id);
    encoder_norm(dev, x, x, e->weights.prenorm, e->config.rms_eps);
}

/* rows: landmark rows before the last norm. The projection, or else the norm, writes float32. */
static void encoder_write_landmarks(const struct encoder_job *job, struct device *dev,
                                    const struct encoder_workspace *w, struct mat rows, int64_t first) {
    const struct encoder *e = job->e;
    struct mat out = mat_f32(job->out->landmarks + first * rows.cols, rows.rows, rows.cols);
    struct mat norm = encoder_first_rows(w->landmark_norm, rows.rows);
    bool projected = e->weights.landmark.packed != NULL;
    encoder_norm(dev, projected ? norm : out, rows, e->weights.norm, inner_eps);
    if (projected) encoder_matmul(dev, out, norm, e->weights.landmark, false);
}

/* Writes the keys or values of one chunk: the projections of its real rows, then zeros. */
static void encoder_write_projection(const struct encoder *e, struct device *dev, struct mat pool, int64_t slot,
                                     struct mat states, struct encoder_matrix w) {
    int64_t live = e->config.chunk;
    struct mat out = mat_rows(pool, slot * KEY_ROWS, KEY_ROWS);
    assert(out.stride == out.cols);
    encoder_matmul(dev, encoder_first_rows(out, live), encoder_first_rows(states, live), w, false);
    struct mat rest = mat_rows(out, live, KEY_ROWS - live);
    device_clear(dev, rest.data, mat_bytes(rest));
}

/* Computes one product for all chunks' rows and scatters it to the slots. It overwrites the queries, which are no
 * longer needed. */
static void encoder_write_projections(const struct encoder_job *job, struct device *dev,
                                      const struct encoder_workspace *w, struct mat x, int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    const struct encoder_output *out = job->out;
    int64_t d = e->config.hidden;
    struct mat both = mat_cols(encoder_first_rows(w->qkv, x.rows), 0, 2 * d);
    struct elementwise_slots slots = {.slot = out->slot ? w->ids_device + chunks * e->positions : NULL,
                                      .chunks = chunks,
                                      .positions = e->positions,
                                      .slot_rows = KEY_ROWS,
                                      .live = e->config.chunk};
    struct mat pools[2] = {out->keys, out->values};
    encoder_matmul(dev, both, x, e->weights.chunk_kv, false);
    for (int i = 0; i < 2; i++) {
        if (!pools[i].data) continue;
        struct mat pool = out->slot ? pools[i] : mat_rows(pools[i], first * KEY_ROWS, chunks * KEY_ROWS);
        dev->ops->elementwise->write_slots(dev, pool, mat_cols(both, i * d, d), slots);
    }
}

/* x: rows before the last norm. They are normed in place. */
static void encoder_write_states(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                                 struct mat x, int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    const struct encoder_output *out = job->out;
    int64_t S = e->positions, d = e->config.hidden;
    if (out->landmarks) encoder_write_landmarks(job, dev, w, encoder_landmark_rows(e, x, chunks), first);
    if (out->states)
        encoder_norm(dev, mat_f32(out->states + first * S * d, chunks * S, d), x, e->weights.norm, inner_eps);
    if (!out->keys.data && !out->values.data) return;
    encoder_norm(dev, x, x, e->weights.norm, inner_eps);
    if (!dev->shares_memory) {
        encoder_write_projections(job, dev, w, x, first, chunks);
        return;
    }
    for (int64_t c = 0; c < chunks; c++) {
        struct mat chunk = mat_rows(x, c * S, S);
        int64_t slot = out->slot ? out->slot[first + c] : first + c;
        if (out->keys.data) encoder_write_projection(e, dev, out->keys, slot, chunk, e->weights.chunk_k);
        if (out->values.data) encoder_write_projection(e, dev, out->values, slot, chunk, e->weights.chunk_v);
    }
}

int encoder_parts(const struct encoder *e) {
    return 2 + LAYER_PARTS * e->config.encoder_layers;
}

void encoder_part(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first,
                  int64_t chunks, int part) {
    const struct encoder *e = job->e;
    int in_layers = part - 1;
    if (part == 0)
        encoder_embed(job, dev, w, first, chunks);
    else if (part < encoder_parts(e) - 1)
        encoder_layer_part(e, dev, &e->weights.layers[in_layers / LAYER_PARTS], w, chunks, in_layers % LAYER_PARTS);
    else
        encoder_write_states(job, dev, w, encoder_first_rows(w->x, chunks * e->positions), first, chunks);
}

/* Reads the table of encoder_known instead of computing keys and values. */
static void encoder_known_landmarks(const struct encoder *e, struct device *dev, const struct encoder_workspace *w,
                                    int64_t chunks) {
    const struct encoder_known *known = &e->known;
    int64_t d = e->config.hidden;
    struct mat qkv = encoder_first_rows(w->qkv, chunks * e->positions);
    dev->ops->embed->forward(dev, mat_cols(qkv, d, 2 * d), known->keys_values, w->ids_device, e->config.pad_id);
    dev->ops->rope->forward(dev, mat_cols(qkv, d, d), e->config.heads, e->positions, e->config.rope_theta);
    encoder_last_layer_landmarks(e, dev, e->weights.layers, w, chunks, encoder_first_rows(known->query, chunks),
                                 encoder_first_rows(known->residual, chunks));
}

static void encoder_known_ids(struct encoder *e, const struct encoder_workspace *w, int64_t chunks) {
    device_upload(e->dev, w->ids_device, w->ids, (size_t)(chunks * e->positions) * sizeof *w->ids);
    encoder_embed(&(struct encoder_job){.e = e}, e->dev, w, 0, chunks);
    encoder_last_layer_products(e, e->dev, e->weights.layers, w, chunks);
}

/* Products have the shapes and strides of encoder_landmarks, so that a GPU takes the same kernels. */
void encoder_known_make(struct encoder *e) {
    const struct encoder_workspace *w = e->workspaces;
    struct encoder_known *known = &e->known;
    int64_t rows = e->batch * e->positions, d = e->config.hidden, vocab = e->config.vocab_size;
    for (int64_t first = 0; first < vocab; first += rows) {
        const int64_t n = vocab - first < rows ? vocab - first : rows;
        for (int64_t i = 0; i < rows; i++)
            w->ids[i] = (int32_t)(first + (i < n ? i : 0));
        encoder_known_ids(e, w, e->batch);
        device_copy_rows(e->dev, mat_rows(known->keys_values, first, n),
                         encoder_first_rows(mat_cols(w->qkv, d, 2 * d), n));
    }
    for (int64_t i = 0; i < rows; i++)
        w->ids[i] = e->config.landmark_id;
    encoder_known_ids(e, w, e->batch);
    encoder_rope(e, e->dev, encoder_first_rows(w->qkv, rows));
    device_copy_rows(e->dev, known->query, encoder_landmark_rows(e, mat_cols(w->qkv, 0, d), e->batch));
    device_copy_rows(e->dev, known->residual, encoder_landmark_rows(e, w->x, e->batch));
    known->made = true;
}

void encoder_landmarks(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                       int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    int last = e->config.encoder_layers - 1;
    if (e->known.made) {
        encoder_known_landmarks(e, dev, w, chunks);
    } else {
        encoder_embed(job, dev, w, first, chunks);
        for (int i = 0; i < last * LAYER_PARTS; i++)
            encoder_layer_part(e, dev, &e->weights.layers[i / LAYER_PARTS], w, chunks, i % LAYER_PARTS);
        encoder_last_layer_products(e, dev, &e->weights.layers[last], w, chunks);
        /* The query rows of other positions have values of an earlier layer. They are rotated, too, but not read. */
        encoder_rope(e, dev, encoder_first_rows(w->qkv, chunks * e->positions));
        encoder_last_layer_landmarks(e, dev, &e->weights.layers[last], w, chunks,
                                     encoder_landmark_rows(e, mat_cols(w->qkv, 0, e->config.hidden), chunks),
                                     encoder_landmark_rows(e, w->x, chunks));
    }
    encoder_write_landmarks(job, dev, w, encoder_first_rows(w->landmark, chunks), first);
}
