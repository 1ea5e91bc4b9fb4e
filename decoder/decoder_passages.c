/* decoder_passages.c -- key states of a pass of the decoder, and of a batch of passages. Passages are computed as whole
 * sequences, as in training. The last MLP and the head are left out. On a CPU each thread has its own batches, and the
 * weights are packed once for a decoder. */
#include "decoder/decoder_passages.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "decoder/decoder_pass_internal.h"
#include "kernels/device/carve.h"
#include <assert.h>

/* Rows that are computed together: of one thread's batch on a CPU, and on a GPU. */
enum { BATCH_ROWS = 512, BATCH_ROWS_GPU = 16384, PAD = 16 };
/* A GPU replays the ops of so few passages at once: to launch them one by one takes longer than to run them. */
enum { REPLAY_PASSAGES = 8 };

/* ---- packed weights ---- */

/* Weights in the layout of matmul->pack, pack_rounded or pack_i8, on a CPU. NULL: not packed; products then read the
 * weights themselves. */
struct packed_layer {
    float *qkv, *o, *gate_up, *down;
};
struct decoder_packed {
    enum passages_rounding rounding;
    float *memory, *key_proj;
    struct packed_layer layers[];
};

static void packed_make(struct device *dev, enum passages_rounding rounding, float *to, struct mat w) {
    const struct matmul_ops *ops = dev->ops->matmul;
    (rounding == PASSAGES_BF16 ? ops->pack_rounded : ops->pack)(dev, to, w);
}

/* Packs the next matrix into p->memory (NULL: only counts), beginning on a cache line. */
static float *packed_next(struct device *dev, const struct decoder_packed *p, size_t *used, struct mat w) {
    float *to = p->memory ? p->memory + *used : NULL;
    const int64_t numbers = dev->ops->matmul->packed_elements(w.rows, w.cols);
    if (to) packed_make(dev, p->rounding, to, w);
    *used += ((size_t)numbers + 15) / 16 * 16;
    return to;
}

_Static_assert(ARRAY_LEN(((struct decoder *)0)->packed) == PASSAGES_ROUNDINGS, "one for each rounding");

/* Returns how many numbers are needed. */
static size_t packed_fill(struct decoder_packed *p, struct decoder *d) {
    size_t used = 0;
    for (int i = 0; i < model_config_layers(&d->config); i++) {
        const struct block_weights *w = &d->weights.layers[i];
        p->layers[i] = (struct packed_layer){.qkv = packed_next(d->dev, p, &used, w->qkv),
                                             .o = packed_next(d->dev, p, &used, w->o),
                                             .gate_up = packed_next(d->dev, p, &used, w->gate_up),
                                             .down = packed_next(d->dev, p, &used, w->down)};
    }
    if (d->weights.key_proj.data) p->key_proj = packed_next(d->dev, p, &used, d->weights.key_proj);
    return used;
}

/* Packs the weights once for all passages of a decoder, because they do not change while passages are read. */
static enum status decoder_pack(struct decoder *d, enum passages_rounding rounding) {
    unsigned char *memory;
    const size_t layers = (size_t)model_config_layers(&d->config);
    if (d->packed[rounding] || !d->dev->shares_memory) return STATUS_OK;
    assert(d->type == DTYPE_F32);
    TRY(memory_allocate_zero(&memory, sizeof(struct decoder_packed) + layers * sizeof(struct packed_layer)));
    struct decoder_packed *p = (struct decoder_packed *)(void *)memory;
    p->rounding = rounding;
    enum status s = device_allocate(d->dev, &p->memory, packed_fill(p, d));
    if (s != STATUS_OK) {
        memory_free(memory);
        return s;
    }
    packed_fill(p, d);
    d->packed[rounding] = p;
    return STATUS_OK;
}

void decoder_packed_free(struct decoder *d) {
    for (int i = 0; i < PASSAGES_ROUNDINGS; i++) {
        if (d->packed[i]) device_release(d->dev, d->packed[i]->memory);
        memory_free(d->packed[i]);
        d->packed[i] = NULL;
    }
}

/* ---- start and end ---- */

