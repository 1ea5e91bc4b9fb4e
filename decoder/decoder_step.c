/* decoder_step.c -- decodes single ids: one kernel computes all layers of a position
 * (kernels/decode_step/decode_step.h), if the device has such a kernel.
 *
 * Only the next chunk reads what a landmark retrieves. So the chunk's last id and its landmark are computed first, as
 * two positions, and retrieval follows. Losses, keys that the decoder projects, calls of several ids and a watch need
 * a pass through the ops (decoder.c).
 *
 * At a chunk's end, these steps overlap. The logits are copied during the landmark's step. The chunk itself is encoded
 * in the retriever's idle time: that needs only its ids, and no search finds the chunk before the next one ends
 * (model.md §4.3). Other steps cannot overlap. The search needs the query, which the landmark's lower layers compute. K
 * and V of missing chunks need the search. The next id's upper layers need K and V. Its lower layers do not, but one
 * kernel computes all layers. */
#include "base/memory.h"
#include "decoder/batch/decoder_ahead.h"
#include "decoder/decoder_pass_internal.h"
#include <assert.h>
#include <string.h>

_Static_assert((int)DECODE_STEP_GROUPS_MAX == MODEL_GROUPS_MAX, "the kernel takes every legal model");

static void decoder_step_layers(struct decode_step_layer *out, const struct decoder *d,
                                const struct block_weights *layers) {
    int n = d->config.lower_layers, base_layers = d->config.base_lm ? model_config_layers(&d->config) : n;
    for (int i = 0; i < base_layers; i++)
        out[i].group = -1;
    for (int g = 0; g < d->config.groups; g++)
        for (int i = 0; i < d->config.group_layers[g]; i++)
            out[n++].group = g;
    for (int i = 0; i < model_config_layers(&d->config); i++) {
        const struct block_weights *w = &layers[i];
        out[i] = (struct decode_step_layer){.input_norm = w->input_norm,
                                            .qkv = w->qkv,
                                            .o = w->o,
                                            .gca_norm = w->gca_norm,
                                            .gca_q = w->gca_q,
                                            .gca_o = w->gca_o,
                                            .post_norm = w->post_norm,
                                            .gate_up = w->gate_up,
                                            .down = w->down,
                                            .group = out[i].group};
    }
}

static enum status decoder_step_refused(void) {
    return fail(
        STATUS_UNSUPPORTED,
        "i8: on a GPU 8-bit weights need one of compute capability 9.0 or more (Hopper), a model without a "
        "recurrent state or Landmark Attention, attention heads of 64 and at most 1,024 columns: use --dtype bf16");
}

enum status decoder_step_weights(struct decoder *d) {
    struct decode_step_layer *layers;
    int n = model_config_layers(&d->config);
    /* the kernel supports neither */
    if (d->config.recurrent_layer > 0 || d->config.landmark_block > 0)
        return d->weights.step ? decoder_step_refused() : STATUS_OK;
    const struct decoder_weights *w = &d->weights;
    const bool i8 = w->step != NULL;
    TRY(memory_allocate_zero(&layers, (size_t)n));
    decoder_step_layers(layers, d, i8 ? w->step : w->layers);
    struct decode_step_config config = {.layers = layers,
                                        .n_layers = n,
                                        .embed = d->weights.embed,
                                        .final_norm = d->weights.final_norm,
                                        .heads = d->config.heads,
                                        .window = d->config.window,
                                        .eps = d->config.rms_eps,
                                        .head = w->step_head};
    enum status status = decode_step_weights_create(&d->step_weights, d->dev, &config);
    if (status == STATUS_OK && i8 && !d->step_weights) status = decoder_step_refused();
    if (i8) { /* several texts read the numbers of 8-bit weights in bf16 */
        decoder_step_layers(layers, d, w->narrow);
        config.head = w->narrow_embed;
    }
    if (status == STATUS_OK) status = decode_rows_create(&d->rows, d->dev, &config);
    memory_free(layers);
    return status;
}

