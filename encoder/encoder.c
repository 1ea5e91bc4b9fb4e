/* encoder.c -- encodes chunks with the bidirectional layers (model.md §3).
 *
 * On the CPU each thread computes its own batches through all layers (encoder_layers.c) with serial ops. So no thread
 * waits for another within a batch, and the activations stay in the caches of its core. */
#include "encoder/encoder.h"
#include "base/memory.h"
#include "encoder/encoder_internal.h"
#include "kernels/device/carve.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

/* Chunks of a batch, for one CPU thread and for a GPU. On a GPU a batch must take much longer than the time between two
 * batches (2048 x 64 rows take about 5 ms on an H100). */
enum { BATCH = 8 };

/* On the CPU rows are padded: at strides of a large power of two (2f floats are 8 KiB in a common model) the rows of a
 * block map to few sets of the L1 cache, which costs some percent. A GPU needs no padding. */
static struct mat encoder_allocate_rows(struct carve *c, const struct encoder *e, int64_t rows, int64_t cols) {
    int64_t stride = e->dev->shares_memory ? (cols + 15) / 16 * 16 + 16 : (cols + 7) / 8 * 8;
    void *data = carve_bytes(c, rows * stride, (size_t)dtype_bytes(e->type));
    return (struct mat){.data = data, .type = e->type, .rows = rows, .cols = cols, .stride = stride};
}

static void encoder_layout_workspace(struct encoder_workspace *w, const struct encoder *e, struct carve *c) {
    int64_t rows = e->batch * e->positions, d = e->config.hidden, f = e->config.ffn;
    w->ids_device = carve_bytes(c, rows + e->batch, sizeof *w->ids_device);
    w->x = encoder_allocate_rows(c, e, rows, d);
    w->norm = encoder_allocate_rows(c, e, rows, d);
    w->qkv = encoder_allocate_rows(c, e, rows, 3 * d);
    w->gate_up = encoder_allocate_rows(c, e, rows, 2 * f);
    w->landmark = encoder_allocate_rows(c, e, e->batch, d);
    w->landmark_norm = encoder_allocate_rows(c, e, e->batch, d);
    w->landmark_out = encoder_allocate_rows(c, e, e->batch, d);
}

static void encoder_layout_workspaces(void *of, struct carve *c) {
    struct encoder *e = of;
    for (int i = 0; i < e->threads; i++)
        encoder_layout_workspace(&e->workspaces[i], e, c);
}

static enum status encoder_create_workspaces(struct encoder *e) {
    size_t rows = (size_t)(e->batch * (e->positions + 1));
    TRY(memory_allocate_zero(&e->workspaces, (size_t)e->threads));
    TRY(carve_device(e->dev, &e->memory, &e->bytes, encoder_layout_workspaces, e));
    e->bytes += e->weights.bytes;
    if (!e->dev->shares_memory) {
        TRY(memory_allocate(&e->ids, rows * (size_t)e->threads));
        TRY(memory_allocate(&e->later.ids, (size_t)e->positions));
        if (e->batch > ENCODER_SEND_CHUNKS) TRY(device_allocate_host(e->dev, &e->sent, e->batch * e->positions));
    }
    for (int i = 0; i < e->threads; i++)
        e->workspaces[i].ids = e->ids ? e->ids + rows * (size_t)i : e->workspaces[i].ids_device;
    return STATUS_OK;
}