/* The memory in which one thread computes a batch. A GPU has one. */
struct passages_workspace {
    struct mat x, norm, qkv, gate_up, lse;
    int32_t *ids, *ids_device;
};

struct decoder_passages {
    struct decoder *decoder;
    const struct decoder_packed *packed; /* NULL on a GPU */
    int64_t length, positions, batch;    /* positions of a passage, with its landmarks; number of passages of a batch */
    int threads;
    void *memory;
    int32_t *ids, *ids_device; /* [threads][batch*positions] */
    struct passages_workspace *workspaces;
    void *staged;                                       /* keys of a replay [passages*length, d]; NULL: not needed */
    struct device_replay *replays[REPLAY_PASSAGES + 1]; /* by passages; of layer replay_layer and size replay_cols */
    int replay_layer;
    int64_t replay_cols;
    bool prepared;                   /* all are recorded, of that layer and size */
    enum passages_rounding rounding; /* as requested */
    int users;
    struct decoder_passages *next; /* of the decoder */
};

static void passages_lay(void *of, struct carve *c) {
    struct decoder_passages *p = of;
    const struct model_config *config = &p->decoder->config;
    const enum dtype type = p->decoder->type;
    const int64_t rows = p->batch * p->positions, ffn = config->ffn;
    /* so that rows of 2^n bytes do not share the sets of a processor's cache */
    const int64_t pad = p->decoder->dev->shares_memory ? PAD : 0;
    for (int i = 0; i < p->threads; i++)
        p->workspaces[i] = (struct passages_workspace){
            .x = carve_mat(c, type, rows, config->hidden),
            .norm = carve_mat(c, type, rows, config->hidden),
            .qkv = carve_mat(c, type, rows, 3 * (int64_t)config->hidden),
            .gate_up = mat_cols(carve_mat(c, type, rows, 2 * ffn + pad), 0, 2 * ffn),
            .lse = carve_mat(c, DTYPE_F32, rows, config->heads),
        };
}

static void passages_destroy(struct decoder_passages *p);

enum status decoder_passages_check(const struct model_config *config) {
    if (config->recurrent_layer > 0)
        return fail(
            STATUS_UNSUPPORTED,
            "recurrent_layer is %d: a token memory computes its chunks without a state: use a model without one",
            config->recurrent_layer);
    if (config->landmark_block > 0)
        return fail(STATUS_UNSUPPORTED,
                    "landmark_block is %d: a token memory computes its chunks without landmarks: use a model without "
                    "Landmark Attention",
                    config->landmark_block);
    return STATUS_OK;
}

enum passages_rounding decoder_passages_rounding(struct device *dev, enum dtype type, enum passages_rounding wanted) {
    if (!dev->shares_memory) return type == DTYPE_BF16 ? PASSAGES_BF16 : PASSAGES_EXACT;
    return wanted == PASSAGES_BF16 && !dev->ops->matmul->rounds(dev) ? PASSAGES_EXACT : wanted;
}

static enum status passages_make(struct decoder_passages **out, struct decoder *d, int64_t length,
                                 enum passages_rounding rounding) {
    struct decoder_passages *p = NULL;
    TRY(decoder_passages_check(&d->config));
    TRY(memory_allocate_zero(&p, 1));
    p->decoder = d;
    p->length = length;
    p->rounding = rounding;
    p->positions = d->config.base_lm ? length : length + length / d->config.chunk;
    p->threads = d->dev->shares_memory ? threads_count(d->dev->threads) : 1;
    int64_t rows = d->dev->shares_memory ? BATCH_ROWS : BATCH_ROWS_GPU;
    p->batch = rows > p->positions ? rows / p->positions : 1;
    size_t bytes, numbers = (size_t)(p->batch * p->positions);
    enum status s;
    rounding = decoder_passages_rounding(d->dev, d->type, rounding);
    TRY_GOTO(s, decoder_pack(d, rounding), failed);
    p->packed = d->packed[rounding];
    TRY_GOTO(s, memory_allocate_zero(&p->workspaces, (size_t)p->threads), failed);
    TRY_GOTO(s, carve_device(d->dev, &p->memory, &bytes, passages_lay, p), failed);
    TRY_GOTO(s, memory_allocate(&p->ids, (size_t)p->threads * numbers), failed);
    TRY_GOTO(s, device_allocate(d->dev, &p->ids_device, (size_t)p->threads * numbers), failed);
    if (!d->dev->shares_memory) {
        const int64_t numbers_of_all = REPLAY_PASSAGES * length * d->config.hidden;
        TRY_GOTO(s, device_allocate_bytes(d->dev, &p->staged, (size_t)(numbers_of_all * dtype_bytes(d->type))), failed);
    }
    for (int i = 0; i < p->threads; i++) {
        p->workspaces[i].ids = p->ids + (size_t)i * numbers;
        p->workspaces[i].ids_device = p->ids_device + (size_t)i * numbers;
    }
    *out = p;
    return STATUS_OK;
failed:
    passages_destroy(p);
    return s;
}

