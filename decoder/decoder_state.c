/* decoder_state.c -- the state of one running text between calls.
 *
 * Most memory is allocated at creation: rings for the window and one pass, and the unfinished chunk. The current
 * neighbours are allocated at the first retrieval, whose result has k. Rings that keep the whole text (Landmark
 * Attention) grow by doubling. */
#include "base/half.h"
#include "base/memory.h"
#include "decoder/decoder_pass_internal.h"
#include "kernels/device/carve.h"
#include <assert.h>
#include <string.h>

/* Allocates all rings at once, in large pages: each token reads a window of every ring. On a CPU a row of the memory
 * has a position of every ring: the system clears a page when it is first written, so a short text costs few pages.
 * Kernels that decode one id take dense rings (kernels/decode_step, kernels/decode_rows). */
static void decoder_state_layout_rings(void *of, struct carve *c) {
    struct decoder_state *s = of;
    const struct decoder *d = s->decoder;
    const int64_t layers = model_config_layers(&d->config), cols = 2 * (int64_t)d->config.hidden;
    if (d->dev->shares_memory && !d->step_weights && !d->rows) {
        const struct mat all = carve_mat(c, d->ring_type, s->ring_rows, layers * cols);
        for (int i = 0; i < layers && all.data; i++)
            s->rings[i].both = mat_cols(all, i * cols, cols);
        return;
    }
    for (int i = 0; i < layers; i++)
        s->rings[i].both = carve_mat(c, d->ring_type, s->ring_rows, cols);
}

static enum status decoder_state_create_rings(struct decoder_state *s, int64_t rows) {
    const struct decoder *d = s->decoder;
    size_t bytes;
    s->ring_rows = d->dev->shares_memory ? rows : (rows + DECODER_TILE - 1) / DECODER_TILE * DECODER_TILE;
    TRY(memory_allocate_zero(&s->rings, (size_t)model_config_layers(&d->config)));
    TRY(carve_device(d->dev, &s->ring_memory, &bytes, decoder_state_layout_rings, s));
    for (int i = 0; i < model_config_layers(&d->config); i++) {
        struct decoder_ring *r = &s->rings[i];
        r->keys = mat_cols(r->both, 0, d->config.hidden);
        r->values = mat_cols(r->both, d->config.hidden, d->config.hidden);
    }
    return STATUS_OK;
}

enum status decoder_state_reserve(struct decoder_state *s, int64_t positions) {
    const struct decoder *d = s->decoder;
    if (d->config.landmark_block == 0 || positions <= s->ring_rows) return STATUS_OK;
    struct decoder_ring *rings = s->rings;
    void *memory = s->ring_memory;
    int64_t rows = s->ring_rows;
    s->rings = NULL, s->ring_memory = NULL;
    enum status status = decoder_state_create_rings(s, positions > 2 * rows ? positions : 2 * rows);
    for (int i = 0; i < model_config_layers(&d->config) && status == STATUS_OK; i++)
        device_copy_rows(d->dev, mat_rows(s->rings[i].both, 0, rows), rings[i].both);
    memory_free(rings); /* after a failure here the state cannot be used */
    device_release(d->dev, memory);
    return status;
}

static enum status decoder_state_create_parts(struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    TRY(decoder_state_create_rings(s, d->max_positions + (d->config.landmark_block > 0 ? 0 : d->config.window)));
    TRY(decoder_step_create(s));
    if (!d->dev->shares_memory) {
        TRY(memory_allocate(&s->watched, (size_t)(d->max_positions * d->config.hidden)));
    }
    if (d->config.recurrent_layer > 0)
        TRY(recurrent_state_create(&s->recurrent, d->dev, &d->config, &d->weights.recurrent));
    if (d->config.base_lm) return STATUS_OK;
    TRY(memory_allocate(&s->chunk_ids, (size_t)d->config.chunk));
    TRY(memory_allocate(&s->marked_ids, (size_t)d->config.chunk));
    if (d->config.encoder_input == ENCODER_INPUT_HIDDEN)
        TRY(decoder_create_mat(s->decoder, &s->chunk_rows, d->type, d->positions, d->config.hidden));
    return STATUS_OK;
}