/* Creates row_begin, slot and weight, which are contiguous. row_begin is first, because it is aligned to 8 bytes. */
static enum status encoder_create_blocks(struct encoder *e) {
    size_t n = (size_t)e->batch, bytes = (n + 1) * sizeof(int64_t) + n * (sizeof(int32_t) + sizeof(float));
    unsigned char *memory;
    TRY(memory_allocate(&memory, bytes));
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

static enum status encoder_create_known(struct encoder *e) {
    const struct model_config *c = &e->config;
    const int64_t d = c->hidden, table = (int64_t)c->vocab_size * 2 * d, each = e->batch * d;
    if (c->encoder_layers != 1 || c->encoder_input != ENCODER_INPUT_TOKENS) return STATUS_OK;
    const size_t bytes = (size_t)((table + 2 * each) * dtype_bytes(e->type));
    TRY(device_allocate(e->dev, &e->known.memory, bytes));
    unsigned char *at = e->known.memory;
    e->known.keys_values = mat_dense(at, e->type, c->vocab_size, 2 * d);
    e->known.query = mat_dense(at + table * dtype_bytes(e->type), e->type, e->batch, d);
    e->known.residual = mat_dense(at + (table + each) * dtype_bytes(e->type), e->type, e->batch, d);
    e->bytes += bytes;
    return STATUS_OK;
}

static int64_t encoder_batch_size(const struct encoder *e, int max_chunks) {
    int64_t most = e->dev->shares_memory ? BATCH : ENCODER_BATCH_GPU;
    int64_t each = max_chunks > 0 ? (max_chunks + e->threads - 1) / e->threads : most;
    return each < most ? each : most;
}

enum status encoder_create(struct encoder **out, struct device *dev, const struct model_config *config,
                           const struct weights *weights, int max_chunks) {
    struct encoder *e;
    assert(!config->base_lm && config->encoder_layers > 0 && max_chunks >= 0);
    TRY(memory_allocate_zero(&e, 1));
    e->dev = dev;
    e->config = *config;
    e->type = weights->type;
    e->positions = model_config_positions(config);
    e->threads = dev->shares_memory ? threads_count(dev->threads) : 1;
    e->batch = encoder_batch_size(e, max_chunks);
    enum status s;
    TRY_GOTO(s, encoder_weights_create(&e->weights, dev, config, weights), out);
    TRY_GOTO(s, encoder_create_workspaces(e), out);
    TRY_GOTO(s, encoder_create_blocks(e), out);
    TRY_GOTO(s, encoder_create_known(e), out);
    *out = e;
out:
    if (s != STATUS_OK) encoder_free(e);
    return s;
}

void encoder_free(struct encoder *e) {
    if (!e) return;
    encoder_weights_free(&e->weights, e->dev);
    device_release(e->dev, e->memory);
    memory_free(e->workspaces);
    device_release(e->dev, e->block_memory);
    device_release(e->dev, e->known.memory);
    for (int i = 0; i <= ENCODER_REPLAY_CHUNKS; i++)
        device_replay_free(e->dev, e->recorded[i].replay);
    memory_free(e->later.ids);
    memory_free(e->ids);
    device_release_host(e->dev, e->sent);
    memory_free(e);
}

size_t encoder_bytes(const struct encoder *e) {
    return e->bytes;
}

enum dtype encoder_type(const struct encoder *e) {
    return e->type;
}

int64_t encoder_batch(const struct encoder *e) {
    return e->batch * e->threads;
}

/* The arguments of a recorded batch. The recording depends only on the number of chunks and on the pool. */
struct encoder_batch {
    const struct encoder_job *job;
    const struct encoder_workspace *w;
    int64_t first, chunks;
};

static void encoder_all_parts(void *context, struct device *dev) {
    const struct encoder_batch *b = context;
    for (int part = 0; part < encoder_parts(b->job->e); part++)
        encoder_part(b->job, dev, b->w, b->first, b->chunks, part);
}

static bool encoder_can_replay(const struct encoder_batch *b) {
    const struct encoder_output *out = b->job->out;
    return b->chunks <= ENCODER_REPLAY_CHUNKS && !b->job->e->dev->shares_memory && !b->job->hidden.data && out->slot &&
           out->keys.data && out->values.data && !out->landmarks && !out->states;
}

static void encoder_encode_all_rows(struct device *dev, struct encoder_batch *b) {
    if (!encoder_can_replay(b)) {
        encoder_all_parts(b, dev);
        return;
    }
    const struct encoder_output *out = b->job->out;
    struct encoder_recorded *r = &b->job->e->recorded[b->chunks];
    if (r->keys != out->keys.data || r->values != out->values.data) {
        device_replay_free(dev, r->replay);
        *r = (struct encoder_recorded){.keys = out->keys.data, .values = out->values.data};
    }
    device_replay_run(dev, &r->replay, encoder_all_parts, b);
}

static bool encoder_wants_rows(const struct encoder_output *out) {
    return out->states || out->keys.data || out->values.data;
}

static void encoder_encode_batch(const struct encoder_job *job, struct device *dev, const struct encoder_workspace *w,
                                 int64_t begin, int64_t end) {
    encoder_stage(job, dev, w, begin, end - begin);
    if (encoder_wants_rows(job->out)) {
        encoder_encode_all_rows(dev,
                                &(struct encoder_batch){.job = job, .w = w, .first = begin, .chunks = end - begin});
        return;
    }
    encoder_landmarks(job, dev, w, begin, end - begin);
}

/* A range of threads_for may be longer than its grain: with one thread it is the whole range. */
static void encoder_encode_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct encoder_job *job = context;
    const struct encoder *e = job->e;
    for (int64_t at = begin; at < end; at += e->batch)
        encoder_encode_batch(job, device_worker(e->dev, worker), &e->workspaces[worker], at,
                             at + e->batch < end ? at + e->batch : end);
}