enum status decoder_step_create(struct decoder_state *s) {
    struct decoder *d = s->decoder;
    struct mat *rings;
    int n = model_config_layers(&d->config);
    if (!d->step_weights) return STATUS_OK;
    TRY(memory_allocate(&rings, (size_t)n));
    for (int i = 0; i < n; i++)
        rings[i] = s->rings[i].both;
    enum status status = decode_step_create(&s->step, d->step_weights, rings);
    memory_free(rings);
    if (status == STATUS_OK && d->config.groups > 0)
        status = decoder_create_mat(d, &s->inputs, d->type, d->config.groups, d->config.hidden);
    return status;
}

/* Whether the decoder would have to project the key state. */
static bool decoder_step_projects(const struct decoder_state *s, const struct decoder_output *out) {
    return out->keys.data && !out->states && decoder_projection(s->decoder, out->key_layer).data;
}

static bool decoder_step_can_run(const struct decoder_state *s, const struct decoder_output *out,
                                 const struct decoder_pass *p) {
    if (!s->step || p->n != 1 || out->nll || decoder_step_projects(s, out) || s->watch.rows) return false;
    for (int g = 0; g < s->decoder->config.groups; g++)
        if (s->current[g].k > DECODE_STEP_SLOTS_MAX) return false;
    return true;
}

/* For the decoder variant: its encoder reads every row's lower output. */
static void decoder_step_keep_hidden(struct decoder_state *s, int64_t row) {
    if (s->retriever && s->chunk_rows.data)
        device_copy_rows(s->decoder->dev, mat_rows(s->chunk_rows, row, 1), mat_rows(s->inputs, 0, 1));
}

struct decode_step_result decoder_state_step(const struct decoder_state *s) {
    return s->stepped ? decode_step_result(s->step) : (struct decode_step_result){0};
}

void decoder_step_landmark(struct decoder_state *s, const struct decoder_pass *p,
                           const struct decode_step_fusion *fusions) {
    struct decoder *d = s->decoder;
    double start = clock_seconds();
    const struct decode_step_output out = {.inputs = s->inputs.data};
    decode_step_run(s->step, &out, d->config.landmark_id, p->first + 1, fusions);
    s->times.layers += clock_seconds() - start;
    decoder_step_keep_hidden(s, d->config.chunk);
}

enum status decoder_step_retrieve(struct decoder_state *s, const struct decoder_pass *p) {
    struct decoder *d = s->decoder;
    if (!s->retriever) return STATUS_OK;
    double start = clock_seconds();
    TRY(s->retriever->append(s->retriever, p->first_chunk, s->chunk_ids, s->chunk_rows, 1));
    s->times.retrieve += clock_seconds() - start;
    for (int g = 0; g < d->config.groups; g++) {
        struct neighbours found;
        TRY(decoder_retrieve(s, &found, g, mat_rows(s->inputs, g, 1), p));
        TRY(decoder_current_set(s, g, &found));
    }
    return STATUS_OK;
}

enum status decoder_step_fusions(struct decode_step_fusion *out, struct decoder_state *s,
                                 const struct decoder_pass *p) {
    const struct neighbours none = {0};
    for (int g = 0; s->retriever && g < s->decoder->config.groups; g++) {
        struct decoder_fusion f;
        TRY(decoder_blocks_build(&f, s, g, p, &none));
        out[g] = (struct decode_step_fusion){.pool = f.pool, .blocks = f.blocks};
    }
    return STATUS_OK;
}

/* The pick, if the step makes it. */
static const struct pick_row *decoder_step_pick(const struct decoder_output *out) {
    return out->pick && !out->keys.data && decode_step_picks(out->pick) ? out->pick : NULL;
}

