/* retriever_own_past.c -- the running text's own past: stores its chunks, and searches them.
 *
 * Encoder-decoder variant: the landmark and the ids of a chunk are stored, about 1.6 KB at d = 384. K and V are
 * computed again when a chunk is retrieved, unless the cache has them. Decoder variant: K and V depend on the chunk's
 * context, so they are computed once from the lower layers' output and stored. Everything except the ids is in device
 * memory. */
#include "base/memory.h"
#include "base/minmax.h"
#include "indexer/retrieve/retriever_internal.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

/* Reserves twice what is needed, because the text continues. */
static enum status own_past_reserve_found(struct own_past *p, int64_t blocks) {
    int64_t needed = blocks * p->max_queries * p->k;
    return needed <= p->found.capacity ? STATUS_OK : hit_buffer_reserve(&p->found, p->dev, 2 * needed);
}

/* Makes a block's list of row counts. The numbers of its rows that queries of consecutive chunks see are consecutive,
 * limited at both ends. So each search uses a range of this list, which is copied to the device once. */
static enum status own_past_make_counts(struct own_past *p, struct own_past_landmarks *block) {
    int64_t n = 2 * p->max_queries + block->rows, *host;
    TRY(memory_allocate(&host, (size_t)n));
    for (int64_t i = 0; i < n; i++)
        host[i] = min_i64(i < p->max_queries ? 0 : i - p->max_queries, block->rows);
    enum status status = device_allocate(p->dev, &block->counts, n);
    if (status == STATUS_OK) device_upload(p->dev, block->counts, host, (size_t)n * sizeof *host);
    memory_free(host);
    return status;
}

enum status own_past_open(struct own_past *p, const struct chunk_retriever_config *config, int64_t max_queries, int k) {
    const struct model_config *model = config->model;
    *p = (struct own_past){.dev = config->device,
                           .encoder = config->encoder,
                           .dim = model->hidden,
                           .chunk = model->chunk,
                           .slot_rows = 64,
                           .pad_id = model->pad_id,
                           .hidden = model->encoder_input == ENCODER_INPUT_HIDDEN,
                           .wide = model->vocab_size > UINT16_MAX + 1};
    p->max_queries = max_queries;
    p->k = k;
    return own_past_reserve_found(p, 1);
}

void own_past_close(struct own_past *p) {
    for (int64_t b = 0; b < p->n_blocks; b++) {
        device_release(p->dev, p->blocks[b].landmarks);
        device_release(p->dev, p->blocks[b].counts);
    }
    for (int64_t b = 0; b < p->id_blocks; b++)
        memory_free(p->ids[b]);
    for (int64_t b = 0; b < p->state_blocks; b++) {
        device_release(p->dev, p->states[b].keys.data);
        device_release(p->dev, p->states[b].values.data);
    }
    hit_buffer_release(&p->found, p->dev);
    memory_free(p->blocks);
    memory_free(p->ids);
    memory_free(p->states);
    *p = (struct own_past){0};
}

void own_past_clear(struct own_past *p) {
    p->count = 0;
}

static size_t own_past_id_bytes(const struct own_past *p) {
    return p->wide ? sizeof(uint32_t) : sizeof(uint16_t);
}

static enum status own_past_add_ids(struct own_past *p) {
    TRY(memory_grow(&p->ids, &p->id_capacity, (size_t)p->id_blocks + 1));
    TRY(memory_allocate_bytes(&p->ids[p->id_blocks], (size_t)OWN_PAST_BLOCK * (size_t)p->chunk, own_past_id_bytes(p)));
    p->id_blocks++;
    return STATUS_OK;
}

/* The rows of n blocks, and so where the next one begins. */
static int64_t own_past_rows(int64_t n) {
    return OWN_PAST_BLOCK * (((int64_t)1 << n) - 1);
}

static enum status own_past_add_block(struct own_past *p) {
    struct own_past_landmarks block = {.base = own_past_rows(p->n_blocks),
                                       .rows = (int64_t)OWN_PAST_BLOCK << p->n_blocks};
    TRY(memory_grow(&p->blocks, &p->block_capacity, (size_t)p->n_blocks + 1));
    TRY(device_allocate(p->dev, &block.landmarks, (size_t)block.rows * (size_t)p->dim));
    enum status status = own_past_make_counts(p, &block);
    if (status != STATUS_OK) {
        device_release(p->dev, block.landmarks);
        return status;
    }
    p->blocks[p->n_blocks++] = block;
    return STATUS_OK;
}

