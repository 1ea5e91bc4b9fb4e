/* decoder.c -- the loop over passes, and the loop over the layers of a pass.
 *
 * A pass computes the lower layers of all its positions, and appends the chunks that it completed to the retriever.
 * Then it computes each group: queries, neighbours, layers. Chunk t + 1 reads only what landmark t retrieved, and the
 * query of landmark t is computed from the group's input. So a pass retrieves for all its chunks at once. */
#include "decoder/decoder.h"
#include "base/memory.h"
#include "decoder/decoder_pass_internal.h"
#include <assert.h>
#include <string.h>

/* The released model uses its class default for these norms, for any rms_norm_eps (model.md §4.1). */
static const float QUERY_NORM_EPS = 1e-5F;

enum { DEFAULT_CHUNKS = 16, DEFAULT_TOKENS = 1024, LOGIT_ROWS = 64 };

enum status decoder_create_mat(struct decoder *d, struct mat *out, enum dtype type, int64_t rows, int64_t cols) {
    void *memory;
    TRY(device_allocate(d->dev, &memory, (size_t)rows * (size_t)cols * (size_t)dtype_bytes(type)));
    *out = mat_dense(memory, type, rows, cols);
    return STATUS_OK;
}

static enum status decoder_create_scratch(struct decoder *d) {
    struct decoder_scratch *s = &d->scratch;
    int64_t rows = d->max_positions, cols = d->config.hidden;
    TRY(decoder_create_mat(d, &s->x, d->type, rows + d->positions, cols));
    TRY(decoder_create_mat(d, &s->h, d->type, rows, cols));
    TRY(decoder_create_mat(d, &s->q, d->type, rows, cols));
    TRY(decoder_create_mat(d, &s->sum, d->type, rows, cols));
    TRY(decoder_create_mat(d, &s->gate_up, d->type, rows, 2 * (int64_t)d->config.ffn));
    if (d->dev->shares_memory) TRY(decoder_create_mat(d, &s->qkv, d->type, rows, 3 * cols));
    TRY(decoder_create_mat(d, &s->query_norm, d->type, d->max_chunks + 1, cols));
    TRY(decoder_create_mat(d, &s->query, DTYPE_F32, d->max_chunks + 1, cols));
    if (d->weights.key_proj.data) {
        TRY(decoder_create_mat(d, &s->key, d->type, rows, cols));
        TRY(decoder_create_mat(d, &s->key_proj, d->type, cols, cols));
        device_copy(d->dev, s->key_proj.data, d->weights.key_proj.data, mat_bytes(d->weights.key_proj));
    }
    TRY(memory_allocate(&s->ids, (size_t)rows));
    TRY(memory_allocate(&s->chunk_ids, (size_t)(d->max_tokens + d->positions)));
    TRY(memory_allocate(&s->selected, (size_t)rows));
    TRY(device_pair_allocate(d->dev, &s->nll, (size_t)rows * sizeof(float)));
    void *memory;
    TRY(device_buffer(d->dev, &memory, (size_t)rows * sizeof *s->ids));
    s->ids_device = memory;
    TRY(device_buffer(d->dev, &memory, (size_t)d->logit_rows * (size_t)d->config.vocab_size * sizeof(float)));
    s->logits_device = memory;
    return STATUS_OK;
}

enum status decoder_create(struct decoder **out, struct device *dev, const struct model_config *config,
                           const struct weights *weights, int max_tokens) {
    struct decoder *d;
    TRY(memory_allocate_zero(&d, 1));
    d->dev = dev;
    d->config = *config;
    d->type = weights->type;
    /* the ops of these two read float32 rings */
    const bool wide = config->recurrent_layer > 0 || config->landmark_block > 0;
    d->ring_type = weights->i8 && !wide ? DTYPE_BF16 : d->type;
    d->max_tokens = max_tokens > 0    ? max_tokens
                    : config->base_lm ? DEFAULT_TOKENS
                                      : (int64_t)DEFAULT_CHUNKS * config->chunk;
    d->positions = model_config_positions(config);
    d->max_chunks = model_config_landmarks(config) ? d->max_tokens / config->chunk + 1 : 0;
    d->max_positions = d->max_tokens + d->max_chunks;
    d->logit_rows = dev->shares_memory || d->max_tokens < LOGIT_ROWS ? d->max_tokens : LOGIT_ROWS;
    enum status status;
    TRY_GOTO(status, decoder_weights_find(&d->weights, config, weights), out);
    TRY_GOTO(status, decoder_create_scratch(d), out);
    TRY_GOTO(status, decoder_step_weights(d), out);
    *out = d;
    return STATUS_OK;
out:
    decoder_free(d);
    return status;
}

