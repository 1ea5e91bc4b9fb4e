/* decoder_batch.c -- see decoder_batch.h. On a GPU: decoder_rows.c.
 *
 * Row i of each activation belongs to text order[i]: texts whose chunk reads neighbours come first, so that GCA's rows
 * are contiguous. What works on one text's own memory (the ring, the pool) runs as a loop over texts, a text a thread;
 * the rest is one op over all rows. */
#include "decoder/batch/decoder_batch.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "decoder/decoder_pass_internal.h"
#include <assert.h>
#include <string.h>

/* Activations that a pass over one text has no use for. [DECODER_BATCH_MAX, ...] */
struct decoder_batch_scratch {
    struct mat logits;
};

struct decoder_batch {
    struct decoder *decoder;
    struct decoder_state *const *states;
    const struct decoder_batch_keys *keys; /* NULL: no key states */
    int order[DECODER_BATCH_MAX];
    struct decoder_fusion fusions[DECODER_BATCH_MAX]; /* by row; of the group at work */
    int64_t first[DECODER_BATCH_MAX];                 /* by row: the id's position */
    int n, fused;                                     /* rows; of these, those with neighbours */
    int layer;                                        /* at work */
    struct mat q, kv;                                 /* of the layer at work */
};

bool decoder_batch_takes(const struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    if (!d->dev->shares_memory) return decoder_rows_takes(s);
    if (s->spent || s->watch.rows) return false;
    if (d->config.recurrent_layer > 0 || d->config.landmark_block > 0) return false;
    if (d->config.base_lm) return true;
    for (int g = 1; g < d->config.groups; g++)
        if ((s->current[g].k > 0) != (s->current[0].k > 0)) return false;
    return s->tokens % d->config.chunk + 1 < d->config.chunk;
}

bool decoder_state_spent(const struct decoder_state *s) {
    return s->spent;
}

static struct decoder_state *decoder_batch_state(const struct decoder_batch *b, int64_t row) {
    return b->states[b->order[row]];
}

static void decoder_batch_arrange(struct decoder_batch *b) {
    int at = 0;
    for (int with = 1; with >= 0; with--) {
        for (int i = 0; i < b->n; i++)
            if ((b->states[i]->retriever && b->states[i]->current[0].k > 0) == (with == 1)) b->order[at++] = i;
        if (with) b->fused = at;
    }
    for (int row = 0; row < b->n; row++)
        b->first[row] = decoder_make_pass(decoder_batch_state(b, row), 1).first;
}

/* A product of rows of different texts. */
static void decoder_batch_product(const struct decoder *d, struct mat y, struct mat x, struct mat w, bool accumulate) {
    d->dev->ops->matmul->forward_each(d->dev, y, x, w, accumulate);
}

/* ---- a loop over texts: what reads a text's own memory ---- */

static void decoder_batch_attend(void *context, int64_t begin, int64_t end, int worker) {
    const struct decoder_batch *b = context;
    const struct decoder *d = b->decoder;
    struct device *dev = device_worker(d->dev, worker);
    for (int64_t row = begin; row < end; row++) {
        const struct decoder_ring *ring = &decoder_batch_state(b, row)->rings[b->layer];
        struct mat q = mat_rows(b->q, row, 1);
        dev->ops->elementwise->convert(dev, mat_rows(ring->both, b->first[row] % ring->both.rows, 1),
                                       mat_rows(b->kv, row, 1));
        dev->ops->attention->forward(dev, q, q, ring->keys, ring->values, b->first[row], d->config.heads,
                                     d->config.window);
    }
}

static void decoder_batch_fuse(void *context, int64_t begin, int64_t end, int worker) {
    const struct decoder_batch *b = context;
    const struct decoder *d = b->decoder;
    struct device *dev = device_worker(d->dev, worker);
    for (int64_t row = begin; row < end; row++) {
        struct mat q = mat_rows(b->q, row, 1);
        dev->ops->gca->forward(dev, q, q, b->fusions[row].pool, b->fusions[row].blocks, d->config.heads);
    }
}

/* ---- key states: row by row, as the pass of one id makes them ---- */

/* h: the inputs of the layer's MLP, whose first row is that of the text in row `first`. */
static void decoder_batch_keys(const struct decoder_batch *b, struct mat h, int64_t first) {
    for (int64_t i = 0; b->keys && i < h.rows; i++) {
        const struct decoder_batch_keys *wanted = &b->keys[b->order[first + i]];
        if (!wanted->keys.data) continue;
        struct decoder_pass pass = decoder_make_pass(decoder_batch_state(b, first + i), 1);
        pass.keys = wanted->keys, pass.key_layer = wanted->key_layer, pass.states = wanted->states;
        decoder_keys_keep(b->decoder, &pass, b->layer, mat_rows(h, i, 1), 0);
    }
}

