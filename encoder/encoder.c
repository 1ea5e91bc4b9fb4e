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

/* Chunks a worker of the CPU takes through all layers at once, and chunks that fill a GPU: there a batch's work must
 * outweigh what lies between two batches (2048 x 64 rows are some 5 ms of an H100). */
enum { BATCH = 8, BATCH_GPU = 2048, KEY_ROWS = 64 };
/* So many chunks at most are what a step of decoding misses: their ops are recorded, for launches would cost more than
 * the work. A layer is issued in so many parts when a chunk is encoded beside other work. */
enum { REPLAY_CHUNKS = 16, LAYER_PARTS = 4 };
static const float inner_eps = 1e-6f; /* of every norm inside the encoder, whatever the config says */

/* What one worker needs for a batch; all rows of chunk c at c*S .. c*S+S-1. */
struct workspace {
    int32_t *ids, *room;                              /* [B*S] with [B] slots behind, and the device's side of them */
    struct mat x, norm, qkv, gate_up;                 /* [B*S, d], [B*S, d], [B*S, 3d], [B*S, 2f] */
    struct mat landmark, landmark_norm, landmark_out; /* [B, d]: the shorter way of the last layer */
};

/* The job that workers share. */
struct job {
    struct encoder *e;
    const struct encoder_output *out;
    const int32_t *ids;
    struct mat hidden; /* data NULL: ids */
};

/* The chunk that is encoded part by part, its ids and slot kept: [chunk + 1]. */
struct later {
    struct job job;
    struct encoder_output out;
    int32_t *ids;
    int next, parts; /* the part to be issued next, of so many; 0 of 0: there is none */
};

/* Keys and values of few chunks, recorded for one pool. */
struct recorded {
    struct device_replay *replay;
    void *keys, *values;
};

struct encoder {
    struct device *dev;
    struct model_config config;
    struct encoder_weights weights;
    enum dtype type;              /* of weights and activations */
    struct workspace *workspaces; /* one for each worker */
    int workers, positions;       /* workers: 1 where the device's parallelism is inside of ops */
    int64_t batch;
    void *memory;        /* of the workspaces */
    int32_t *ids;        /* of the workspaces, this process's side */
    void *block_memory;  /* of the three behind, memory of the device */
    int64_t *block_rows; /* [B+1] 0, 1, 2 ...: each landmark reads its own chunk */
    int32_t *block_slots;
    float *block_weights;
    struct later later;
    struct recorded recorded[REPLAY_CHUNKS + 1]; /* by chunks */
    size_t bytes;
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
 * common model) the rows of a block would share few lines of the first-level cache, which costs some percent. A GPU
 * has no such trouble. */
static struct mat take_rows(struct dealer *deal, const struct encoder *e, int64_t rows, int64_t cols) {
    int64_t stride = e->dev->shares_memory ? (cols + 15) / 16 * 16 + 16 : (cols + 7) / 8 * 8;
    void *data = take(deal, (size_t)(rows * stride), (size_t)dtype_bytes(e->type));
    return (struct mat){.data = data, .type = e->type, .rows = rows, .cols = cols, .stride = stride};
}

static void lay_out(struct workspace *w, const struct encoder *e, struct dealer *deal) {
    int64_t rows = e->batch * e->positions, d = e->config.hidden, f = e->config.ffn;
    w->room = take(deal, (size_t)(rows + e->batch), sizeof *w->room);
    w->x = take_rows(deal, e, rows, d);
    w->norm = take_rows(deal, e, rows, d);
    w->qkv = take_rows(deal, e, rows, 3 * d);
    w->gate_up = take_rows(deal, e, rows, 2 * f);
    w->landmark = take_rows(deal, e, e->batch, d);
    w->landmark_norm = take_rows(deal, e, e->batch, d);
    w->landmark_out = take_rows(deal, e, e->batch, d);
}

static enum status make_workspaces(struct encoder *e) {
    struct workspace none;
    struct dealer deal = {0};
    size_t rows = (size_t)(e->batch * (e->positions + 1));
    lay_out(&none, e, &deal);
    size_t bytes = deal.used * (size_t)e->workers;
    e->bytes = bytes + e->weights.bytes;
    TRY(device_allocate(e->dev, &e->memory, bytes));
    TRY(memory_allocate_zero((void **)&e->workspaces, (size_t)e->workers, sizeof *e->workspaces));
    if (!e->dev->shares_memory) {
        TRY(memory_allocate((void **)&e->ids, rows * (size_t)e->workers, sizeof *e->ids));
        TRY(memory_allocate((void **)&e->later.ids, (size_t)e->positions, sizeof *e->later.ids));
    }
    deal = (struct dealer){.base = e->memory};
    for (int i = 0; i < e->workers; i++) {
        struct workspace *w = &e->workspaces[i];
        lay_out(w, e, &deal);
        w->ids = e->ids ? e->ids + rows * (size_t)i : w->room;
    }
    return STATUS_OK;
}