void decoder_free(struct decoder *d) {
    if (!d) return;
    struct decoder_scratch *s = &d->scratch;
    struct mat mats[] = {s->x, s->h, s->q, s->sum, s->gate_up, s->qkv, s->query_norm, s->query, s->key, s->key_proj};
    for (size_t i = 0; i < ARRAY_LEN(mats); i++)
        device_release(d->dev, mats[i].data);
    memory_free(s->ids);
    memory_free(s->chunk_ids);
    memory_free(s->selected);
    device_release(d->dev, s->ids_device);
    device_pair_release(d->dev, &s->nll);
    device_release(d->dev, s->logits_device);
    decode_step_weights_free(d->step_weights);
    decode_rows_free(d->rows);
    decoder_rows_free(d);
    decoder_batch_free(d);
    decoder_passages_drop(d);
    decoder_packed_free(d);
    memory_free(d->weights.layers);
    memory_free(d->weights.narrow);
    memory_free(d->weights.step);
    memory_free(d);
}

enum dtype decoder_type(const struct decoder *d) {
    return d->type;
}

struct mat decoder_projection(const struct decoder *d, int key_layer) {
    return key_layer == d->config.memory_layer ? d->weights.key_proj : (struct mat){0};
}

/* On a GPU, a pass that another pass follows ends at a chunk's end (Base LM: at the end of an attention tile). The next
 * pass then begins at a boundary, which is faster. */
static int64_t decoder_pass_ids(const struct decoder_state *s, int64_t left) {
    const struct decoder *d = s->decoder;
    int64_t n = left < d->max_tokens ? left : d->max_tokens;
    int64_t over = s->tokens % (model_config_landmarks(&d->config) ? d->config.chunk : (int)DECODER_TILE);
    return n < left && over < n && !d->dev->shares_memory ? n - over : n;
}

struct decoder_pass decoder_make_pass(const struct decoder_state *s, int64_t left) {
    const struct decoder *d = s->decoder;
    int64_t n = decoder_pass_ids(s, left);
    if (!model_config_landmarks(&d->config)) return (struct decoder_pass){.n = n, .positions = n, .first = s->tokens};
    int64_t chunk = d->config.chunk, in_chunk = s->tokens % chunk, first_chunk = s->tokens / chunk;
    if (s->retriever && n > s->retriever->max_queries * chunk - in_chunk)
        n = s->retriever->max_queries * chunk - in_chunk;
    int64_t completed = (in_chunk + n) / chunk;
    return (struct decoder_pass){.n = n,
                                 .positions = n + completed,
                                 .first = first_chunk * d->positions + in_chunk,
                                 .first_chunk = first_chunk,
                                 .in_chunk = in_chunk,
                                 .completed = completed};
}

static void decoder_embed(struct decoder_state *s, struct mat x, const struct decoder_pass *p, const int32_t *ids) {
    struct decoder *d = s->decoder;
    int32_t *all = d->scratch.ids, pad = d->config.base_lm ? 0 : d->config.pad_id; /* model.md §10 */
    for (int64_t i = 0; i < p->completed; i++)
        all[(i + 1) * d->positions - 1 - p->in_chunk] = d->config.landmark_id;
    for (int64_t j = 0; j < p->n; j++) {
        assert(ids[j] < d->config.vocab_size);
        all[decoder_pass_row(d, p, j)] = ids[j];
    }
    int32_t *ids_device = device_side(d->dev, all, d->scratch.ids_device);
    device_upload(d->dev, ids_device, all, (size_t)p->positions * sizeof *all);
    d->dev->ops->embed->forward(d->dev, x, d->weights.embed, ids_device, pad);
}

static struct block_scratch decoder_block_scratch(struct decoder *d) {
    return (struct block_scratch){.norm = d->scratch.h, .gate_up = d->scratch.gate_up};
}

/* o may be q. */
static void decoder_attend(struct decoder *d, struct mat o, struct mat q, const struct decoder_ring *ring,
                           int64_t first) {
    const struct model_config *c = &d->config;
    const struct landmark_shape shape = {c->heads, c->landmark_block, c->window};
    if (c->landmark_block > 0)
        d->dev->ops->landmark_attention->forward(d->dev, o, q, ring->keys, ring->values, first, shape,
                                                 c->landmark_topk);
    else
        d->dev->ops->attention->forward(d->dev, o, q, ring->keys, ring->values, first, c->heads, c->window);
}

