/* decoder_rows.c -- batches of texts on a GPU: an id of each of them in one pass of kernels/decode_rows/decode_rows.h.
 *
 * An id that completes a chunk is in the batch. Its landmark follows the pass, text by text, as in decoder_step.c. The
 * device computes it while the caller uses the logits. Retrieval needs the landmark, so it waits until the text's next
 * call (decoder_rows_settle), which is the first that reads what was retrieved, or until decoder_ahead_settle. */
#include "base/memory.h"
#include "decoder/batch/decoder_ahead.h"
#include "decoder/batch/decoder_batch.h"
#include "decoder/decoder_pass_internal.h"
#include <assert.h>

_Static_assert((int)DECODER_BATCH_MAX <= (int)DECODE_ROWS_MAX, "one pass takes a batch");

struct decoder_rows {
    struct decoder *decoder;
    struct decoder_pass passes[DECODER_BATCH_MAX];
    struct decode_step_fusion fusions[DECODER_BATCH_MAX][MODEL_GROUPS_MAX];
    struct decode_row rows[DECODER_BATCH_MAX];
    float *logits_device;           /* logits that the device cannot write to the caller's memory; NULL: none yet */
    bool copied[DECODER_BATCH_MAX]; /* from logits_device */
};

bool decoder_rows_takes(const struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    if (!d->rows || s->spent || s->watch.rows) return false;
    if (!model_config_landmarks(&d->config) || s->tokens % d->config.chunk + 1 < d->config.chunk) return true;
    /* The landmark needs the step of one position. */
    for (int g = 0; g < d->config.groups; g++)
        if (s->current[g].k > DECODE_STEP_SLOTS_MAX) return false;
    return s->step != NULL;
}

/* Kept between batches: it is too large for the stack. */
static enum status decoder_rows_reserve(struct decoder_rows **out, struct decoder *d) {
    if (!d->rows_batch) TRY(memory_allocate_zero(&d->rows_batch, 1));
    d->rows_batch->decoder = d;
    *out = d->rows_batch;
    return STATUS_OK;
}

void decoder_rows_free(struct decoder *d) {
    if (d->rows_batch) device_release(d->dev, d->rows_batch->logits_device);
    memory_free(d->rows_batch);
    d->rows_batch = NULL;
}

static void decoder_rows_chunks(struct decode_row *row, const struct decode_step_fusion *fusions, int groups) {
    for (int g = 0; g < groups; g++) {
        const struct gca_pool *pool = &fusions[g].pool;
        const struct gca_blocks *blocks = &fusions[g].blocks;
        if (blocks->blocks == 0) continue;
        assert(blocks->blocks == 1 && pool->keys.stride == pool->values.stride);
        row->chunks[g] = (struct decode_row_chunks){.keys = pool->keys.data,
                                                    .values = pool->values.data,
                                                    .slot = blocks->slot,
                                                    .weight = blocks->weight,
                                                    .stride = pool->keys.stride,
                                                    .k = blocks->k,
                                                    .slot_rows = pool->slot_rows,
                                                    .live_rows = pool->live_rows,
                                                    .off_by_one = pool->off_by_one};
    }
}

/* All that can fail before the pass. */
static enum status decoder_rows_fill(struct decoder_rows *b, struct decoder_state *s, int i, struct decode_step_id id) {
    const struct decoder *d = b->decoder;
    const int32_t pad = d->config.base_lm ? 0 : d->config.pad_id;
    const struct decoder_ring *rings = s->rings;
    b->passes[i] = decoder_make_pass(s, 1);
    for (int g = 0; g < MODEL_GROUPS_MAX; g++)
        b->fusions[i][g] = (struct decode_step_fusion){0};
    TRY(decoder_step_fusions(b->fusions[i], s, &b->passes[i]));
    b->rows[i] = (struct decode_row){.position = b->passes[i].first,
                                     .ring = rings[0].both.data,
                                     .ring_rows = (int32_t)rings[0].both.rows,
                                     .id = id.id < 0 ? pad : id.id,
                                     .picked = id.picked};
    if (model_config_layers(&d->config) > 1)
        b->rows[i].ring_step = (unsigned char *)rings[1].both.data - (unsigned char *)rings[0].both.data;
    if (s->retriever && s->chunk_rows.data) b->rows[i].lower = mat_rows(s->chunk_rows, b->passes[i].in_chunk, 1).data;
    decoder_rows_chunks(&b->rows[i], b->fusions[i], d->config.groups);
    return STATUS_OK;
}

/* Where the device writes the logits: the caller's memory if it can. */
static enum status decoder_rows_logits(struct decoder_rows *b, int i, float *logits) {
    struct decoder *d = b->decoder;
    const size_t vocab = (size_t)d->config.vocab_size;
    b->rows[i].logits = device_reach(d->dev, logits);
    b->copied[i] = !b->rows[i].logits;
    if (!b->copied[i]) return STATUS_OK;
    if (!b->logits_device) TRY(device_allocate(d->dev, &b->logits_device, DECODER_BATCH_MAX * vocab));
    b->rows[i].logits = b->logits_device + (size_t)i * vocab;
    return STATUS_OK;
}