enum status decoder_passages_create(struct decoder_passages **out, struct decoder *d, int64_t length,
                                    enum passages_rounding rounding) {
    struct decoder_passages *p = d->passages;
    assert(length >= 1 && length % d->config.chunk == 0);
    while (p && (p->length != length || p->rounding != rounding))
        p = p->next;
    if (!p) {
        TRY(passages_make(&p, d, length, rounding));
        p->next = d->passages;
        d->passages = p;
    }
    p->users++;
    *out = p;
    return STATUS_OK;
}

static void passages_drop_replays(struct decoder_passages *p) {
    for (int i = 0; i <= REPLAY_PASSAGES; i++) {
        device_replay_free(p->decoder->dev, p->replays[i]);
        p->replays[i] = NULL;
    }
    p->prepared = false;
}

static void passages_destroy(struct decoder_passages *p) {
    passages_drop_replays(p);
    device_release(p->decoder->dev, p->staged);
    device_release(p->decoder->dev, p->memory);
    device_release(p->decoder->dev, p->ids_device);
    memory_free(p->ids);
    memory_free(p->workspaces);
    memory_free(p);
}

void decoder_passages_free(struct decoder_passages *p) {
    if (!p || --p->users > 0 || !p->decoder->dev->shares_memory) return;
    struct decoder_passages **at = &p->decoder->passages;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    passages_destroy(p);
}

void decoder_passages_drop(struct decoder *d) {
    for (struct decoder_passages *p = d->passages, *next; p; p = next) {
        next = p->next;
        passages_destroy(p);
    }
    d->passages = NULL;
}

/* ---- a batch ---- */

/* The current batch; on a CPU, that of one thread, which has its own device, or its rows of one passage. */
struct passages_job {
    struct decoder_passages *p;
    struct device *dev;
    const struct passages_workspace *w;
    const struct mat *passage; /* of rows: the queries, keys and values of their passage; NULL: whole passages */
    int64_t first;             /* row of the passage */
};

/* Returns the row of a passage's id. Each chunk that ended before it has added one landmark row. */
static int64_t passages_row(const struct decoder_passages *p, int64_t id) {
    return p->decoder->config.base_lm ? id : id + id / p->decoder->config.chunk;
}

/* Puts the ids of n passages where passages_compute reads them. */
static void passages_stage(const struct passages_job *b, const int32_t *ids, int64_t n) {
    const struct decoder_passages *p = b->p;
    const struct decoder *d = p->decoder;
    for (int64_t i = 0; i < n * p->positions; i++)
        b->w->ids[i] = d->config.landmark_id;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < p->length; j++) {
            assert(ids[i * p->length + j] < d->config.vocab_size);
            b->w->ids[i * p->positions + passages_row(p, j)] = ids[i * p->length + j];
        }
    device_upload(b->dev, b->w->ids_device, b->w->ids, (size_t)(n * p->positions) * sizeof *b->w->ids);
}

static void passages_product(const struct passages_job *b, struct mat y, struct mat x, struct mat w, float *packed,
                             bool accumulate) {
    const struct matmul_ops *ops = b->dev->ops->matmul;
    if (!packed)
        ops->forward(b->dev, y, x, w, accumulate);
    else if (b->p->packed->rounding == PASSAGES_BF16)
        ops->forward_rounded(b->dev, y, x, packed, accumulate);
    else
        ops->forward_packed(b->dev, y, x, packed, accumulate);
}