/* Adds the attention over the window to x, or over the blocks of Landmark Attention. The product writes keys and values
 * into the ring buffer, in two pieces if it wraps. On a CPU one product of few rows makes all three, and it is copied
 * there, or converted if the ring has another type. */
static void decoder_self_attention(struct decoder *d, const struct block_weights *w, const struct decoder_ring *ring,
                                   struct mat x, int64_t first) {
    const struct ops *ops = d->dev->ops;
    const int64_t cols = d->config.hidden;
    struct mat h = mat_rows(d->scratch.h, 0, x.rows), q = mat_rows(d->scratch.q, 0, x.rows), kv = {0};
    ops->norm->forward(d->dev, h, decoder_no_rstd(x.rows), x, w->input_norm, d->config.rms_eps);
    if (d->scratch.qkv.data && (x.rows <= MATMUL_FEW_ROWS || ring->both.type != d->type)) {
        const struct mat qkv = mat_rows(d->scratch.qkv, 0, x.rows);
        q = mat_cols(qkv, 0, cols), kv = mat_cols(qkv, cols, 2 * cols);
        ops->matmul->forward(d->dev, qkv, h, w->qkv, false);
    } else {
        ops->matmul->forward(d->dev, q, h, w->q, false);
    }
    for (int64_t row = 0, n; row < x.rows; row += n) {
        int64_t at = (first + row) % ring->both.rows, to_end = ring->both.rows - at;
        n = x.rows - row < to_end ? x.rows - row : to_end;
        if (kv.data)
            ops->elementwise->convert(d->dev, mat_rows(ring->both, at, n), mat_rows(kv, row, n));
        else
            ops->matmul->forward(d->dev, mat_rows(ring->both, at, n), mat_rows(h, row, n), w->kv, false);
    }
    decoder_attend(d, q, q, ring, first);
    block_output(d->dev, x, q, w);
}

/* Copies keys and values of the block that ends before position `end` out of the ring buffer, in two
 * pieces if it wraps. */
static void decoder_copy_block(struct device *dev, struct mat to, const struct decoder_ring *ring, int64_t end) {
    for (int64_t row = 0, n; row < to.rows; row += n) {
        int64_t at = (end - to.rows + row) % ring->both.rows, to_end = ring->both.rows - at;
        n = to.rows - row < to_end ? to.rows - row : to_end;
        device_copy_rows(dev, mat_rows(to, row, n), mat_rows(ring->both, at, n));
    }
}

/* Called after decoder_self_attention, which left the layer's normed input in scratch.h. Adds to x what the rows read
 * from the state of their block (model.md §10.1). At the end of a block it computes the next state. */
static void decoder_recurrent(struct decoder_state *s, const struct decoder_ring *ring, struct mat x, int64_t first) {
    struct decoder *d = s->decoder;
    const struct ops *ops = d->dev->ops;
    const struct recurrent_weights *w = &d->weights.recurrent;
    struct mat q = mat_rows(d->scratch.q, 0, x.rows);
    int64_t block = d->config.recurrent_block;
    ops->matmul->forward(d->dev, q, mat_rows(d->scratch.h, 0, x.rows), w->q, false);
    for (int64_t row = 0, n; row < x.rows; row += n) {
        int64_t left = block - (first + row) % block;
        n = x.rows - row < left ? x.rows - row : left;
        recurrent_state_read(&s->recurrent, d->dev, mat_rows(q, row, n));
        if (n < left) break;
        decoder_copy_block(d->dev, s->recurrent.both, ring, first + row + n);
        recurrent_state_update(&s->recurrent, d->dev, w);
    }
    ops->matmul->forward(d->dev, x, q, w->o, true);
}

/* Computes sum = x + GCA(x) for the rows from `begin` on, which the blocks cover (model.md §5.2). */
static void decoder_gca(struct decoder_state *s, const struct block_weights *w, struct mat x,
                        const struct decoder_fusion *f, const char *watch, int64_t first) {
    struct decoder *d = s->decoder;
    const struct ops *ops = d->dev->ops;
    int64_t begin = f->begin, n = x.rows - begin;
    struct mat h = mat_rows(d->scratch.h, 0, n), q = mat_rows(d->scratch.q, 0, x.rows);
    struct mat sum = mat_rows(d->scratch.sum, begin, n);
    ops->norm->forward(d->dev, h, decoder_no_rstd(n), mat_rows(x, begin, n), w->gca_norm, d->config.rms_eps);
    ops->matmul->forward(d->dev, mat_rows(q, begin, n), h, w->gca_q, false);
    ops->gca->forward(d->dev, q, q, f->pool, f->blocks, d->config.heads);
    ops->matmul->forward(d->dev, sum, mat_rows(q, begin, n), w->gca_o, false);
    if (watch) decoder_watch_rows(s, watch, 0, first + begin, sum);
    ops->elementwise->add(d->dev, sum, sum, mat_rows(x, begin, n));
}

