/* retriever_self.c -- the running text's own past: what is kept of each chunk, and the search over it.
 *
 * Encoder-decoder variant: landmark and ids, about 1.6 KB a chunk at d = 384, and nothing else; K and V are made again
 * when a chunk is retrieved (the cache in front). Decoder variant: K and V depend on the chunk's context, so they are
 * made once, from the lower layers' output, and kept in host memory. */
#include "base/memory.h"
#include "indexer/retriever_internal.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

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
    void *memory;
    TRY(memory_allocate(&memory, (size_t)(max_queries * k), sizeof *p->index));
    p->index = memory;
    TRY(memory_allocate(&memory, (size_t)(max_queries * k), sizeof *p->score));
    p->score = memory;
    TRY(memory_allocate(&memory, (size_t)max_queries, sizeof *p->visible));
    p->visible = memory;
    return STATUS_OK;
}

void own_past_close(struct own_past *p) {
    for (int64_t b = 0; b < p->blocks; b++) {
        device_release(p->dev, p->landmarks[b]);
        memory_free(p->ids[b]);
    }
    for (int64_t i = 0; i < p->states; i++)
        device_release(p->dev, p->keys[i]);
    memory_free(p->landmarks);
    memory_free(p->ids);
    memory_free(p->keys);
    memory_free(p->values);
    memory_free(p->index);
    memory_free(p->score);
    memory_free(p->visible);
    *p = (struct own_past){0};
}

void own_past_clear(struct own_past *p) {
    p->count = 0;
}

static size_t id_bytes(const struct own_past *p) {
    return p->wide ? sizeof(uint32_t) : sizeof(uint16_t);
}

static enum status add_block(struct own_past *p) {
    void *list = p->landmarks, *ids, *rows;
    size_t count = (size_t)p->blocks + 1;
    enum status status = memory_grow(&list, &p->landmark_capacity, count, sizeof *p->landmarks);
    p->landmarks = list;
    if (status != STATUS_OK) return status;
    list = p->ids;
    status = memory_grow(&list, &p->id_capacity, count, sizeof *p->ids);
    p->ids = list;
    if (status != STATUS_OK) return status;
    TRY(device_allocate(p->dev, &rows, (size_t)OWN_BLOCK * (size_t)p->dim * sizeof(float)));
    status = memory_allocate(&ids, (size_t)OWN_BLOCK * (size_t)p->chunk, id_bytes(p));
    if (status != STATUS_OK) {
        device_release(p->dev, rows);
        return status;
    }
    p->landmarks[p->blocks] = rows;
    p->ids[p->blocks++] = ids;
    return STATUS_OK;
}

/* Room for the K and V of one more chunk: keys in front, values behind them in the same piece. */
static enum status add_state(struct own_past *p) {
    void *list = p->keys, *memory;
    size_t count = (size_t)p->states + 1, floats = (size_t)p->slot_rows * (size_t)p->dim;
    enum status status = memory_grow(&list, &p->key_capacity, count, sizeof *p->keys);
    p->keys = list;
    if (status != STATUS_OK) return status;
    list = p->values;
    status = memory_grow(&list, &p->value_capacity, count, sizeof *p->values);
    p->values = list;
    if (status != STATUS_OK) return status;
    TRY(device_allocate(p->dev, &memory, 2 * floats * sizeof(float)));
    p->keys[p->states] = memory;
    p->values[p->states++] = (float *)memory + floats;
    return STATUS_OK;
}

static void keep_ids(struct own_past *p, int64_t chunk, const int32_t *ids) {
    size_t at = (size_t)(chunk % OWN_BLOCK) * (size_t)p->chunk;
    uint16_t *narrow = p->ids[chunk / OWN_BLOCK];
    uint32_t *wide = p->ids[chunk / OWN_BLOCK];
    for (int i = 0; i < p->chunk; i++) {
        int32_t id = ids[i] >= 0 ? ids[i] : p->pad_id;
        if (p->wide)
            wide[at + (size_t)i] = (uint32_t)id;
        else
            narrow[at + (size_t)i] = (uint16_t)id;
    }
}

void own_past_ids(const struct own_past *p, int32_t *ids, int64_t chunk) {
    assert(chunk >= 0 && chunk < p->count);
    size_t at = (size_t)(chunk % OWN_BLOCK) * (size_t)p->chunk;
    const uint16_t *narrow = p->ids[chunk / OWN_BLOCK];
    const uint32_t *wide = p->ids[chunk / OWN_BLOCK];
    for (size_t i = 0; i < (size_t)p->chunk; i++)
        ids[i] = p->wide ? (int32_t)wide[at + i] : (int32_t)narrow[at + i];
}

enum status own_past_append(struct own_past *p, int64_t first, const int32_t *ids, const float *hidden, int64_t n) {
    assert(first == p->count);
    while ((p->blocks * OWN_BLOCK) < first + n)
        TRY(add_block(p));
    while (p->hidden && p->states < first + n)
        TRY(add_state(p));
    /* Encoded straight into its block, cut where a block ends. */
    for (int64_t done = 0, part; done < n; done += part) {
        int64_t chunk = first + done, row = chunk % OWN_BLOCK;
        part = n - done < OWN_BLOCK - row ? n - done : OWN_BLOCK - row;
        struct encoder_output out = {.landmarks = p->landmarks[chunk / OWN_BLOCK] + row * p->dim};
        if (p->hidden) {
            out.keys = p->keys + chunk;
            out.values = p->values + chunk;
            encoder_encode_hidden(p->encoder, &out, hidden + done * (p->chunk + 1) * p->dim, part);
        } else {
            encoder_encode(p->encoder, &out, ids + done * p->chunk, part);
        }
        for (int64_t i = 0; i < part; i++)
            keep_ids(p, chunk + i, ids + (done + i) * p->chunk);
    }
    p->count = first + n;
    return STATUS_OK;
}

int64_t own_past_candidates_max(const struct own_past *p, int k) {
    return p->blocks * k;
}

void own_past_search(struct own_past *p, struct neighbour_candidate *lists, int64_t *used, int64_t stride,
                     int64_t first, const float *queries, int64_t n, int k) {
    struct mat rows = mat_f32(queries, n, p->dim);
    assert(first + n <= p->count);
    for (int64_t base = 0; base < first + n - 1; base += OWN_BLOCK) {
        int64_t held = p->count - base < OWN_BLOCK ? p->count - base : OWN_BLOCK;
        for (int64_t i = 0; i < n; i++) {
            int64_t seen = first + i - base; /* strictly before the query's own chunk */
            p->visible[i] = seen < 0 ? 0 : seen < held ? seen : held;
        }
        struct mat block = mat_f32(p->landmarks[base / OWN_BLOCK], held, p->dim);
        p->dev->ops->topk->forward(p->dev, p->index, p->score, rows, block, p->visible, k);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i * k; j < (i + 1) * k && p->index[j] >= 0; j++)
                lists[i * stride + used[i]++] = (struct neighbour_candidate){
                    .score = p->score[j], .source = NEIGHBOUR_SELF, .id = base + p->index[j]};
    }
}