static struct packed_layer passages_packed(const struct decoder_passages *p, int layer) {
    return p->packed ? p->packed->layers[layer] : (struct packed_layer){0};
}

static void passages_norm(struct device *dev, struct mat y, struct mat x, struct mat w, float eps) {
    dev->ops->norm->forward(dev, y, decoder_no_rstd(x.rows), x, w, eps);
}

static void passages_qkv(const struct passages_job *b, struct mat x, int layer) {
    const struct decoder *d = b->p->decoder;
    const struct block_weights *w = &d->weights.layers[layer];
    struct mat qkv = mat_rows(b->w->qkv, 0, x.rows), norm = mat_rows(b->w->norm, 0, x.rows);
    passages_norm(b->dev, norm, x, w->input_norm, d->config.rms_eps);
    passages_product(b, qkv, norm, w->qkv, passages_packed(b->p, layer).qkv, false);
}

/* After passages_qkv, of all rows that these rows read. */
static void passages_attend(const struct passages_job *b, struct mat x, int layer) {
    const struct decoder *d = b->p->decoder;
    const struct attention_ops *ops = b->dev->ops->attention;
    const struct mat qkv = b->passage ? *b->passage : mat_rows(b->w->qkv, 0, x.rows);
    const int64_t cols = d->config.hidden;
    struct mat norm = mat_rows(b->w->norm, 0, x.rows);
    const struct attention_sequences in = {.q = mat_cols(qkv, 0, cols),
                                           .k = mat_cols(qkv, cols, cols),
                                           .v = mat_cols(qkv, 2 * cols, cols),
                                           .length = b->p->positions,
                                           .heads = d->config.heads,
                                           .window = d->config.window};
    if (b->passage)
        ops->forward(b->dev, norm, mat_rows(in.q, b->first, x.rows), in.k, in.v, b->first, in.heads, in.window);
    else
        ops->forward_sequences(b->dev, norm, mat_rows(b->w->lse, 0, x.rows), &in);
    passages_product(b, x, norm, d->weights.layers[layer].o, passages_packed(b->p, layer).o, true);
}

static void passages_mlp(const struct passages_job *b, struct mat x, int layer) {
    const struct decoder *d = b->p->decoder;
    const struct block_weights *w = &d->weights.layers[layer];
    const struct packed_layer packed = passages_packed(b->p, layer);
    struct mat norm = mat_rows(b->w->norm, 0, x.rows), gate_up = mat_rows(b->w->gate_up, 0, x.rows);
    struct mat gate = mat_cols(gate_up, 0, w->gate.rows), up = mat_cols(gate_up, w->gate.rows, w->up.rows);
    passages_norm(b->dev, norm, x, w->post_norm, d->config.rms_eps);
    passages_product(b, gate_up, norm, w->gate_up, packed.gate_up, false);
    b->dev->ops->elementwise->swiglu(b->dev, gate, gate, up);
    passages_product(b, x, gate, w->down, packed.down, true);
}

/* Makes keys as decoder_keys_make does, with this batch's device. Packed weights have no rows of zeros. */
static void passages_keys(const struct passages_job *b, struct mat keys, struct mat x, int key_layer) {
    const struct decoder *d = b->p->decoder;
    const bool projected =
        d->weights.key_proj.data && key_layer == d->config.memory_layer && keys.cols == d->config.memory_size;
    struct mat state = projected ? mat_rows(b->w->norm, 0, x.rows) : keys;
    passages_norm(b->dev, state, x, d->weights.layers[key_layer - 1].post_norm, d->config.rms_eps);
    if (projected)
        passages_product(b, keys, state, d->weights.key_proj, b->p->packed ? b->p->packed->key_proj : NULL, false);
}

static void passages_embed(const struct passages_job *b, struct mat x) {
    const struct decoder *d = b->p->decoder;
    b->dev->ops->embed->forward(b->dev, x, d->weights.embed, b->w->ids_device,
                                d->config.base_lm ? 0 : d->config.pad_id);
}

