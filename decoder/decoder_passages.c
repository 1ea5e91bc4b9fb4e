/* decoder_passages.c -- key states: of a pass of the decoder, and of a batch of passages, which runs through the layers
 * as whole sequences do in training; the last MLP and the head are left out. */
#include "decoder/decoder_passages.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "decoder/decoder_keys_internal.h"
#include "kernels/device/carve.h"
#include <assert.h>

/* Rows that go through a layer at once. */
enum { BATCH_ROWS = 1024, BATCH_ROWS_GPU = 16384 };

struct decoder_passages {
    struct decoder *decoder;
    int64_t length, positions, batch; /* positions of a passage with its landmarks; passages at once */
    void *memory;
    struct mat x, norm, qkv, gate_up, lse;
    int32_t *ids, *ids_there;
};

static void passages_lay(void *of, struct carve *c) {
    struct decoder_passages *p = of;
    const struct model_config *config = &p->decoder->config;
    int64_t rows = p->batch * p->positions;
    p->x = carve_mat(c, p->decoder->type, rows, config->hidden);
    p->norm = carve_mat(c, p->decoder->type, rows, config->hidden);
    p->qkv = carve_mat(c, p->decoder->type, rows, 3 * (int64_t)config->hidden);
    p->gate_up = carve_mat(c, p->decoder->type, rows, 2 * (int64_t)config->ffn);
    p->lse = carve_mat(c, DTYPE_F32, rows, config->heads);
}

enum status decoder_passages_create(struct decoder_passages **out, struct decoder *d, int64_t length) {
    struct decoder_passages *p = NULL;
    assert(length >= 1 && length % d->config.chunk == 0);
    TRY(memory_allocate_zero(&p, 1));
    p->decoder = d;
    p->length = length;
    p->positions = d->config.base_lm ? length : length + length / d->config.chunk;
    int64_t rows = d->dev->shares_memory ? BATCH_ROWS : BATCH_ROWS_GPU;
    p->batch = rows > p->positions ? rows / p->positions : 1;
    size_t bytes;
    enum status s;
    TRY_GOTO(s, carve_device(d->dev, &p->memory, &bytes, passages_lay, p), failed);
    TRY_GOTO(s, memory_allocate(&p->ids, (size_t)(p->batch * p->positions)), failed);
    TRY_GOTO(s, device_allocate(d->dev, &p->ids_there, (size_t)(p->batch * p->positions)), failed);
    *out = p;
    return STATUS_OK;
failed:
    decoder_passages_free(p);
    return s;
}

void decoder_passages_free(struct decoder_passages *p) {
    if (!p) return;
    device_release(p->decoder->dev, p->memory);
    device_release(p->decoder->dev, p->ids_there);
    memory_free(p->ids);
    memory_free(p);
}

/* The row of a passage's id: each chunk that ended before it put one landmark in between. */
static int64_t passages_row(const struct decoder_passages *p, int64_t id) {
    return p->decoder->config.base_lm ? id : id + id / p->decoder->config.chunk;
}

static void passages_embed(struct decoder_passages *p, struct mat x, const int32_t *ids, int64_t n) {
    struct decoder *d = p->decoder;
    int32_t pad = d->config.base_lm ? 0 : d->config.pad_id;
    for (int64_t i = 0; i < n * p->positions; i++)
        p->ids[i] = d->config.landmark_id;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < p->length; j++) {
            assert(ids[i * p->length + j] < d->config.vocab_size);
            p->ids[i * p->positions + passages_row(p, j)] = ids[i * p->length + j];
        }
    device_upload(d->dev, p->ids_there, p->ids, (size_t)(n * p->positions) * sizeof *p->ids);
    d->dev->ops->embed->forward(d->dev, x, d->weights.embed, p->ids_there, pad);
}

