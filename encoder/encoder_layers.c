/* encoder_layers.c -- a batch of chunks through the bidirectional layers (model.md §3), with the ops of one device.
 *
 * When only landmarks are wanted (an index build), the last layer needs keys and values of every row, but queries,
 * output and MLP of the landmark's row alone: 1 row of 64, which takes 40 % off the arithmetic of a two-layer encoder.
 */
#include "encoder/encoder_internal.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

/* A layer is issued in so many parts when a chunk is encoded beside other work. */
enum { KEY_ROWS = 64, LAYER_PARTS = 4 };
static const float inner_eps = 1e-6f; /* of every norm inside the encoder, whatever the config says */

static void multiply(struct device *dev, struct mat y, struct mat x, struct encoder_matrix w, bool accumulate) {
    assert(y.cols == w.out && x.cols == w.in);
    dev->ops->matmul->forward_packed(dev, y, x, w.packed, accumulate);
}

static void normalise(struct device *dev, struct mat y, struct mat x, struct mat w, float eps) {
    dev->ops->norm->forward(dev, y, mat_f32(NULL, x.rows, 1), x, w, eps);
}

/* Rows S-1, 2S-1, ...: one landmark for each chunk. */
static struct mat landmark_rows(const struct encoder *e, struct mat m, int64_t chunks) {
    struct mat rows = mat_rows(m, e->positions - 1, 1);
    rows.rows = chunks;
    rows.stride = m.stride * e->positions;
    return rows;
}

static struct mat first_rows(struct mat m, int64_t rows) {
    return mat_rows(m, 0, rows);
}

/* x += MLP(RMS(x)), in two halves. */
static void mlp_up(const struct encoder *e, struct device *dev, const struct encoder_layer *l, struct mat x,
                   struct mat norm, struct mat gate_up) {
    int64_t f = e->config.ffn;
    struct mat gate = mat_cols(gate_up, 0, f), up = mat_cols(gate_up, f, f);
    normalise(dev, norm, x, l->post_norm, inner_eps);
    multiply(dev, gate_up, norm, l->gate_up, false);
    dev->ops->elementwise->swiglu(dev, gate, gate, up);
}

static void mlp_down(const struct encoder *e, struct device *dev, const struct encoder_layer *l, struct mat x,
                     struct mat gate_up) {
    multiply(dev, x, mat_cols(gate_up, 0, e->config.ffn), l->down, true);
}

/* Turns queries and keys, which lie side by side, in one pass. */
static void rotate(const struct encoder *e, struct device *dev, struct mat qkv) {
    dev->ops->rope->forward(dev, mat_cols(qkv, 0, 2 * e->config.hidden), 2 * e->config.heads, e->positions,
                            e->config.rope_theta);
}

static void layer_part(const struct encoder *e, struct device *dev, const struct encoder_layer *l,
                       const struct encoder_workspace *w, int64_t chunks, int part) {
    int64_t rows = chunks * e->positions, d = e->config.hidden;
    struct mat x = first_rows(w->x, rows), norm = first_rows(w->norm, rows), qkv = first_rows(w->qkv, rows);
    struct mat q = mat_cols(qkv, 0, d), k = mat_cols(qkv, d, d), v = mat_cols(qkv, 2 * d, d);
    struct mat gate_up = first_rows(w->gate_up, rows);
    switch (part) {
    case 0:
        normalise(dev, norm, x, l->input_norm, inner_eps);
        multiply(dev, qkv, norm, l->qkv, false);
        rotate(e, dev, qkv);
        break;
    case 1:
        dev->ops->chunk_attention->forward(dev, q, q, k, v, e->config.heads, e->positions);
        multiply(dev, x, q, l->o, true);
        break;
    case 2:
        mlp_up(e, dev, l, x, norm, gate_up);
        break;
    default:
        mlp_down(e, dev, l, x, gate_up);
    }
}

/* The last layer for the landmark's row of each chunk: w->landmark. Query rows of other
 * positions hold what an earlier layer left: they are turned along, and never read. */
static void last_layer_landmarks(const struct encoder *e, struct device *dev, const struct encoder_layer *l,
                                 const struct encoder_workspace *w, int64_t chunks) {
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
    device_copy_rows(dev, landmark, landmark_rows(e, w->x, chunks));
    multiply(dev, landmark, o, l->o, true);
    mlp_up(e, dev, l, landmark, landmark_norm, first_rows(w->gate_up, chunks));
    mlp_down(e, dev, l, landmark, first_rows(w->gate_up, chunks));
}

void encoder_stage(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first,
                   int64_t chunks) {
    const struct encoder *e = job->e;
    int64_t S = e->positions, chunk = e->config.chunk, n = job->hidden.data ? 0 : chunks;
    for (int64_t c = 0; c < n; c++) {
        memcpy(w->ids + c * S, job->ids + (first + c) * chunk, (size_t)chunk * sizeof *w->ids);
        w->ids[c * S + chunk] = e->config.landmark_id;
    }
    if (job->out->slot) memcpy(w->ids + chunks * S, job->out->slot + first, (size_t)chunks * sizeof *w->ids);
    int64_t begin = n > 0 ? 0 : chunks * S, end = chunks * S + (job->out->slot ? chunks : 0);
    device_upload(dev, w->room + begin, w->ids + begin, (size_t)(end - begin) * sizeof *w->ids);
}