enum status decoder_state_create(struct decoder_state **out, struct decoder *d, struct retriever *retriever) {
    assert(!retriever || (!d->config.base_lm && retriever->max_queries > 0));
    struct decoder_state *s;
    TRY(memory_allocate_zero(&s, 1));
    s->decoder = d;
    s->retriever = retriever;
    s->marked = -1;
    enum status status = decoder_state_create_parts(s);
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
    recurrent_state_free(&s->recurrent, dev);
    device_release(dev, s->inputs.data);
    device_release(dev, s->ring_memory);
    memory_free(s->rings);
    memory_free(s->chunk_ids);
    memory_free(s->marked_ids);
    memory_free(s->watched);
    device_release(dev, s->chunk_rows.data);
    for (int g = 0; g < MODEL_GROUPS_MAX; g++) {
        memory_free(s->current[g].slot);
        memory_free(s->current[g].weight);
        decoder_blocks_free(&s->blocks[g], dev);
    }
    memory_free(s);
}

/* A GPU's attention multiplies rows of the ring that no position has yet by 0, so they must be finite. */
static void decoder_state_clear(struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    if (d->dev->shares_memory) return;
    for (int i = 0; i < model_config_layers(&d->config); i++)
        device_clear(d->dev, s->rings[i].both.data, mat_bytes(s->rings[i].both));
}

enum status decoder_state_renew(struct decoder_state **out, struct decoder *d, struct retriever *retriever) {
    struct decoder_state *s = *out;
    /* these two have memory that grows with the text, or that a text begins with */
    if (!s || d->config.recurrent_layer > 0 || d->config.landmark_block > 0) {
        decoder_state_free(s);
        *out = NULL;
        return decoder_state_create(out, d, retriever);
    }
    assert(s->decoder == d && (!retriever || (!d->config.base_lm && retriever->max_queries > 0)));
    s->retriever = retriever;
    s->watch = (struct decoder_watch){0};
    s->times = (struct decoder_times){0};
    s->tokens = 0;
    s->marked = -1;
    s->spent = s->owes = s->stepped = false;
    for (int g = 0; g < MODEL_GROUPS_MAX; g++) {
        s->current[g].k = 0;
        s->blocks[g].built_for = 0;
    }
    decoder_state_clear(s);
    return STATUS_OK;
}

int64_t decoder_state_tokens(const struct decoder_state *s) {
    return s->tokens;
}

bool decoder_state_mark(struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    const struct model_config *c = &d->config;
    s->marked = -1;
    if (!d->dev->shares_memory || s->retriever || s->spent || s->chunk_rows.data || c->recurrent_layer > 0 ||
        c->landmark_block > 0)
        return false;
    s->marked = s->tokens;
    if (s->chunk_ids) memcpy(s->marked_ids, s->chunk_ids, (size_t)c->chunk * sizeof *s->chunk_ids);
    return true;
}

/* The ring's row of position p is also that of position p + ring_rows. */
bool decoder_state_rewind(struct decoder_state *s) {
    const struct decoder *d = s->decoder;
    if (s->marked < 0 || s->spent) return false;
    const int64_t end = decoder_make_pass(s, 1).first, tokens = s->tokens;
    s->tokens = s->marked;
    if (end - decoder_make_pass(s, 1).first > s->ring_rows - d->config.window) {
        s->tokens = tokens;
        return false;
    }
    s->stepped = false;
    if (s->chunk_ids) memcpy(s->chunk_ids, s->marked_ids, (size_t)d->config.chunk * sizeof *s->chunk_ids);
    return true;
}

void decoder_state_watch(struct decoder_state *s, const struct decoder_watch *watch) {
    s->watch = watch ? *watch : (struct decoder_watch){0};
}

/* Converts n bf16 numbers in the second half of `out` to float32 in place. Each is read before it is overwritten. */
static void decoder_state_widen(float *out, int64_t n) {
    const uint16_t *from = (const uint16_t *)(const void *)out + n;
    for (int64_t i = 0; i < n; i++)
        out[i] = half_from_bf16(from[i]);
}

void decoder_watch_rows(struct decoder_state *s, const char *what, int group, int64_t first, struct mat rows) {
    if (!s->watch.rows || rows.rows == 0) return;
    struct device *dev = s->decoder->dev;
    assert(rows.stride == rows.cols);
    int64_t n = rows.rows * rows.cols;
    float *out = s->watched ? s->watched : rows.data;
    size_t bytes = (size_t)(n * dtype_bytes(rows.type));
    if (s->watched && rows.type == DTYPE_BF16) {
        device_download(dev, (uint16_t *)(void *)out + n, rows.data, bytes);
        decoder_state_widen(out, n);
    } else {
        device_download(dev, out, rows.data, bytes);
    }
    s->watch.rows(s->watch.context, what, group, first, out, rows.rows, rows.cols);
}

struct decoder_times decoder_state_times(struct decoder_state *s, bool reset) {
    struct decoder_times times = s->times;
    if (reset) s->times = (struct decoder_times){0};
    return times;
}