enum status decoder_step(bool *done, struct decoder_state *s, const struct decoder_output *out,
                         const struct decoder_pass *p, const int32_t *ids) {
    struct decoder *d = s->decoder;
    *done = decoder_step_can_run(s, out, p);
    s->stepped = *done && out->keys.data && (out->logits || out->logits_device);
    if (!*done) return STATUS_OK;
    double start = clock_seconds();
    struct decode_step_fusion fusions[MODEL_GROUPS_MAX] = {0};
    TRY(decoder_step_fusions(fusions, s, p));
    int32_t pad = d->config.base_lm ? 0 : d->config.pad_id;
    /* If the kernel can write to the caller's memory, no copy is needed. */
    float *direct = out->logits ? device_reach(d->dev, out->logits) : NULL;
    float *logits = direct || !out->logits ? direct : d->scratch.logits_device;
    const struct decode_step_output made = {.logits = logits ? logits : out->logits_device,
                                            .awaited = direct != NULL,
                                            .inputs = s->inputs.data,
                                            .keys = p->keys.data,
                                            .key_layer = p->key_layer,
                                            .pick = decoder_step_pick(out)};
    assert(!logits || !out->logits_device);
    decode_step_run(s->step, &made, ids[0] < 0 ? pad : ids[0], p->first, fusions);
    if (!made.pick) decoder_queue_ops(d, out);
    /* The copy of the logits overlaps with the landmark's step and with the retriever's idle work. */
    if (logits && !direct) device_fetch(d->dev, out->logits, logits, (size_t)d->config.vocab_size * sizeof *logits);
    if (s->retriever) s->chunk_ids[p->in_chunk] = ids[0];
    decoder_step_keep_hidden(s, p->in_chunk);
    s->times.layers += clock_seconds() - start;
    if (p->completed > 0) {
        decoder_step_landmark(s, p, fusions);
        TRY(decoder_step_retrieve(s, p));
    }
    if (s->retriever && s->retriever->idle) s->retriever->idle(s->retriever);
    start = clock_seconds();
    if (direct)
        decode_step_wait(s->step);
    else if (logits)
        device_fetch_wait(d->dev);
    s->times.head += clock_seconds() - start;
    s->tokens += p->n;
    return STATUS_OK;
}

/* ---- an id that this process does not know ---- */

bool decoder_ahead_takes(const struct decoder_state *s, bool alone) {
    const struct decoder *d = s->decoder;
    if (s->spent || s->owes || s->watch.rows) return false;
    if (!alone) return decoder_rows_takes(s);
    if (!s->step) return false;
    for (int g = 0; g < d->config.groups; g++)
        if (s->current[g].k > DECODE_STEP_SLOTS_MAX) return false;
    return !model_config_landmarks(&d->config) || s->tokens % d->config.chunk + 1 < d->config.chunk;
}

enum status decoder_ahead_step(struct decoder_state *s, const struct decoder_output *out, const int32_t *id) {
    const struct decoder_pass p = decoder_make_pass(s, 1);
    const struct decode_step_output made = {.logits = out->logits_device,
                                            .inputs = s->inputs.data,
                                            .keys = out->keys.data,
                                            .key_layer = out->key_layer,
                                            .pick = decoder_step_pick(out)};
    struct decode_step_fusion fusions[MODEL_GROUPS_MAX] = {0};
    const double start = clock_seconds();
    assert(decoder_ahead_takes(s, true) && out->logits_device && !decoder_step_projects(s, out));
    TRY(decoder_step_fusions(fusions, s, &p));
    decode_step_run_id(s->step, &made, (struct decode_step_id){.picked = id}, p.first, fusions);
    s->stepped = out->keys.data != NULL;
    if (!made.pick) decoder_queue_ops(s->decoder, out);
    decoder_step_keep_hidden(s, p.in_chunk);
    s->tokens++;
    s->times.layers += clock_seconds() - start;
    if (s->retriever && s->retriever->idle) s->retriever->idle(s->retriever);
    return device_fault(s->decoder->dev);
}

void decoder_ahead_known(struct decoder_state *s, int32_t id) {
    if (s->retriever) s->chunk_ids[(s->tokens - 1) % s->decoder->config.chunk] = id;
}

/* Keys and values of the position, and of a landmark after it, are overwritten. Nothing was retrieved for it yet. */
void decoder_ahead_undo(struct decoder_state *s) {
    s->tokens--;
    s->owes = false;
}