static const struct own_past_landmarks *own_past_block_of(const struct own_past *p, int64_t chunk) {
    const struct own_past_landmarks *block = p->blocks;
    while (chunk >= block->base + block->rows)
        block++;
    return block;
}

static float *own_past_landmark(const struct own_past *p, int64_t chunk) {
    const struct own_past_landmarks *block = own_past_block_of(p, chunk);
    return block->landmarks + (chunk - block->base) * p->dim;
}

/* Allocates memory for the K and V of more chunks. */
static enum status own_past_add_states(struct own_past *p) {
    TRY(memory_grow(&p->states, &p->state_capacity, (size_t)p->state_blocks + 1));
    struct mat empty = mat_dense(NULL, encoder_type(p->encoder), (int64_t)OWN_PAST_STATES * p->slot_rows, p->dim);
    size_t bytes = mat_bytes(empty);
    struct own_past_states *s = &p->states[p->state_blocks];
    *s = (struct own_past_states){.keys = empty, .values = empty};
    TRY(device_allocate(p->dev, &s->keys.data, bytes));
    enum status status = device_allocate(p->dev, &s->values.data, bytes);
    if (status != STATUS_OK) {
        device_release(p->dev, s->keys.data);
        return status;
    }
    p->state_blocks++;
    return STATUS_OK;
}

int64_t own_past_bytes(const struct own_past *p) {
    const int64_t landmark = p->dim * (int64_t)sizeof(float), ids = p->chunk * (int64_t)own_past_id_bytes(p);
    const int64_t states = p->hidden ? 2 * (int64_t)p->slot_rows * p->dim * dtype_bytes(encoder_type(p->encoder)) : 0;
    return p->count * (landmark + ids + states);
}

static void own_past_keep_ids(struct own_past *p, int64_t chunk, const int32_t *ids) {
    size_t at = (size_t)(chunk % OWN_PAST_BLOCK) * (size_t)p->chunk;
    uint16_t *narrow = p->ids[chunk / OWN_PAST_BLOCK];
    uint32_t *wide = p->ids[chunk / OWN_PAST_BLOCK];
    for (int i = 0; i < p->chunk; i++) {
        int32_t id = ids[i] >= 0 ? ids[i] : p->pad_id;
        if (p->wide)
            wide[at + (size_t)i] = (uint32_t)id;
        else
            narrow[at + (size_t)i] = (uint16_t)id;
    }
}

void own_past_ids(const struct own_past *p, int32_t *ids, int64_t chunk, int offset) {
    assert(chunk >= 0 && chunk + (offset > 0) < p->count);
    for (int64_t i = 0, from = chunk * p->chunk + offset; i < p->chunk; i++) {
        const int64_t c = (from + i) / p->chunk, at = c % OWN_PAST_BLOCK * p->chunk + (from + i) % p->chunk;
        const void *block = p->ids[c / OWN_PAST_BLOCK];
        ids[i] = p->wide ? (int32_t)((const uint32_t *)block)[at] : (int32_t)((const uint16_t *)block)[at];
    }
}

/* Encodes chunks of one block directly into the block. */
static void own_past_encode_part(struct own_past *p, int64_t chunk, const int32_t *ids, struct mat hidden, int64_t n) {
    struct encoder_output out = {.landmarks = own_past_landmark(p, chunk)};
    if (!p->hidden) {
        encoder_encode(p->encoder, &out, ids, n);
        return;
    }
    const struct own_past_states *block = &p->states[chunk / OWN_PAST_STATES];
    int64_t row = chunk % OWN_PAST_STATES * p->slot_rows, rows = n * p->slot_rows;
    out.keys = mat_rows(block->keys, row, rows);
    out.values = mat_rows(block->values, row, rows);
    encoder_encode_hidden(p->encoder, &out, hidden, n);
}

/* Allocates memory for chunks up to `end`. */
static enum status own_past_reserve(struct own_past *p, int64_t end) {
    while (p->id_blocks * OWN_PAST_BLOCK < end)
        TRY(own_past_add_ids(p));
    while (own_past_rows(p->n_blocks) < end)
        TRY(own_past_add_block(p));
    while (p->hidden && p->state_blocks * OWN_PAST_STATES < end)
        TRY(own_past_add_states(p));
    return STATUS_OK;
}

