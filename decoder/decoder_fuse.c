/* decoder_fuse.c -- which rows of a pass read which retrieved chunks (model.md §4.6).
 *
 * All positions of chunk t + 1, including its landmark, read the neighbours of landmark t. A pass may begin inside a
 * chunk. Its rows then read the neighbours in `current`, which the group's last retrieval set. Everything is copied,
 * because the retriever's rows are valid only until the second call after it. */
#include "base/memory.h"
#include "decoder/decoder_internal.h"
#include <assert.h>
#include <string.h>

enum status decoder_current_set(struct decoder_state *s, int group, const struct neighbours *found) {
    struct decoder_current *current = &s->current[group];
    size_t k = (size_t)found->k, last = (size_t)(found->n - 1) * k;
    TRY(memory_grow(&current->slot, &current->slot_capacity, k));
    TRY(memory_grow(&current->weight, &current->weight_capacity, k));
    memcpy(current->slot, found->slot + last, k * sizeof *current->slot);
    memcpy(current->weight, found->weight + last, k * sizeof *current->weight);
    current->pool = found->pool;
    current->k = found->k;
    s->blocks[group].built_for = 0;
    return STATUS_OK;
}

static size_t decoder_blocks_bytes(size_t blocks, size_t k) {
    return (blocks + 1) * sizeof(int64_t) + blocks * k * (sizeof(int32_t) + sizeof(float));
}

static enum status decoder_blocks_reserve(struct decoder_blocks *b, struct device *dev, size_t bytes) {
    if (b->stage.buffer_bytes < bytes) b->built_for = 0;
    return device_stage_reserve(dev, &b->stage, bytes);
}

void decoder_blocks_free(struct decoder_blocks *b, struct device *dev) {
    device_stage_release(dev, &b->stage);
}

static struct gca_blocks decoder_blocks_view(const void *piece, int64_t blocks, size_t k) {
    const int64_t *row_begin = piece;
    const int32_t *slot = (const int32_t *)(const void *)(row_begin + blocks + 1);
    const float *weight = (const float *)(const void *)(slot + (size_t)blocks * k);
    return (struct gca_blocks){
        .row_begin = row_begin, .slot = slot, .weight = weight, .blocks = (int)blocks, .k = (int)k};
}

enum status decoder_blocks_build(struct decoder_fusion *out, struct decoder_state *s, int group,
                                 const struct decoder_pass *p, const struct neighbours *found) {
    const struct decoder_current *current = &s->current[group];
    struct decoder_blocks *b = &s->blocks[group];
    struct device *dev = s->decoder->dev;
    int64_t positions = s->decoder->positions;
    /* number of chunks that have rows in the pass */
    int64_t chunks = (p->in_chunk + p->positions + positions - 1) / positions;
    int64_t begin = current->k > 0 ? 0 : 1; /* the first chunk that reads neighbours */
    *out = (struct decoder_fusion){0};
    if (begin >= chunks) return STATUS_OK;
    assert(begin == 1 || chunks == 1 || current->k == found->k);
    size_t k = (size_t)(begin == 0 ? current->k : found->k), bytes = decoder_blocks_bytes((size_t)(chunks - begin), k);
    TRY(decoder_blocks_reserve(b, dev, decoder_blocks_bytes((size_t)s->decoder->max_chunks + 1, k)));
    const void *on_device = device_stage_device(dev, &b->stage);
    *out = (struct decoder_fusion){.pool = begin == 0 ? current->pool : found->pool,
                                   .blocks = decoder_blocks_view(on_device, chunks - begin, k),
                                   .begin = begin == 0 ? 0 : positions - p->in_chunk};
    /* inside a chunk, single ids use the block that the last pass built */
    bool current_only = chunks == 1;
    if (current_only && b->built_for == p->positions) return STATUS_OK;

    struct gca_blocks host = decoder_blocks_view(b->stage.host, chunks - begin, k);
    int64_t *row_begin = (int64_t *)host.row_begin;
    int32_t *slot = (int32_t *)host.slot;
    float *weight = (float *)host.weight;
    for (int64_t chunk = begin; chunk < chunks; chunk++) {
        size_t to = (size_t)(chunk - begin) * k, from = chunk > 0 ? (size_t)(chunk - 1) * k : 0;
        memcpy(slot + to, (chunk > 0 ? found->slot : current->slot) + from, k * sizeof *slot);
        memcpy(weight + to, (chunk > 0 ? found->weight : current->weight) + from, k * sizeof *weight);
        row_begin[chunk - begin] = chunk > 0 ? chunk * positions - p->in_chunk : 0;
    }
    row_begin[chunks - begin] = p->positions;
    device_stage_upload(dev, &b->stage, bytes);
    b->built_for = current_only ? p->positions : 0;
    return STATUS_OK;
}