/* ---- a layer; each step is one of decoder.c's and block.c's for one row ---- */

static void decoder_batch_attention(struct decoder_batch *b, const struct block_weights *w, struct mat x) {
    const struct decoder *d = b->decoder;
    struct mat h = mat_rows(d->scratch.h, 0, x.rows);
    const int64_t cols = d->config.hidden;
    const struct mat qkv = mat_rows(d->scratch.qkv, 0, x.rows);
    b->q = mat_cols(qkv, 0, cols);
    b->kv = mat_cols(qkv, cols, 2 * cols);
    d->dev->ops->norm->forward(d->dev, h, decoder_no_rstd(x.rows), x, w->input_norm, d->config.rms_eps);
    decoder_batch_product(d, qkv, h, w->qkv, false);
    threads_for(d->dev->threads, x.rows, 1, decoder_batch_attend, b);
    decoder_batch_product(d, x, b->q, w->o, true);
}

static void decoder_batch_mlp(const struct decoder *d, const struct block_weights *w, struct mat x, struct mat h) {
    const struct block_scratch scratch = {.norm = d->scratch.h, .gate_up = d->scratch.gate_up, .each = true};
    block_mlp(d->dev, x, h, w, d->config.rms_eps, scratch);
}

static void decoder_batch_gca(struct decoder_batch *b, const struct block_weights *w, struct mat x) {
    const struct decoder *d = b->decoder;
    struct mat h = mat_rows(d->scratch.h, 0, x.rows), sum = mat_rows(d->scratch.sum, 0, x.rows);
    b->q = mat_rows(d->scratch.q, 0, x.rows);
    d->dev->ops->norm->forward(d->dev, h, decoder_no_rstd(x.rows), x, w->gca_norm, d->config.rms_eps);
    decoder_batch_product(d, b->q, h, w->gca_q, false);
    threads_for(d->dev->threads, x.rows, 1, decoder_batch_fuse, b);
    decoder_batch_product(d, sum, b->q, w->gca_o, false);
    d->dev->ops->elementwise->add(d->dev, sum, sum, x);
    decoder_batch_keys(b, sum, 0);
    decoder_batch_mlp(d, w, x, sum);
}

static void decoder_batch_lower(struct decoder_batch *b, const struct block_weights *layers, struct mat x) {
    for (b->layer = 0; b->layer < b->decoder->config.lower_layers; b->layer++) {
        decoder_batch_attention(b, &layers[b->layer], x);
        decoder_batch_keys(b, x, 0);
        decoder_batch_mlp(b->decoder, &layers[b->layer], x, x);
    }
}

static void decoder_batch_group(struct decoder_batch *b, const struct block_weights *layers, int group, struct mat x) {
    struct mat fused = mat_rows(x, 0, b->fused), plain = mat_rows(x, b->fused, x.rows - b->fused);
    for (int i = 0; i < b->decoder->config.group_layers[group]; i++, b->layer++) {
        decoder_batch_attention(b, &layers[b->layer], x);
        decoder_batch_keys(b, plain, b->fused);
        if (plain.rows > 0) decoder_batch_mlp(b->decoder, &layers[b->layer], plain, plain);
        if (fused.rows > 0) decoder_batch_gca(b, &layers[b->layer], fused);
    }
}

/* ---- a step ---- */

/* What the end of the chunk will need: the ids, and the lower outputs where the encoder reads them. */
static void decoder_batch_keep(const struct decoder_batch *b, struct mat x, const int32_t *ids) {
    for (int row = 0; row < b->n; row++) {
        struct decoder_state *s = decoder_batch_state(b, row);
        if (!s->retriever) continue;
        const int64_t in_chunk = s->tokens % b->decoder->config.chunk;
        s->chunk_ids[in_chunk] = ids[b->order[row]];
        if (s->chunk_rows.data)
            device_copy_rows(b->decoder->dev, mat_rows(s->chunk_rows, in_chunk, 1), mat_rows(x, row, 1));
    }
}

static void decoder_batch_head(const struct decoder_batch *b, float *const *logits, struct mat x) {
    const struct decoder *d = b->decoder;
    struct mat h = mat_rows(d->scratch.h, 0, x.rows), all = mat_rows(d->batch->logits, 0, x.rows);
    d->dev->ops->norm->forward(d->dev, h, decoder_no_rstd(x.rows), x, d->weights.final_norm, d->config.rms_eps);
    decoder_batch_product(d, all, h, d->weights.narrow ? d->weights.narrow_embed : d->weights.embed, false);
    for (int row = 0; row < b->n; row++)
        memcpy(logits[b->order[row]], mat_row(all, row), (size_t)all.cols * sizeof(float));
}