static void load(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w, int64_t first,
                 int64_t chunks) {
    const struct encoder *e = job->e;
    int64_t rows = chunks * e->positions;
    struct mat x = first_rows(w->x, rows);
    if (job->hidden.data)
        device_copy_rows(dev, x, mat_rows(job->hidden, first * e->positions, rows));
    else
        dev->ops->embed->forward(dev, x, e->weights.embedding, w->room, e->config.pad_id);
    normalise(dev, x, x, e->weights.prenorm, e->config.rms_eps);
}

/* rows: landmark rows in front of the last norm. The projection, or else the norm itself, gives float32. */
static void write_landmarks(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                            struct mat rows, int64_t first) {
    const struct encoder *e = job->e;
    struct mat out = mat_f32(job->out->landmarks + first * rows.cols, rows.rows, rows.cols);
    struct mat norm = first_rows(w->landmark_norm, rows.rows);
    bool projected = e->weights.landmark.packed != NULL;
    normalise(dev, projected ? norm : out, rows, e->weights.norm, inner_eps);
    if (projected) multiply(dev, out, norm, e->weights.landmark, false);
}

/* Keys or values of one chunk: its real rows projected; a 63-chunk's last row, the landmark's, is zero. */
static void write_projection(const struct encoder *e, struct device *dev, struct mat pool, int64_t slot,
                             struct mat states, struct encoder_matrix w) {
    int64_t live = e->config.chunk;
    struct mat out = mat_rows(pool, slot * KEY_ROWS, KEY_ROWS);
    assert(out.stride == out.cols);
    multiply(dev, first_rows(out, live), first_rows(states, live), w, false);
    struct mat rest = mat_rows(out, live, KEY_ROWS - live);
    device_clear(dev, rest.data, mat_bytes(rest));
}

/* All chunks' rows in one product, which then go where they belong: the products of queries are done with. */
static void write_projections(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                              struct mat x, int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    const struct encoder_output *out = job->out;
    int64_t d = e->config.hidden;
    struct mat both = mat_cols(first_rows(w->qkv, x.rows), 0, 2 * d);
    struct elementwise_slots slots = {.slot = out->slot ? w->room + chunks * e->positions : NULL,
                                      .chunks = chunks,
                                      .positions = e->positions,
                                      .slot_rows = KEY_ROWS,
                                      .live = e->config.chunk};
    struct mat pools[2] = {out->keys, out->values};
    multiply(dev, both, x, e->weights.chunk_kv, false);
    for (int i = 0; i < 2; i++) {
        if (!pools[i].data) continue;
        struct mat pool = out->slot ? pools[i] : mat_rows(pools[i], first * KEY_ROWS, chunks * KEY_ROWS);
        dev->ops->elementwise->write_slots(dev, pool, mat_cols(both, i * d, d), slots);
    }
}

/* x: rows in front of the last norm; they are normed in place. */
static void write_states(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                         struct mat x, int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    const struct encoder_output *out = job->out;
    int64_t S = e->positions, d = e->config.hidden;
    if (out->landmarks) write_landmarks(job, dev, w, landmark_rows(e, x, chunks), first);
    if (out->states) normalise(dev, mat_f32(out->states + first * S * d, chunks * S, d), x, e->weights.norm, inner_eps);
    if (!out->keys.data && !out->values.data) return;
    normalise(dev, x, x, e->weights.norm, inner_eps);
    if (!dev->shares_memory) {
        write_projections(job, dev, w, x, first, chunks);
        return;
    }
    for (int64_t c = 0; c < chunks; c++) {
        struct mat chunk = mat_rows(x, c * S, S);
        int64_t slot = out->slot ? out->slot[first + c] : first + c;
        if (out->keys.data) write_projection(e, dev, out->keys, slot, chunk, e->weights.chunk_k);
        if (out->values.data) write_projection(e, dev, out->values, slot, chunk, e->weights.chunk_v);
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
        load(job, dev, w, first, chunks);
    else if (part < encoder_parts(e) - 1)
        layer_part(e, dev, &e->weights.layers[in_layers / LAYER_PARTS], w, chunks, in_layers % LAYER_PARTS);
    else
        write_states(job, dev, w, first_rows(w->x, chunks * e->positions), first, chunks);
}

void encoder_landmarks(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                       int64_t first, int64_t chunks) {
    const struct encoder *e = job->e;
    int last = e->config.encoder_layers - 1;
    load(job, dev, w, first, chunks);
    for (int i = 0; i < last * LAYER_PARTS; i++)
        layer_part(e, dev, &e->weights.layers[i / LAYER_PARTS], w, chunks, i % LAYER_PARTS);
    last_layer_landmarks(e, dev, &e->weights.layers[last], w, chunks);
    write_landmarks(job, dev, w, first_rows(w->landmark, chunks), first);
}
