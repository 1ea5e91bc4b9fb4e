/* decoder_fuse.c -- which rows of a pass read which retrieved chunks (model.md §4.6).
 *
 * The neighbours of landmark t serve all positions of chunk t + 1, that chunk's landmark included. A pass may begin
 * inside a chunk: its rows are served by what the group's last retrieval left in force. Everything is copied, because
 * the retriever lends its rows only until the call after next. */
#include "base/memory.h"
#include "decoder/decoder_internal.h"
#include <assert.h>
#include <string.h>

static enum status reserve(int32_t **slot, size_t *slot_capacity, float **weight, size_t *weight_capacity,
                           size_t count) {
    void *slots = *slot, *weights = *weight;
    enum status status = memory_grow(&slots, slot_capacity, count, sizeof **slot);
    *slot = slots;
    if (status != STATUS_OK) return status;
    status = memory_grow(&weights, weight_capacity, count, sizeof **weight);
    *weight = weights;
    return status;
}

enum status decoder_force_keep(struct decoder_force *force, const struct neighbours *found) {
    size_t k = (size_t)found->k, last = (size_t)(found->n - 1) * k;
    TRY(reserve(&force->slot, &force->slot_capacity, &force->weight, &force->weight_capacity, k));
    memcpy(force->slot, found->slot + last, k * sizeof *force->slot);
    memcpy(force->weight, found->weight + last, k * sizeof *force->weight);
    force->pool = found->pool;
    force->k = found->k;
    return STATUS_OK;
}

enum status decoder_blocks_lay(struct gca_blocks *blocks, struct gca_pool *pool, struct decoder_state *s, int group,
                               const struct decoder_pass *p, const struct neighbours *found) {
    const struct decoder_force *force = &s->force[group];
    int64_t positions = s->decoder->positions;
    int64_t chunks = (p->in_chunk + p->positions + positions - 1) / positions; /* touched by the pass */
    int64_t begin = force->k > 0 ? 0 : 1;                                      /* the first that is served */
    *blocks = (struct gca_blocks){0};
    if (begin >= chunks) return STATUS_OK;
    assert(begin == 1 || chunks == 1 || force->k == found->k);
    size_t k = (size_t)(begin == 0 ? force->k : found->k);
    *pool = begin == 0 ? force->pool : found->pool;

    struct decoder_blocks *b = &s->blocks;
    TRY(reserve(&b->slot, &b->slot_capacity, &b->weight, &b->weight_capacity,
                (size_t)(s->decoder->max_chunks + 1) * k));
    for (int64_t chunk = begin; chunk < chunks; chunk++) {
        size_t to = (size_t)(chunk - begin) * k, from = chunk > 0 ? (size_t)(chunk - 1) * k : 0;
        memcpy(b->slot + to, (chunk > 0 ? found->slot : force->slot) + from, k * sizeof *b->slot);
        memcpy(b->weight + to, (chunk > 0 ? found->weight : force->weight) + from, k * sizeof *b->weight);
        b->row_begin[chunk - begin] = chunk > 0 ? chunk * positions - p->in_chunk : 0;
    }
    b->row_begin[chunks - begin] = p->positions;
    *blocks = (struct gca_blocks){
        .row_begin = b->row_begin, .slot = b->slot, .weight = b->weight, .blocks = (int)(chunks - begin), .k = (int)k};
    return STATUS_OK;
}