/* Behind one another in one piece, row_begin first: it wants 8 bytes. */
static enum status make_blocks(struct encoder *e) {
    size_t n = (size_t)e->batch, bytes = (n + 1) * sizeof(int64_t) + n * (sizeof(int32_t) + sizeof(float));
    unsigned char *memory;
    TRY(memory_allocate((void **)&memory, bytes, 1));
    int64_t *rows = (int64_t *)(void *)memory;
    int32_t *slots = (int32_t *)(void *)(rows + n + 1);
    float *weights = (float *)(void *)(slots + n);
    for (size_t c = 0; c < n; c++) {
        rows[c] = (int64_t)c;
        slots[c] = (int32_t)c;
        weights[c] = 1.0f;
    }
    rows[n] = (int64_t)n;
    enum status s = device_allocate(e->dev, &e->block_memory, bytes);
    if (s == STATUS_OK) {
        device_upload(e->dev, e->block_memory, memory, bytes);
        e->block_rows = e->block_memory;
        e->block_slots = (int32_t *)(void *)(e->block_rows + n + 1);
        e->block_weights = (float *)(void *)(e->block_slots + n);
    }
    memory_free(memory);
    return s;
}

static int64_t batch_of(const struct encoder *e, int max_chunks) {
    int64_t most = e->dev->shares_memory ? BATCH : BATCH_GPU;
    int64_t each = max_chunks > 0 ? (max_chunks + e->workers - 1) / e->workers : most;
    return each < most ? each : most;
}

enum status encoder_create(struct encoder **out, struct device *dev, const struct model_config *config,
                           const struct weights *weights, int max_chunks) {
    struct encoder *e;
    assert(!config->base_lm && config->encoder_layers > 0 && max_chunks >= 0);
    TRY(memory_allocate_zero((void **)&e, 1, sizeof *e));
    e->dev = dev;
    e->config = *config;
    e->type = weights->type;
    e->positions = model_config_positions(config);
    e->workers = dev->shares_memory ? threads_count(dev->threads) : 1;
    e->batch = batch_of(e, max_chunks);
    enum status s = encoder_weights_create(&e->weights, dev, config, weights);
    if (s == STATUS_OK) s = make_workspaces(e);
    if (s == STATUS_OK) s = make_blocks(e);
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
    device_release(e->dev, e->block_memory);
    for (int i = 0; i <= REPLAY_CHUNKS; i++)
        device_replay_free(e->dev, e->recorded[i].replay);
    memory_free(e->later.ids);
    memory_free(e->ids);
    memory_free(e);
}

size_t encoder_bytes(const struct encoder *e) {
    return e->bytes;
}

enum dtype encoder_type(const struct encoder *e) {
    return e->type;
}

int64_t encoder_batch(const struct encoder *e) {
    return e->batch * e->workers;
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
                       const struct workspace *w, int64_t chunks, int part) {
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
    device_copy_rows(dev, landmark, landmark_rows(e, w->x, chunks));
    multiply(dev, landmark, o, l->o, true);
    mlp_up(e, dev, l, landmark, landmark_norm, first_rows(w->gate_up, chunks));
    mlp_down(e, dev, l, landmark, first_rows(w->gate_up, chunks));
}