/* The keys of n passages whose rows from b->first on are in x. */
static void passages_keys_rows(const struct passages_job *b, struct mat keys, struct mat x, int key_layer, int64_t n) {
    const struct decoder_passages *p = b->p;
    /* number of ids in adjacent rows */
    const int64_t run = p->positions == p->length ? n * p->length : p->decoder->config.chunk;
    const int64_t begin = b->first, end = begin + x.rows;
    for (int64_t id = 0; id < n * p->length; id += run) {
        const int64_t row = id / p->length * p->positions + passages_row(p, id % p->length);
        const int64_t from = row > begin ? row : begin, rows = min_i64(row + run, end) - from;
        if (rows > 0)
            passages_keys(b, mat_rows(keys, id + from - row, rows), mat_rows(x, from - begin, rows), key_layer);
    }
}

static void passages_compute(const struct passages_job *b, struct mat keys, int key_layer, int64_t n) {
    struct mat x = mat_rows(b->w->x, 0, n * b->p->positions);
    passages_embed(b, x);
    for (int i = 0; i < key_layer; i++) {
        if (i > 0) passages_mlp(b, x, i - 1);
        passages_qkv(b, x, i);
        passages_attend(b, x, i);
    }
    passages_keys_rows(b, keys, x, key_layer, n);
}

/* Where a replay leaves the keys of n passages. */
static struct mat passages_staged(const struct decoder_passages *p, int64_t n) {
    return mat_dense(p->staged, p->decoder->type, n * p->length, p->replay_cols);
}

struct passages_repeated {
    const struct passages_job *job;
    int64_t n;
};

static void passages_body(void *context, struct device *dev) {
    const struct passages_repeated *r = context;
    struct decoder_passages *p = r->job->p;
    assert(dev == r->job->dev);
    passages_compute(r->job, passages_staged(p, r->n), p->replay_layer, r->n);
}

/* Drops the recordings of another layer or size of keys. */
static void passages_replay_for(struct decoder_passages *p, int key_layer, int64_t cols) {
    if (p->replay_layer != key_layer || p->replay_cols != cols) passages_drop_replays(p);
    p->replay_layer = key_layer;
    p->replay_cols = cols;
}

/* A recording has fixed arguments, so keys go through p->staged. */
static void passages_replay(const struct passages_job *b, struct mat keys, int key_layer, int64_t n) {
    struct decoder_passages *p = b->p;
    passages_replay_for(p, key_layer, keys.cols);
    device_replay_run(b->dev, &p->replays[n], passages_body, &(struct passages_repeated){b, n});
    device_copy_rows(b->dev, keys, passages_staged(p, n));
}

/* ---- all passages of a call ---- */

struct passages_task {
    struct decoder_passages *p;
    struct mat keys;
    const int32_t *ids;
    int key_layer;
};

static void passages_some(const struct passages_task *t, const struct passages_job *b, int64_t begin, int64_t end) {
    const int64_t length = t->p->length;
    for (int64_t i = begin, part; i < end; i += part) {
        struct mat keys;
        part = end - i < t->p->batch ? end - i : t->p->batch;
        keys = mat_rows(t->keys, i * length, part * length);
        passages_stage(b, t->ids + i * length, part);
        if (t->p->staged && part <= REPLAY_PASSAGES)
            passages_replay(b, keys, t->key_layer, part);
        else
            passages_compute(b, keys, t->key_layer, part);
    }
}

static void passages_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct passages_task *t = context;
    const struct passages_job b = {
        .p = t->p, .dev = device_worker(t->p->decoder->dev, worker), .w = &t->p->workspaces[worker]};
    passages_some(t, &b, begin, end);
}

void decoder_passages_prepare(struct decoder_passages *p, int key_layer) {
    enum { TIMES = 3 }; /* op by op, recorded, launched */
    struct device *dev = p->decoder->dev;
    if (!p->staged) return;
    const struct passages_job job = {.p = p, .dev = dev, .w = &p->workspaces[0]};
    passages_replay_for(p, key_layer, model_config_key_size(&p->decoder->config, key_layer));
    if (p->prepared) return;
    for (int64_t i = 0; i < REPLAY_PASSAGES * p->positions; i++)
        job.w->ids[i] = 0;
    device_upload(dev, job.w->ids_device, job.w->ids, (size_t)(REPLAY_PASSAGES * p->positions) * sizeof *job.w->ids);
    for (int64_t n = 1; n <= REPLAY_PASSAGES; n++)
        for (int i = 0; i < TIMES; i++)
            device_replay_run(dev, &p->replays[n], passages_body, &(struct passages_repeated){&job, n});
    p->prepared = true;
}