/* The time of a product of few rows is that of reading weights, so it reads the bf16 copies. A model of 8-bit weights
 * is one model, so all products read them. */
static const struct block_weights *decoder_layer_weights(const struct decoder *d, int64_t rows) {
    return d->weights.narrow && rows <= d->weights.narrow_rows ? d->weights.narrow : d->weights.layers;
}

static void decoder_lower_layers(struct decoder_state *s, struct mat x, const struct decoder_pass *p) {
    struct decoder *d = s->decoder;
    for (int i = 0; i < d->config.lower_layers; i++) {
        const struct block_weights *w = decoder_layer_weights(d, x.rows) + i;
        decoder_self_attention(d, w, &s->rings[i], x, p->first);
        if (i + 1 == d->config.recurrent_layer) decoder_recurrent(s, &s->rings[i], x, p->first);
        decoder_keys_keep(d, p, i, x, 0);
        block_mlp(d->dev, x, x, w, d->config.rms_eps, decoder_block_scratch(d));
    }
    decoder_watch_rows(s, "lower", 0, p->first, x);
}

static void decoder_upper_layers(struct decoder_state *s, int group, int layer, struct mat x,
                                 const struct decoder_pass *p, const struct decoder_fusion *f) {
    struct decoder *d = s->decoder;
    int64_t begin = f->blocks.blocks > 0 ? f->begin : x.rows;
    struct mat plain = mat_rows(x, 0, begin), fused = mat_rows(x, begin, x.rows - begin);
    double start = clock_seconds();
    for (int i = 0; i < d->config.group_layers[group]; i++) {
        const struct block_weights *w = decoder_layer_weights(d, x.rows) + layer + i;
        decoder_self_attention(d, w, &s->rings[layer + i], x, p->first);
        if (plain.rows > 0) decoder_keys_keep(d, p, layer + i, plain, 0);
        /* The residual is still x, because GCA's output reaches the stream only through the MLP (model.md §5.1). */
        if (plain.rows > 0) block_mlp(d->dev, plain, plain, w, d->config.rms_eps, decoder_block_scratch(d));
        if (fused.rows == 0) continue;
        double before = clock_seconds();
        decoder_gca(s, w, x, f, group == 0 && i == 0 ? "gca0" : NULL, p->first);
        double after = clock_seconds();
        s->times.fuse += after - before;
        start += after - before;
        struct mat sum = mat_rows(d->scratch.sum, begin, fused.rows);
        decoder_keys_keep(d, p, layer + i, sum, begin);
        block_mlp(d->dev, fused, sum, w, d->config.rms_eps, decoder_block_scratch(d));
    }
    s->times.layers += clock_seconds() - start;
}

static void decoder_copy_rows(struct decoder *d, struct mat to, int64_t to_row, struct mat from, int64_t from_row,
                              int64_t n) {
    device_copy_rows(d->dev, mat_rows(to, to_row, n), mat_rows(from, from_row, n));
}

/* Appends the completed chunks to the retriever, and keeps the ids (and lower outputs) of the current chunk. */
static enum status decoder_append(struct decoder_state *s, const struct decoder_pass *p, const int32_t *ids) {
    struct decoder *d = s->decoder;
    int64_t chunk = d->config.chunk, kept = (p->in_chunk + p->n) % chunk;
    int64_t fresh = kept < p->n ? kept : p->n; /* the kept ids that this pass has added */
    int32_t *all = d->scratch.chunk_ids;
    /* the pass begins at row d->positions; the rows before it are the beginning of its first chunk */
    struct mat x = d->scratch.x;
    bool hidden = s->chunk_rows.data != NULL;
    if (p->completed > 0) {
        struct mat rows = mat_rows(x, d->positions - p->in_chunk, p->completed * d->positions);
        if (!hidden) rows.data = NULL;
        memcpy(all, s->chunk_ids, (size_t)p->in_chunk * sizeof *all);
        memcpy(all + p->in_chunk, ids, (size_t)p->n * sizeof *all);
        if (hidden) decoder_copy_rows(d, rows, 0, s->chunk_rows, 0, p->in_chunk);
        double start = clock_seconds();
        TRY(s->retriever->append(s->retriever, p->first_chunk, all, rows, p->completed));
        s->times.retrieve += clock_seconds() - start;
    }
    memcpy(s->chunk_ids + kept - fresh, ids + p->n - fresh, (size_t)fresh * sizeof *ids);
    if (hidden) decoder_copy_rows(d, s->chunk_rows, kept - fresh, x, d->positions + p->positions - fresh, fresh);
    return STATUS_OK;
}