/* Ids, and slots behind them, to the device. */
static void stage(const struct job *job, struct device *dev, const struct workspace *w, int64_t first, int64_t chunks) {
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

static void load(const struct job *job, struct device *dev, const struct workspace *w, int64_t first, int64_t chunks) {
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
static void write_landmarks(const struct job *job, struct device *dev, const struct workspace *w, struct mat rows,
                            int64_t first) {
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
    device_clear(dev, rest.data, (size_t)(rest.rows * rest.cols * dtype_bytes(rest.type)));
}

/* All chunks' rows in one product, which then go where they belong: the products of queries are done with. */
static void write_projections(const struct job *job, struct device *dev, const struct workspace *w, struct mat x,
                              int64_t first, int64_t chunks) {
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
        dev->ops->elementwise->place(dev, pool, mat_cols(both, i * d, d), slots);
    }
}

/* x: rows in front of the last norm; they are normed in place. */
static void write_states(const struct job *job, struct device *dev, const struct workspace *w, struct mat x,
                         int64_t first, int64_t chunks) {
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

/* All rows of a batch in the order of the work: part 0 loads, LAYER_PARTS follow for each layer, the last one writes.
 */
static int batch_parts(const struct encoder *e) {
    return 2 + LAYER_PARTS * e->config.encoder_layers;
}

static void batch_part(const struct job *job, struct device *dev, const struct workspace *w, int64_t first,
                       int64_t chunks, int part) {
    const struct encoder *e = job->e;
    int in_layers = part - 1;
    if (part == 0)
        load(job, dev, w, first, chunks);
    else if (part < batch_parts(e) - 1)
        layer_part(e, dev, &e->weights.layers[in_layers / LAYER_PARTS], w, chunks, in_layers % LAYER_PARTS);
    else
        write_states(job, dev, w, first_rows(w->x, chunks * e->positions), first, chunks);
}

/* What is recorded: nothing in it depends on more than the number of chunks and the pool. */
struct batch {
    const struct job *job;
    const struct workspace *w;
    int64_t first, chunks;
};

static void all_parts(void *context, struct device *dev) {
    const struct batch *b = context;
    for (int part = 0; part < batch_parts(b->job->e); part++)
        batch_part(b->job, dev, b->w, b->first, b->chunks, part);
}

static bool comes_again(const struct batch *b) {
    const struct encoder_output *out = b->job->out;
    return b->chunks <= REPLAY_CHUNKS && !b->job->e->dev->shares_memory && !b->job->hidden.data && out->slot &&
           out->keys.data && out->values.data && !out->landmarks && !out->states;
}

static void encode_all_rows(struct device *dev, struct batch *b) {
    if (!comes_again(b)) {
        all_parts(b, dev);
        return;
    }
    const struct encoder_output *out = b->job->out;
    struct recorded *r = &b->job->e->recorded[b->chunks];
    if (r->keys != out->keys.data || r->values != out->values.data) {
        device_replay_free(dev, r->replay);
        *r = (struct recorded){.keys = out->keys.data, .values = out->values.data};
    }
    device_replay_run(dev, &r->replay, all_parts, b);
}

static void encode_batch(void *context, int64_t begin, int64_t end, int worker) {
    const struct job *job = context;
    const struct encoder *e = job->e;
    const struct workspace *w = &e->workspaces[worker];
    struct device *dev = device_worker(e->dev, worker);
    int last = e->config.encoder_layers - 1;
    bool all_rows = job->out->states || job->out->keys.data || job->out->values.data;
    stage(job, dev, w, begin, end - begin);
    if (all_rows) {
        encode_all_rows(dev, &(struct batch){.job = job, .w = w, .first = begin, .chunks = end - begin});
        return;
    }
    load(job, dev, w, begin, end - begin);
    for (int i = 0; i < last * LAYER_PARTS; i++)
        layer_part(e, dev, &e->weights.layers[i / LAYER_PARTS], w, end - begin, i % LAYER_PARTS);
    last_layer_landmarks(e, dev, &e->weights.layers[last], w, end - begin);
    write_landmarks(job, dev, w, first_rows(w->landmark, end - begin), begin);
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
    if (!job->out->landmarks && !job->out->states && !job->out->keys.data && !job->out->values.data) return;
    while (e->later.next > 0) /* it has begun: its rows lie in the workspace */
        encoder_advance(e);
    if (!e->dev->shares_memory) {
        encode_range((void *)job, 0, n, 0);
        return;
    }
    /* A few chunks are spread over all workers rather than batched. */
    int64_t grain = (n + e->workers - 1) / e->workers;
    if (grain > e->batch) grain = e->batch;
    if (n > 0) threads_for(e->dev->threads, n, grain, encode_range, (void *)job);
}

void encoder_encode(struct encoder *e, const struct encoder_output *out, const int32_t *ids, int64_t n) {
    assert(e->config.encoder_input == ENCODER_INPUT_TOKENS);
    encode(&(struct job){.e = e, .out = out, .ids = ids}, n);
}

void encoder_encode_hidden(struct encoder *e, const struct encoder_output *out, struct mat hidden, int64_t n) {
    assert(e->config.encoder_input == ENCODER_INPUT_HIDDEN && hidden.data && hidden.type == e->type);
    encode(&(struct job){.e = e, .out = out, .hidden = hidden}, n);
}

void encoder_begin(struct encoder *e, const struct encoder_output *out, const int32_t *ids, struct mat hidden) {
    struct later *l = &e->later;
    struct job now = {.e = e, .out = out, .ids = ids, .hidden = hidden};
    encoder_finish(e);
    if (e->dev->shares_memory) {
        encode(&now, 1);
        return;
    }
    l->out = *out;
    l->job = now;
    l->job.out = &l->out;
    l->parts = batch_parts(e);
    if (out->slot) {
        l->ids[e->config.chunk] = out->slot[0];
        l->out.slot = &l->ids[e->config.chunk];
    }
    if (hidden.data) {
        encoder_advance(e); /* takes the rows, which may change */
        return;
    }
    memcpy(l->ids, ids, (size_t)e->config.chunk * sizeof *l->ids);
    l->job.ids = l->ids;
}

bool encoder_advance(struct encoder *e) {
    struct later *l = &e->later;
    if (l->next == l->parts) return false;
    if (l->next == 0) stage(&l->job, e->dev, e->workspaces, 0, 1);
    batch_part(&l->job, e->dev, e->workspaces, 0, 1, l->next);
    if (++l->next == l->parts) l->next = l->parts = 0;
    return true;
}

void encoder_finish(struct encoder *e) {
    while (encoder_advance(e))
        ;
}