enum status own_past_begin(struct own_past *p, int64_t chunk, const int32_t *ids, struct mat hidden,
                           struct own_past_target states) {
    assert(chunk == p->count && (!p->hidden || hidden.data));
    TRY(own_past_reserve(p, chunk + 1));
    struct encoder_output out = {
        .landmarks = own_past_landmark(p, chunk), .keys = states.keys, .values = states.values, .slot = states.slot};
    if (p->hidden) {
        const struct own_past_states *block = &p->states[chunk / OWN_PAST_STATES];
        int64_t row = chunk % OWN_PAST_STATES * p->slot_rows;
        out.keys = mat_rows(block->keys, row, p->slot_rows);
        out.values = mat_rows(block->values, row, p->slot_rows);
    }
    encoder_begin(p->encoder, &out, ids, hidden);
    own_past_keep_ids(p, chunk, ids);
    p->count = chunk + 1;
    return STATUS_OK;
}

enum status own_past_append(struct own_past *p, int64_t first, const int32_t *ids, struct mat hidden, int64_t n) {
    assert(first == p->count && (!p->hidden || hidden.data));
    int64_t positions = p->chunk + 1;
    TRY(own_past_reserve(p, first + n));
    for (int64_t done = 0, part; done < n; done += part) {
        const struct own_past_landmarks *block = own_past_block_of(p, first + done);
        part = min_i64(n - done, block->base + block->rows - (first + done));
        if (p->hidden) part = min_i64(part, OWN_PAST_STATES - (first + done) % OWN_PAST_STATES);
        struct mat rows = p->hidden ? mat_rows(hidden, done * positions, part * positions) : hidden;
        own_past_encode_part(p, first + done, ids + done * p->chunk, rows, part);
    }
    for (int64_t i = 0; i < n; i++)
        own_past_keep_ids(p, first + i, ids + i * p->chunk);
    p->count = first + n;
    return STATUS_OK;
}

int64_t own_past_candidates_max(const struct own_past *p, int k) {
    return p->n_blocks * k;
}

/* Starts the search for the best k of the landmarks of one block for each query. */
static void own_past_search_block(struct own_past *p, struct hit_list to, const struct own_past_landmarks *block,
                                  int64_t first, struct mat queries, int k) {
    int64_t held = min_i64(p->count - block->base, block->rows);
    int64_t seen = min_i64(first - block->base, block->rows); /* a query sees only chunks before its own */
    assert(seen >= -p->max_queries && queries.rows <= p->max_queries);
    struct mat landmarks = mat_f32(block->landmarks, held, p->dim);
    p->dev->ops->topk->forward(p->dev, to.index, to.score, queries, landmarks, block->counts + p->max_queries + seen,
                               k);
}

/* Returns the number of blocks in which at least one of n queries from chunk `first` on sees a row. */
static int64_t own_past_seen_blocks(const struct own_past *p, int64_t first, int64_t n) {
    int64_t seen = 0;
    while (seen < p->n_blocks && p->blocks[seen].base < first + n - 1)
        seen++;
    return seen;
}

enum status own_past_search(struct own_past *p, int64_t first, struct mat queries, int k) {
    int64_t n = queries.rows, blocks = own_past_seen_blocks(p, first, n), each = n * k;
    assert(first + n <= p->count && k <= p->k);
    if (blocks == 0) return STATUS_OK;
    TRY(own_past_reserve_found(p, blocks));
    struct hit_list hits_device = hit_buffer_device(&p->found, blocks * each);
    for (int64_t b = 0; b < blocks; b++)
        own_past_search_block(p, (struct hit_list){hits_device.index + b * each, hits_device.score + b * each},
                              &p->blocks[b], first, queries, k);
    device_fetch(p->dev, p->found.pair.host, hits_device.index, hit_list_bytes(blocks * each));
    return STATUS_OK;
}

void own_past_found(struct own_past *p, struct neighbour_candidate *lists, int64_t *used, int64_t stride, int64_t first,
                    int64_t n, int k) {
    int64_t blocks = own_past_seen_blocks(p, first, n);
    struct hit_list hits_host = hit_buffer_host(&p->found, blocks * n * k);
    device_fetch_wait(p->dev);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < n; i++) {
            int64_t at = (b * n + i) * k;
            for (int64_t j = at; j < at + k && hits_host.index[j] >= 0; j++)
                lists[i * stride + used[i]++] =
                    (struct neighbour_candidate){.score = hits_host.score[j],
                                                 .source = NEIGHBOUR_OWN_PAST,
                                                 .id = p->blocks[b].base + hits_host.index[j]};
        }
}