static enum status decoder_batch_reserve(struct decoder *d) {
    struct decoder_batch_scratch *made;
    if (d->batch) return STATUS_OK;
    TRY(memory_allocate_zero(&made, 1));
    d->batch = made; /* decoder_batch_free frees it, also when half of it is there */
    enum status status = decoder_create_mat(d, &made->logits, DTYPE_F32, DECODER_BATCH_MAX, d->config.vocab_size);
    if (status != STATUS_OK) decoder_batch_free(d);
    return status;
}

void decoder_batch_free(struct decoder *d) {
    if (!d->batch) return;
    device_release(d->dev, d->batch->logits.data);
    memory_free(d->batch);
    d->batch = NULL;
}

static enum status decoder_batch_block(struct decoder_fusion *out, struct decoder_state *s, int group) {
    const struct neighbours none = {0};
    const struct decoder_pass pass = decoder_make_pass(s, 1);
    return decoder_blocks_build(out, s, group, &pass, &none);
}

/* Builds the blocks of a text ahead: all that can fail. Nothing but a list that later calls build again changes. */
static enum status decoder_batch_blocks_of(struct decoder_state *s) {
    struct decoder_fusion built;
    for (int g = 0; s->retriever && g < s->decoder->config.groups; g++)
        TRY(decoder_batch_block(&built, s, g));
    return STATUS_OK;
}

static void decoder_batch_blocks(struct decoder_batch *b, int group) {
    for (int row = 0; row < b->fused; row++) {
        enum status status = decoder_batch_block(&b->fusions[row], decoder_batch_state(b, row), group);
        assert(status == STATUS_OK && b->fusions[row].blocks.blocks == 1 && b->fusions[row].begin == 0);
    }
}

static void decoder_batch_run(struct decoder_batch *b, float *const *logits, const int32_t *ids) {
    struct decoder *d = b->decoder;
    const struct block_weights *layers = d->weights.narrow ? d->weights.narrow : d->weights.layers;
    struct mat x = mat_rows(d->scratch.x, d->positions, b->n);
    const double start = clock_seconds();
    for (int row = 0; row < b->n; row++)
        d->scratch.ids[row] = ids[b->order[row]];
    d->dev->ops->embed->forward(d->dev, x, d->weights.embed, d->scratch.ids, d->config.base_lm ? 0 : d->config.pad_id);
    decoder_batch_lower(b, layers, x);
    decoder_batch_keep(b, x, ids);
    for (int g = 0; g < d->config.groups; g++) {
        decoder_batch_blocks(b, g);
        decoder_batch_group(b, layers, g, x);
    }
    const double head = clock_seconds();
    decoder_batch_head(b, logits, x);
    const double end = clock_seconds();
    for (int row = 0; row < b->n; row++) {
        struct decoder_state *s = decoder_batch_state(b, row);
        s->tokens++;
        s->times.layers += (head - start) / b->n;
        s->times.head += (end - head) / b->n;
    }
}

enum status decoder_batch_forward_keys(struct decoder_state *const *states, float *const *logits, const int32_t *ids,
                                       const struct decoder_batch_keys *keys, int n) {
    struct decoder_batch b = {.decoder = states[0]->decoder, .states = states};
    struct decoder *d = b.decoder;
    assert(n >= 1 && n <= DECODER_BATCH_MAX);
    for (int i = 0; i < n; i++)
        assert(states[i]->decoder == d && decoder_batch_takes(states[i]) && ids[i] < d->config.vocab_size);
    assert(!keys || d->dev->shares_memory);
    if (!d->dev->shares_memory) return decoder_rows_forward(states, logits, ids, n);
    TRY(decoder_batch_reserve(d));
    for (int i = 0; i < n; i++)
        TRY(decoder_batch_blocks_of(states[i]));
    /* A decoder of short passes has few rows of scratch memory. */
    for (int done = 0; done < n; done += b.n) {
        b.states = states + done;
        b.keys = keys ? keys + done : NULL;
        b.n = n - done < d->max_tokens ? n - done : (int)d->max_tokens;
        decoder_batch_arrange(&b);
        decoder_batch_run(&b, logits + done, ids + done);
    }
    return device_sync(d->dev);
}

enum status decoder_batch_forward(struct decoder_state *const *states, float *const *logits, const int32_t *ids,
                                  int n) {
    return decoder_batch_forward_keys(states, logits, ids, NULL, n);
}
