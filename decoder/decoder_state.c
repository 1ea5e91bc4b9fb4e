/* decoder_state.c -- what one running text carries from call to call.
 *
 * Memory is fixed at creation: rings of the window and one pass, and the unfinished chunk. Only the neighbours in
 * force are sized at the first retrieval, since the retriever alone knows k. */
#include "base/memory.h"
#include "decoder/decoder_internal.h"
#include "kernels/device/carve.h"
#include <assert.h>

/* All rings in one piece: large enough for large pages, as each token reads a window of every one. */
static void lay_rings(void *of, struct carve *c) {
    struct decoder_state *s = of;
    const struct decoder *d = s->decoder;
    int64_t rows = d->config.window + d->max_positions;
    if (!d->dev->shares_memory) rows = (rows + DECODER_TILE - 1) / DECODER_TILE * DECODER_TILE;
    for (int i = 0; i < model_config_layers(&d->config); i++)
        s->rings[i].both = carve_mat(c, d->type, rows, 2 * (int64_t)d->config.hidden);
}

static enum status create_rings(struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    void *memory;
    size_t bytes;
    TRY(memory_allocate_zero_bytes(&memory, (size_t)model_config_layers(&d->config), sizeof *s->rings));
    s->rings = memory;
    TRY(carve_device(d->dev, &s->ring_memory, &bytes, lay_rings, s));
    for (int i = 0; i < model_config_layers(&d->config); i++) {
        struct decoder_ring *r = &s->rings[i];
        r->keys = mat_cols(r->both, 0, d->config.hidden);
        r->values = mat_cols(r->both, d->config.hidden, d->config.hidden);
    }
    return STATUS_OK;
}

static enum status create_parts(struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    void *memory;
    TRY(create_rings(s));
    TRY(decoder_step_create(s));
    if (!d->dev->shares_memory) {
        TRY(memory_allocate_bytes(&memory, (size_t)(d->max_positions * d->config.hidden), sizeof *s->seen));
        s->seen = memory;
    }
    if (d->config.base_lm) return STATUS_OK;
    TRY(memory_allocate_bytes(&memory, (size_t)d->config.chunk, sizeof *s->chunk_ids));
    s->chunk_ids = memory;
    if (d->config.encoder_input == ENCODER_INPUT_HIDDEN)
        TRY(decoder_create_mat(s->decoder, &s->chunk_rows, d->type, d->positions, d->config.hidden));
    return STATUS_OK;
}

enum status decoder_state_create(struct decoder_state **out, struct decoder *d, struct retriever *retriever) {
    assert(!retriever || (!d->config.base_lm && retriever->max_queries > 0));
    void *memory;
    TRY(memory_allocate_zero_bytes(&memory, 1, sizeof(struct decoder_state)));
    struct decoder_state *s = memory;
    s->decoder = d;
    s->retriever = retriever;
    enum status status = create_parts(s);
    if (status != STATUS_OK) {
        decoder_state_free(s);
        return status;
    }
    *out = s;
    return STATUS_OK;
}

void decoder_state_free(struct decoder_state *s) {
    if (!s) return;
    struct device *dev = s->decoder->dev;
    decode_step_free(s->step);
    device_release(dev, s->inputs.data);
    device_release(dev, s->ring_memory);
    memory_free(s->rings);
    memory_free(s->chunk_ids);
    memory_free(s->seen);
    device_release(dev, s->chunk_rows.data);
    for (int g = 0; g < MODEL_GROUPS_MAX; g++) {
        memory_free(s->force[g].slot);
        memory_free(s->force[g].weight);
        decoder_blocks_free(&s->blocks[g], dev);
    }
    memory_free(s);
}

int64_t decoder_state_tokens(const struct decoder_state *s) {
    return s->tokens;
}

void decoder_state_watch(struct decoder_state *s, const struct decoder_watch *watch) {
    s->watch = watch ? *watch : (struct decoder_watch){0};
}

struct decoder_times decoder_state_times(struct decoder_state *s, bool reset) {
    struct decoder_times times = s->times;
    if (reset) s->times = (struct decoder_times){0};
    return times;
}