/* ---- passages whose rows are divided ---- */

/* One or a few passages for more threads. A thread computes its rows of a passage through all ops, and waits for the
 * others once a layer, when their keys and values are needed. If all threads computed each op together, they would wait
 * for each other in every op, and read most numbers from another processor's cache. But each thread reads all weights:
 * with fewer rows that would take longer than the products. */
enum { PART_ROWS_MIN = 15, PART_PASSAGE_MAX = 64 };

struct passages_parts {
    const struct passages_task *task;
    int64_t passage, each, unit; /* first passage; parts of a passage; parts begin at multiples of unit */
    int layer;                   /* 0: only queries, keys and values of the first layer */
};

/* Number of parts of each of n passages; 1: the rows are not divided. A passage of one tile of attention, within the
 * window, gets the same bits in parts: all rows read the keys in the same blocks, and no part has so few rows that they
 * are computed one by one. */
static int64_t parts_of(const struct decoder_passages *p, int64_t n) {
    const int64_t each = n > 0 ? p->threads / n : 1;
    const bool divides = p->decoder->dev->shares_memory && p->positions <= PART_PASSAGE_MAX &&
                         p->positions <= p->decoder->config.window + 1 && n <= p->batch;
    return divides && each * PART_ROWS_MIN <= p->positions ? each : 1;
}

static int64_t part_begin(const struct passages_parts *t, int64_t part) {
    const int64_t rows = t->task->p->positions, at = (rows * part + t->each - 1) / t->each;
    return min_i64((at + t->unit - 1) / t->unit * t->unit, rows);
}

/* Rows of a part are a multiple of those that a product computes together, unless that leaves a part too few rows. */
static void parts_unit(struct passages_parts *t) {
    struct device *dev = t->task->p->decoder->dev;
    t->unit = dev->ops->matmul->rows_together(dev);
    for (int64_t i = 0; i < t->each; i++)
        if (part_begin(t, i + 1) - part_begin(t, i) < PART_ROWS_MIN / 2) t->unit = 1;
}

/* The memory of a part: rows of the first workspace, and queries, keys and values of every other layer in the second
 * one, because other threads may still read those of the layer before. */
static struct passages_workspace part_workspace(const struct decoder_passages *p, int layer, int64_t row, int64_t n) {
    const struct passages_workspace *w = &p->workspaces[0];
    return (struct passages_workspace){.x = mat_rows(w->x, row, n),
                                       .norm = mat_rows(w->norm, row, n),
                                       .qkv = mat_rows(p->workspaces[layer % 2].qkv, row, n),
                                       .gate_up = mat_rows(w->gate_up, row, n),
                                       .ids_device = w->ids_device + row};
}

/* The layer t->layer - 1 after its keys and values, and the next layer's keys and values. */
static void passages_part(const struct passages_parts *t, struct device *dev, int64_t part) {
    struct decoder_passages *p = t->task->p;
    const int64_t passage = part / t->each, begin = part_begin(t, part % t->each), row = passage * p->positions;
    const int64_t rows = part_begin(t, part % t->each + 1) - begin; /* at least PART_ROWS_MIN / 2 */
    const int before = t->layer - 1;
    const struct mat qkv = mat_rows(p->workspaces[(t->layer + 1) % 2].qkv, row, p->positions);
    const struct passages_workspace w = part_workspace(p, t->layer, row + begin, rows);
    const struct passages_job b = {p, dev, &w, &qkv, begin};
    if (before < 0) {
        passages_embed(&b, w.x);
    } else {
        passages_attend(&b, w.x, before);
        if (t->layer == t->task->key_layer) {
            struct mat keys = mat_rows(t->task->keys, (t->passage + passage) * p->length, p->length);
            passages_keys_rows(&b, keys, w.x, t->layer, 1);
            return;
        }
        passages_mlp(&b, w.x, before);
    }
    passages_qkv(&b, w.x, t->layer);
}

