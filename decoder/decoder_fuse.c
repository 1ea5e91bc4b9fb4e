/* decoder_fuse.c -- which rows of a pass read which retrieved chunks (model.md §4.6).
 *
 * The neighbours of landmark t serve all positions of chunk t + 1, that chunk's landmark included. A pass may begin
 * inside a chunk: its rows are served by what the group's last retrieval left in force. Everything is copied, because
 * the retriever lends its rows only until the call after next. */
#include "base/memory.h"
#include "decoder/decoder_internal.h"
#include <assert.h>
#include <string.h>

enum status decoder_force_keep(struct decoder_state *s, int group, const struct neighbours *found) {
    struct decoder_force *force = &s->force[group];
    size_t k = (size_t)found->k, last = (size_t)(found->n - 1) * k;
    void *slots = force->slot, *weights = force->weight;
    enum status status = memory_grow_bytes(&slots, &force->slot_capacity, k, sizeof *force->slot);
    force->slot = slots;
    if (status != STATUS_OK) return status;
    status = memory_grow_bytes(&weights, &force->weight_capacity, k, sizeof *force->weight);
    force->weight = weights;
    if (status != STATUS_OK) return status;
    memcpy(force->slot, found->slot + last, k * sizeof *force->slot);
    memcpy(force->weight, found->weight + last, k * sizeof *force->weight);
    force->pool = found->pool;
    force->k = found->k;
    s->blocks[group].laid = 0;
    return STATUS_OK;
}

static size_t piece_bytes(size_t blocks, size_t k) {
    return (blocks + 1) * sizeof(int64_t) + blocks * k * (sizeof(int32_t) + sizeof(float));
}

static enum status reserve(struct decoder_blocks *b, struct device *dev, size_t bytes) {
    TRY(memory_grow_bytes(&b->memory, &b->capacity, bytes, 1));
    if (b->room_bytes >= bytes) return STATUS_OK;
    device_release(dev, b->room);
    b->room = NULL;
    b->room_bytes = 0;
    b->laid = 0;
    TRY(device_buffer(dev, &b->room, bytes));
    b->room_bytes = bytes;
    return STATUS_OK;
}

void decoder_blocks_free(struct decoder_blocks *b, struct device *dev) {
    memory_free(b->memory);
    device_release(dev, b->room);
}

static struct gca_blocks blocks_in(const void *piece, int64_t blocks, size_t k) {
    const int64_t *row_begin = piece;
    const int32_t *slot = (const int32_t *)(const void *)(row_begin + blocks + 1);
    const float *weight = (const float *)(const void *)(slot + (size_t)blocks * k);
    return (struct gca_blocks){
        .row_begin = row_begin, .slot = slot, .weight = weight, .blocks = (int)blocks, .k = (int)k};
}

enum status decoder_blocks_lay(struct decoder_fusion *out, struct decoder_state *s, int group,
                               const struct decoder_pass *p, const struct neighbours *found) {
    const struct decoder_force *force = &s->force[group];
    struct decoder_blocks *b = &s->blocks[group];
    struct device *dev = s->decoder->dev;
    int64_t positions = s->decoder->positions;
    int64_t chunks = (p->in_chunk + p->positions + positions - 1) / positions; /* touched by the pass */
    int64_t begin = force->k > 0 ? 0 : 1;                                      /* the first that is served */
    *out = (struct decoder_fusion){0};
    if (begin >= chunks) return STATUS_OK;
    assert(begin == 1 || chunks == 1 || force->k == found->k);
    size_t k = (size_t)(begin == 0 ? force->k : found->k), bytes = piece_bytes((size_t)(chunks - begin), k);
    TRY(reserve(b, dev, piece_bytes((size_t)s->decoder->max_chunks + 1, k)));
    void *there = device_side(dev, b->memory, b->room);
    *out = (struct decoder_fusion){.pool = begin == 0 ? force->pool : found->pool,
                                   .blocks = blocks_in(there, chunks - begin, k),
                                   .begin = begin == 0 ? 0 : positions - p->in_chunk};
    /* Id by id inside a chunk, what the last pass laid serves this one too. */
    bool in_force = chunks == 1;
    if (in_force && b->laid == p->positions) return STATUS_OK;

    struct gca_blocks here = blocks_in(b->memory, chunks - begin, k);
    int64_t *row_begin = (int64_t *)here.row_begin;
    int32_t *slot = (int32_t *)here.slot;
    float *weight = (float *)here.weight;
    for (int64_t chunk = begin; chunk < chunks; chunk++) {
        size_t to = (size_t)(chunk - begin) * k, from = chunk > 0 ? (size_t)(chunk - 1) * k : 0;
        memcpy(slot + to, (chunk > 0 ? found->slot : force->slot) + from, k * sizeof *slot);
        memcpy(weight + to, (chunk > 0 ? found->weight : force->weight) + from, k * sizeof *weight);
        row_begin[chunk - begin] = chunk > 0 ? chunk * positions - p->in_chunk : 0;
    }
    row_begin[chunks - begin] = p->positions;
    device_upload(dev, there, b->memory, bytes);
    b->laid = in_force ? p->positions : 0;
    return STATUS_OK;
}