static void passages_attend(struct decoder_passages *p, struct mat x, const struct block_weights *w,
                            struct block_scratch scratch) {
    struct decoder *d = p->decoder;
    int64_t cols = d->config.hidden;
    struct mat qkv = mat_rows(p->qkv, 0, x.rows), q = mat_cols(qkv, 0, cols);
    block_qkv(d->dev, qkv, x, w, d->config.rms_eps, scratch);
    const struct attention_sequences in = {.q = q,
                                           .k = mat_cols(qkv, cols, cols),
                                           .v = mat_cols(qkv, 2 * cols, cols),
                                           .length = p->positions,
                                           .heads = d->config.heads,
                                           .window = d->config.window};
    d->dev->ops->attention->forward_sequences(d->dev, mat_rows(p->norm, 0, x.rows), mat_rows(p->lse, 0, x.rows), &in);
    block_output(d->dev, x, mat_rows(p->norm, 0, x.rows), w);
}

static void passages_batch(struct decoder_passages *p, struct mat keys, int key_layer, const int32_t *ids, int64_t n) {
    struct decoder *d = p->decoder;
    struct mat x = mat_rows(p->x, 0, n * p->positions);
    const struct block_scratch scratch = {.norm = p->norm, .gate_up = p->gate_up};
    passages_embed(p, x, ids, n);
    for (int i = 0; i + 1 < key_layer; i++) {
        passages_attend(p, x, &d->weights.layers[i], scratch);
        block_mlp(d->dev, x, x, &d->weights.layers[i], d->config.rms_eps, scratch);
    }
    const struct block_weights *last = &d->weights.layers[key_layer - 1];
    passages_attend(p, x, last, scratch);
    int64_t run = p->positions == p->length ? n * p->length : d->config.chunk; /* ids in neighbouring rows */
    for (int64_t id = 0; id < n * p->length; id += run) {
        int64_t row = id / p->length * p->positions + passages_row(p, id % p->length);
        decoder_keys_make(d, mat_rows(keys, id, run), mat_rows(x, row, run), p->norm, key_layer - 1);
    }
}

void decoder_passages_encode(struct decoder_passages *p, struct mat keys, int key_layer, const int32_t *ids,
                             int64_t n) {
    assert(key_layer >= 1 && key_layer <= model_config_layers(&p->decoder->config));
    assert(keys.rows == n * p->length && keys.type == p->decoder->type);
    for (int64_t i = 0, part; i < n; i += part) {
        part = n - i < p->batch ? n - i : p->batch;
        passages_batch(p, mat_rows(keys, i * p->length, part * p->length), key_layer, ids + i * p->length, part);
    }
}

void decoder_keys_make(struct decoder *d, struct mat keys, struct mat x, struct mat scratch, int layer) {
    const struct ops *ops = d->dev->ops;
    bool projected = d->weights.key_proj.data && layer + 1 == d->config.memory_layer;
    struct mat state = projected ? mat_rows(scratch, 0, x.rows) : keys;
    ops->norm->forward(d->dev, state, decoder_no_rstd(x.rows), x, d->weights.layers[layer].post_norm,
                       d->config.rms_eps);
    assert(!projected || (keys.cols >= d->config.memory_size && keys.cols <= d->config.hidden));
    if (projected) ops->matmul->forward(d->dev, keys, state, mat_rows(d->scratch.key_proj, 0, keys.cols), false);
}

/* ---- of a pass ---- */

void decoder_keys_keep(struct decoder *d, const struct decoder_pass *p, int layer, struct mat h, int64_t begin) {
    if (!p->keys.data || layer + 1 != p->key_layer) return;
    int64_t end = begin + h.rows;
    /* Runs of ids without a landmark between them are neighbouring rows. */
    for (int64_t j = 0, run; j < p->n; j += run) {
        int64_t row = decoder_pass_row(d, p, j);
        for (run = 1; j + run < p->n && decoder_pass_row(d, p, j + run) == row + run;)
            run++;
        int64_t from = row > begin ? row : begin, n = min_i64(row + run, end) - from;
        if (n <= 0) continue;
        decoder_keys_make(d, mat_rows(p->keys, j + from - row, n), mat_rows(h, from - begin, n), d->scratch.key, layer);
    }
}