static void passages_parts_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct passages_parts *t = context;
    for (; begin < end; begin++)
        passages_part(t, device_worker(t->task->p->decoder->dev, worker), begin);
}

static void passages_divided(const struct passages_task *task, int64_t begin, int64_t n, int64_t each) {
    struct decoder_passages *p = task->p;
    struct device *dev = p->decoder->dev;
    struct passages_parts t = {.task = task, .passage = begin, .each = each};
    parts_unit(&t);
    passages_stage(&(struct passages_job){.p = p, .dev = dev, .w = &p->workspaces[0]}, task->ids + begin * p->length,
                   n);
    for (; t.layer <= task->key_layer; t.layer++)
        threads_for(dev->threads, n * each, 1, passages_parts_range, &t);
}

/* On a CPU, threads compute their own passages, so that they wait for each other only at the end, and not in each op. A
 * remainder of at most half a passage per thread is divided by rows, or else computed by all threads together. */
void decoder_passages_encode(struct decoder_passages *p, struct mat keys, int key_layer, const int32_t *ids,
                             int64_t n) {
    struct device *dev = p->decoder->dev;
    struct passages_task t = {p, keys, ids, key_layer};
    assert(key_layer >= 1 && key_layer <= model_config_layers(&p->decoder->config));
    assert(keys.rows == n * p->length && keys.type == p->decoder->type);
    assert(keys.cols == p->decoder->config.hidden ||
           keys.cols == model_config_key_size(&p->decoder->config, key_layer));
    int64_t rest = n % p->threads, even = 2 * rest <= p->threads ? n - rest : n;
    if (!dev->shares_memory) even = 0;
    int64_t grain = (even + p->threads - 1) / p->threads;
    if (grain > p->batch) grain = p->batch;
    if (even > 0) threads_for(dev->threads, even, grain, passages_range, &t);
    if (parts_of(p, n - even) > 1)
        passages_divided(&t, even, n - even, parts_of(p, n - even));
    else
        passages_some(&t, &(struct passages_job){.p = p, .dev = dev, .w = &p->workspaces[0]}, even, n);
}

/* ---- of a pass ---- */

/* For ids j .. of the pass, whose inputs of the layer's MLP are x. */
static void decoder_keys_make(struct decoder *d, const struct decoder_pass *p, int64_t j, struct mat x) {
    const struct ops *ops = d->dev->ops;
    const bool projected = !p->states && decoder_projection(d, p->key_layer).data;
    const struct mat keys = mat_rows(p->keys, j, x.rows), state = !projected ? keys
                                                                  : p->key_states.data
                                                                      ? mat_rows(p->key_states, j, x.rows)
                                                                      : mat_rows(d->scratch.key, 0, x.rows);
    ops->norm->forward(d->dev, state, decoder_no_rstd(x.rows), x, d->weights.layers[p->key_layer - 1].post_norm,
                       d->config.rms_eps);
    assert(!projected || (keys.cols >= d->config.memory_size && keys.cols <= d->config.hidden));
    if (projected) ops->matmul->forward(d->dev, keys, state, mat_rows(d->scratch.key_proj, 0, keys.cols), false);
}

void decoder_keys_keep(struct decoder *d, const struct decoder_pass *p, int layer, struct mat h, int64_t begin) {
    if (!p->keys.data || layer + 1 != p->key_layer) return;
    int64_t end = begin + h.rows;
    /* Ids without a landmark between them are in adjacent rows. */
    for (int64_t j = 0, run; j < p->n; j += run) {
        int64_t row = decoder_pass_row(d, p, j);
        for (run = 1; j + run < p->n && decoder_pass_row(d, p, j + run) == row + run;)
            run++;
        int64_t from = row > begin ? row : begin, n = min_i64(row + run, end) - from;
        if (n <= 0) continue;
        decoder_keys_make(d, p, j + from - row, mat_rows(h, from - begin, n));
    }
}