enum status decoder_rows_settle(struct decoder_state *s) {
    if (!s->owes) return STATUS_OK;
    const struct decoder_pass last = {.completed = 1, .first_chunk = s->tokens / s->decoder->config.chunk - 1};
    enum status status = decoder_step_retrieve(s, &last);
    s->owes = false;
    s->spent = status != STATUS_OK;
    return status;
}

enum status decoder_ahead_settle(struct decoder_state *s) {
    return decoder_rows_settle(s);
}

/* What follows a text's id: its chunk's landmark, and work for the retriever that the device does meanwhile. */
static void decoder_rows_finish(struct decoder_rows *b, struct decoder_state *s, int i, int32_t id) {
    const struct decoder_pass *p = &b->passes[i];
    if (s->retriever) s->chunk_ids[p->in_chunk] = id;
    if (p->completed > 0) {
        decoder_step_landmark(s, p, b->fusions[i]);
        s->owes = s->retriever != NULL;
    }
    if (s->retriever && s->retriever->idle) s->retriever->idle(s->retriever);
    s->tokens++;
}

/* The texts whose retrieval fails now are left out of the pass; *status: of the first of them. All that can fail for
 * lack of memory comes after it, and changes nothing. */
static enum status decoder_rows_begin(struct decoder_rows *b, const struct decoder_ahead_batch *batch, bool on_device,
                                      enum status *status) {
    *status = STATUS_OK;
    for (int i = 0; i < batch->n; i++) {
        enum status settled = decoder_rows_settle(batch->states[i]);
        if (*status == STATUS_OK) *status = settled;
    }
    for (int i = 0; i < batch->n; i++) {
        b->copied[i] = false;
        b->rows[i] = (struct decode_row){.position = -1};
        if (batch->states[i]->spent) continue;
        TRY(decoder_rows_fill(b, batch->states[i], i, batch->ids[i]));
        if (on_device)
            b->rows[i].logits = batch->logits[i];
        else
            TRY(decoder_rows_logits(b, i, batch->logits[i]));
    }
    return STATUS_OK;
}

/* Queues the pass and what follows it. `on_device`: logits are memory of the device. */
static enum status decoder_rows_issue(struct decoder_rows *b, const struct decoder_ahead_batch *batch, bool on_device,
                                      enum status *status) {
    struct decoder *d = b->decoder;
    TRY(decoder_rows_begin(b, batch, on_device, status));
    decode_rows_run(d->rows, b->rows, batch->n);
    if (batch->then) batch->then(batch->context, d->dev);
    if (!on_device) device_fetch(d->dev, b->rows, b->rows, sizeof b->rows); /* copies nothing: marks the pass' end */
    for (int i = 0; i < batch->n; i++)
        if (!batch->states[i]->spent) decoder_rows_finish(b, batch->states[i], i, batch->ids[i].id);
    return STATUS_OK;
}

static void decoder_rows_times(struct decoder_state *const *states, int n, double layers, double head) {
    for (int i = 0; i < n; i++) {
        states[i]->times.layers += layers / n;
        states[i]->times.head += head / n;
    }
}

enum status decoder_ahead_forward(const struct decoder_ahead_batch *batch) {
    struct decoder *d = batch->states[0]->decoder;
    struct decoder_rows *b = NULL;
    enum status status;
    const double start = clock_seconds();
    TRY(decoder_rows_reserve(&b, d));
    TRY(decoder_rows_issue(b, batch, true, &status));
    decoder_rows_times(batch->states, batch->n, clock_seconds() - start, 0);
    return status == STATUS_OK ? device_fault(d->dev) : status;
}

enum status decoder_rows_forward(struct decoder_state *const *states, float *const *logits, const int32_t *ids, int n) {
    struct decoder *d = states[0]->decoder;
    struct decoder_rows *b = NULL;
    struct decode_step_id known[DECODER_BATCH_MAX];
    const struct decoder_ahead_batch batch = {.states = states, .logits = logits, .ids = known, .n = n};
    const size_t bytes = (size_t)d->config.vocab_size * sizeof **logits;
    enum status status;
    const double start = clock_seconds();
    for (int i = 0; i < n; i++)
        known[i] = (struct decode_step_id){.id = ids[i]};
    TRY(decoder_rows_reserve(&b, d));
    TRY(decoder_rows_issue(b, &batch, false, &status));
    const double issued = clock_seconds();
    device_fetch_wait(d->dev);
    for (int i = 0; i < n; i++)
        if (b->copied[i]) device_download(d->dev, logits[i], b->rows[i].logits, bytes);
    decoder_rows_times(states, n, issued - start, clock_seconds() - issued);
    return status == STATUS_OK ? device_fault(d->dev) : status;
}