/* Computes the queries of the landmarks, and retrieves for them. */
enum status decoder_retrieve(struct decoder_state *s, struct neighbours *found, int group, struct mat landmarks,
                             const struct decoder_pass *p) {
    struct decoder *d = s->decoder;
    double start = clock_seconds();
    struct mat query = mat_rows(d->scratch.query, 0, p->completed);
    struct mat norm = d->config.retrieval_proj ? mat_rows(d->scratch.query_norm, 0, p->completed) : query;
    d->dev->ops->norm->forward(d->dev, norm, decoder_no_rstd(norm.rows), landmarks, d->weights.query_norm[group],
                               QUERY_NORM_EPS);
    if (d->config.retrieval_proj)
        d->dev->ops->matmul->forward(d->dev, query, norm, d->weights.query_proj[group], false);
    double queried = clock_seconds();
    s->times.query += queried - start;
    decoder_watch_rows(s, "query", group, p->first_chunk, query);
    TRY(s->retriever->retrieve(s->retriever, found, group, p->first_chunk, query, p->completed));
    assert(found->n == p->completed && found->k > 0);
    s->times.retrieve += clock_seconds() - queried;
    if (s->watch.retrieval) s->watch.retrieval(s->watch.context, group, p->first_chunk, found);
    return STATUS_OK;
}

/* Returns a view of the landmark rows: the last row of each chunk. */
static struct mat decoder_landmark_rows(const struct decoder *d, struct mat x, const struct decoder_pass *p) {
    struct mat rows = mat_rows(x, d->positions - 1 - p->in_chunk, 1);
    rows.rows = p->completed;
    rows.stride = x.stride * d->positions;
    return rows;
}

static enum status decoder_run_pass(struct decoder_state *s, const struct decoder_output *out,
                                    const struct decoder_pass *p, const int32_t *ids, int64_t offset, int64_t total) {
    struct decoder *d = s->decoder;
    struct mat x = mat_rows(d->scratch.x, d->positions, p->positions);
    double start = clock_seconds();
    TRY(decoder_state_reserve(s, p->first + p->positions));
    decoder_embed(s, x, p, ids);
    decoder_lower_layers(s, x, p);
    s->times.layers += clock_seconds() - start;

    if (s->retriever) TRY(decoder_append(s, p, ids));
    int layer = d->config.lower_layers;
    for (int g = 0; g < d->config.groups; g++) {
        struct neighbours found = {0};
        struct decoder_fusion fusion = {0};
        if (s->retriever) {
            if (p->completed > 0) TRY(decoder_retrieve(s, &found, g, decoder_landmark_rows(d, x, p), p));
            TRY(decoder_blocks_build(&fusion, s, g, p, &found));
        }
        decoder_upper_layers(s, g, layer, x, p, &fusion);
        if (p->completed > 0 && s->retriever) TRY(decoder_current_set(s, g, &found));
        layer += d->config.group_layers[g];
    }
    start = clock_seconds();
    decoder_head(s, out, p, x, offset, total);
    if (offset + p->n == total) decoder_queue_ops(d, out);
    s->times.head += clock_seconds() - start;
    s->tokens += p->n;
    return STATUS_OK;
}

enum status decoder_forward(struct decoder_state *s, const struct decoder_output *out, const int32_t *ids, int64_t n) {
    assert(n >= 1 && !s->spent);
    assert(!out->nll == !out->targets);
    bool step = false;
    TRY(decoder_rows_settle(s));
    for (int64_t done = 0; done < n;) {
        struct decoder_pass p = decoder_make_pass(s, n - done);
        if (out->keys.data) p.keys = mat_rows(out->keys, done, p.n);
        if (out->key_states.data) p.key_states = mat_rows(out->key_states, done, p.n);
        p.key_layer = out->key_layer, p.states = out->states;
        enum status status = decoder_step(&step, s, out, &p, ids + done);
        if (status == STATUS_OK && !step) status = decoder_run_pass(s, out, &p, ids + done, done, n);
        if (status != STATUS_OK) {
            s->spent = true;
            return status;
        }
        done += p.n;
    }
    /* After a step, and with logits that stay on the device, it may still run work whose results are read later, so
     * there is no wait: a prompt of one text is computed while this process prepares the next one. */
    return step || out->logits_device ? device_fault(s->decoder->dev) : device_sync(s->decoder->dev);
}