/* Makes the table of ids once so many landmarks were encoded that it is no waste. */
static void encoder_count_landmarks(struct encoder *e, int64_t n) {
    struct encoder_known *known = &e->known;
    if (!known->memory || known->made) return;
    known->chunks += n;
    if (known->chunks * e->positions >= e->config.vocab_size) encoder_known_make(e);
}

static void encoder_run_job(const struct encoder_job *job, int64_t n) {
    struct encoder *e = job->e;
    if (!job->out->landmarks && !encoder_wants_rows(job->out)) return;
    while (e->later.next > 0) /* a chunk that was begun uses the workspace */
        encoder_advance(e);
    if (!encoder_wants_rows(job->out)) encoder_count_landmarks(e, n);
    if (!e->dev->shares_memory) {
        encoder_encode_range((void *)job, 0, n, 0);
        return;
    }
    /* Few chunks are spread over all threads instead of batched. A remainder of at most half a chunk per thread is
     * computed by all threads together, op by op. */
    int64_t rest = n % e->threads, even = 2 * rest <= e->threads ? n - rest : n;
    int64_t grain = (even + e->threads - 1) / e->threads;
    if (grain > e->batch) grain = e->batch;
    if (even > 0) threads_for(e->dev->threads, even, grain, encoder_encode_range, (void *)job);
    for (int64_t at = even; at < n; at += e->batch)
        encoder_encode_batch(job, e->dev, &e->workspaces[0], at, at + e->batch < n ? at + e->batch : n);
}

void encoder_encode(struct encoder *e, const struct encoder_output *out, const int32_t *ids, int64_t n) {
    assert(e->config.encoder_input == ENCODER_INPUT_TOKENS);
    encoder_run_job(&(struct encoder_job){.e = e, .out = out, .ids = ids}, n);
}

void encoder_encode_hidden(struct encoder *e, const struct encoder_output *out, struct mat hidden, int64_t n) {
    assert(e->config.encoder_input == ENCODER_INPUT_HIDDEN && hidden.data && hidden.type == e->type);
    encoder_run_job(&(struct encoder_job){.e = e, .out = out, .hidden = hidden}, n);
}

void encoder_begin(struct encoder *e, const struct encoder_output *out, const int32_t *ids, struct mat hidden) {
    struct encoder_later *l = &e->later;
    struct encoder_job now = {.e = e, .out = out, .ids = ids, .hidden = hidden};
    encoder_finish(e);
    if (e->dev->shares_memory) {
        encoder_run_job(&now, 1);
        return;
    }
    l->out = *out;
    l->job = now;
    l->job.out = &l->out;
    l->parts = encoder_parts(e);
    if (out->slot) {
        l->ids[e->config.chunk] = out->slot[0];
        l->out.slot = &l->ids[e->config.chunk];
    }
    if (hidden.data) {
        encoder_advance(e); /* encoder_advance copies the rows now, because the caller may change them */
        return;
    }
    memcpy(l->ids, ids, (size_t)e->config.chunk * sizeof *l->ids);
    l->job.ids = l->ids;
}

bool encoder_advance(struct encoder *e) {
    struct encoder_later *l = &e->later;
    if (l->next == l->parts) return false;
    if (l->next == 0) encoder_stage(&l->job, e->dev, e->workspaces, 0, 1);
    encoder_part(&l->job, e->dev, e->workspaces, 0, 1, l->next);
    if (++l->next == l->parts) l->next = l->parts = 0;
    return true;
}

void encoder_finish(struct encoder *e) {
    while (encoder_advance(e))
        ;
}
