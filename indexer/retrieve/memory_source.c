/* memory_source.c -- a pool of passages, filled from its first slot on, and a table from chunk ids to slots. So
 * the passages that a call encodes are in adjacent slots, which takes one batch of the decoder and one upload. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "base/rng.h"
#include "indexer/build/stored_keys.h"
#include "indexer/retrieve/memory_source_internal.h"
#include "indexer/retrieve/retriever.h"
#include "indexer/search/searcher_internal.h"
#include "kernels/ops.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { SLOTS = 1024, SLOTS_GPU = 16384, FREE = -1 };

/* ---- start and end ---- */

static enum status source_stored(struct memory_source *m) {
    const struct memory_source_config *c = &m->config;
    if (c->from == MEMORY_KEYS_ENCODED || !c->weights) return STATUS_OK;
    const struct stored_passages_config stored = {.device = c->device,
                                                  .view = c->view,
                                                  .spec = stored_keys_spec(c->model, c->weights, c->key_layer, 0),
                                                  .name = c->name,
                                                  .must = c->from != MEMORY_KEYS_AUTO,
                                                  .copies = c->from == MEMORY_KEYS_DEVICE ? c->copies : NULL};
    TRY(stored_passages_open(&m->stored, &stored));
    if (m->stored && !c->numbers) m->packed = stored_passages_on_device(m->stored);
    return STATUS_OK;
}

static enum status memory_source_pool(struct memory_source *m) {
    struct device *dev = m->config.device;
    uint64_t size = 4;
    const size_t rows = (size_t)(m->slots * m->length);
    while (size < 2 * (uint64_t)m->slots)
        size *= 2;
    m->table_mask = size - 1;
    m->keys.rows = (int64_t)rows;
    if (m->stored && !m->config.numbers && !dev->shares_memory) {
        TRY(device_allocate(dev, &m->code, rows * (size_t)m->keys.cols));
        TRY(device_allocate(dev, &m->scale, rows));
    } else {
        TRY(device_allocate(dev, &m->keys.data, mat_bytes(m->keys)));
        TRY(device_allocate(dev, &m->square, rows));
    }
    TRY(device_allocate(dev, &m->value, rows));
    TRY(memory_allocate(&m->slot_chunk, (size_t)m->slots));
    TRY(memory_allocate(&m->ranges, (size_t)m->slots));
    TRY(memory_allocate(&m->table, size));
    TRY(memory_allocate(&m->ids, rows));
    TRY(memory_allocate(&m->values, rows));
    memset(m->table, 0xff, size * sizeof *m->table);
    return STATUS_OK;
}

static enum status memory_source_keys(struct memory_source *m) {
    const struct memory_source_config *c = &m->config;
    m->keys = mat_dense(NULL, decoder_type(c->decoder), 0, model_config_key_size(c->model, c->key_layer));
    TRY(source_stored(m));
    if (m->packed) {
        m->keys.rows = m->packed->chunks * m->packed->chunk_rows;
        TRY(memory_allocate(&m->ids, (size_t)m->length));
        return source_found_allocate(m);
    }
    TRY(memory_source_pool(m));
    if (m->stored) return STATUS_OK;
    TRY(decoder_passages_create(&m->passages, c->decoder, m->length, c->rounded ? PASSAGES_BF16 : PASSAGES_EXACT));
    decoder_passages_prepare(m->passages, c->key_layer);
    return STATUS_OK;
}

static enum status source_check_lexical(const struct lexical *lexical, const struct store_view *view,
                                        const struct store_info *store) {
    struct lexical_info info;
    lexical_info(lexical, &info);
    int64_t chunks = store->chunks - store->dropped_chunks, tokens = store->tokens - store->dropped_tokens;
    if (info.chunks >= chunks && info.vocab_size == store->fingerprint.vocab_size && info.tokens >= tokens)
        return STATUS_OK;
    return fail(STATUS_MISMATCH,
                "%s: its lexical index has %lld chunks of %lld tokens, the store %lld of %lld: run drt-index verify",
                store_view_path(view), (long long)info.chunks, (long long)info.tokens, (long long)chunks,
                (long long)tokens);
}

/* Opens the order of what searches find. */
static enum status source_order(struct memory_source *m) {
    const struct order_weights *order = m->config.order;
    m->found_k = m->config.k;
    m->config.order = NULL; /* borrowed until here */
    if (!order || order->candidates == 0 || !m->config.finder.searcher) return STATUS_OK;
    m->found_k = (int)max_i64(order->candidates, m->config.k);
    const struct memory_finder *f = &m->config.finder;
    const float *idf;
    TRY(f->idf(f->context, &idf));
    TRY(candidate_order_create(&m->order, m->config.view, order, idf, m->config.model->hidden,
                               m->config.device->threads));
    return m->packed ? source_ordered_allocate(m) : STATUS_OK;
}

enum status memory_source_create(struct memory_source **out, const struct memory_source_config *config) {
    struct memory_source *m = NULL;
    struct store_info info;
    assert(config->k >= 1 && config->k <= MEMORY_K_MAX && config->before >= 0 && config->after >= 0);
    store_view_info(config->view, &info);
    const struct lexical *lexical = NULL;
    if (config->finder.searcher && searcher_tokens(config->finder.searcher) > 0) {
        TRY(store_view_lexical(&lexical, config->view));
        TRY(source_check_lexical(lexical, config->view, &info));
    }
    TRY(memory_allocate_zero(&m, 1));
    m->config = *config;
    m->lexical = lexical;
    m->dim = info.fingerprint.dim;
    if (m->config.look_back == 0) m->config.look_back = MEMORY_LOOK_BACK;
    m->chunks = info.chunks;
    m->length = (int64_t)config->model->chunk * (config->before + 1 + config->after);
    m->slots = config->slots > 0               ? config->slots
               : config->device->shares_memory ? SLOTS
                                               : min_i64(max_i64(m->chunks, SLOTS), SLOTS_GPU);
    if (m->slots < config->k) m->slots = config->k;
    enum status s = memory_source_keys(m);
    if (s == STATUS_OK) s = source_order(m);
    if (s != STATUS_OK) {
        memory_source_free(m);
        return s;
    }
    *out = m;
    return STATUS_OK;
}

void memory_source_free(struct memory_source *m) {
    if (!m) return;
    struct device *dev = m->config.device;
    decoder_passages_free(m->passages);
    stored_passages_close(m->stored);
    device_release(dev, m->keys.data);
    device_release(dev, m->value);
    device_release(dev, m->square);
    device_release(dev, m->code);
    device_release(dev, m->scale);
    source_found_free(m);
    candidate_order_free(m->order);
    device_pair_release(dev, &m->blocks);
    device_release_host(dev, m->sent);
    memory_free(m->slot_chunk);
    memory_free(m->ranges);
    memory_free(m->table);
    memory_free(m->ids);
    memory_free(m->values);
    memory_free(m->hits);
    memory_free(m->queries);
    memory_free(m->vectors);
    memory_free(m->exclude);
    memory_free(m);
}

int64_t memory_source_slots(const struct memory_source *m) {
    return m->slots;
}
bool memory_source_stored(const struct memory_source *m) {
    return m->stored;
}

int64_t memory_source_chunks(const struct memory_source *m) {
    return m->chunks;
}
struct memory_source_stats memory_source_stats(const struct memory_source *m) {
    return m->stats;
}

/* ---- passages ---- */

/* Finds the chunks of the passage of `chunk`: those around it in its document. */
static enum status passage_range(struct memory_source *m, struct store_range *out, int64_t chunk, int32_t *ids) {
    struct store_chunk c;
    struct store_range document;
    TRY(store_view_chunk(m->config.view, &c, ids, chunk));
    TRY(memory_source_document(m, &document, c.document));
    int64_t before = c.in_document < m->config.before ? c.in_document : m->config.before;
    *out = (struct store_range){.begin = chunk - before, .end = min_i64(chunk + 1 + m->config.after, document.end)};
    return STATUS_OK;
}

/* Writes the ids [length] of a passage, -1 after its end, and the id that follows each; *range: its chunks. */
static enum status passage_read(struct memory_source *m, struct store_range *range, int32_t *ids, int32_t *values,
                                int64_t chunk) {
    TRY(passage_range(m, range, chunk, ids));
    const int64_t there = (range->end - range->begin) * m->config.model->chunk;
    TRY(store_view_passages(m->config.view, ids, (int)there, &range->begin, 1));
    for (int64_t i = there; i < m->length; i++)
        ids[i] = -1;
    for (int64_t i = 0; i < m->length; i++)
        values[i] = ids[i] >= 0 && i + 1 < m->length ? ids[i + 1] : -1;
    return STATUS_OK;
}

enum status memory_source_origin(struct memory_source *m, struct memory_origin *out, int64_t chunk, int64_t at) {
    struct store_range range;
    struct store_chunk c;
    int64_t size = m->config.model->chunk;
    TRY(passage_range(m, &range, chunk, m->ids));
    TRY(store_view_chunk(m->config.view, &c, m->ids, range.begin + (at + 1) / size));
    *out =
        (struct memory_origin){.chunk = c.id, .document = c.document, .token_offset = c.token_offset + (at + 1) % size};
    return STATUS_OK;
}

/* ---- the pool ---- */

static uint64_t table_begin(const struct memory_source *m, int64_t chunk) {
    uint64_t x = (uint64_t)chunk * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 32) & m->table_mask;
}

/* Returns the cell of the chunk in the table: its slot, or FREE. */
static int32_t *table_cell(struct memory_source *m, int64_t chunk) {
    uint64_t i = table_begin(m, chunk);
    while (m->table[i] != FREE && m->slot_chunk[m->table[i]] != chunk)
        i = (i + 1) & m->table_mask;
    return &m->table[i];
}

static void pool_clear(struct memory_source *m) {
    m->stats.dropped += m->used;
    m->used = 0;
    memset(m->table, 0xff, (size_t)(m->table_mask + 1) * sizeof *m->table);
}

/* Finds slots for all chunks. New ones get slots from m->used on. Returns false if the pool is too full. */
static bool pool_assign(struct memory_source *m, int32_t *slot, const int64_t *chunks, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        slot[i] = -1;
        if (chunks[i] < 0) continue;
        int32_t *cell = table_cell(m, chunks[i]);
        if (*cell == FREE) {
            if (m->used == m->slots) return false;
            m->slot_chunk[m->used] = chunks[i];
            *cell = (int32_t)m->used++;
        }
        slot[i] = *cell;
    }
    return true;
}

/* Values of slots first .. first+n-1. This process does not wait for the decode step that may still run. */
static enum status pool_send_values(struct memory_source *m, int64_t first, int64_t n) {
    struct device *dev = m->config.device;
    const size_t numbers = (size_t)(n * m->length), bytes = numbers * sizeof *m->sent;
    if (m->sent_capacity < numbers) {
        device_release_host(dev, m->sent);
        m->sent = NULL, m->sent_capacity = 0;
        TRY(device_allocate_host(dev, &m->sent, numbers));
        m->sent_capacity = numbers;
    }
    memcpy(m->sent, m->values + first * m->length, bytes);
    device_send(dev, m->value + first * m->length, m->sent, bytes);
    return STATUS_OK;
}

/* Reads the passages of slots first .. first+n-1 in the store, and fills the slots with keys and values. */
static enum status pool_read(struct memory_source *m, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        TRY(passage_read(m, &m->ranges[i], m->ids + i * m->length, m->values + (first + i) * m->length,
                         m->slot_chunk[first + i]));
    const int64_t row = first * m->length;
    if (m->code) {
        TRY(stored_passages_send(m->stored, m->code + row * m->keys.cols, m->scale + row, m->length, m->ranges, n));
        return pool_send_values(m, first, n);
    }
    const struct mat keys = mat_rows(m->keys, row, n * m->length);
    if (m->stored) {
        TRY(stored_passages_copy(m->stored, keys, m->square + row, m->length, m->ranges, n));
    } else {
        decoder_passages_encode(m->passages, keys, m->config.key_layer, m->ids, n);
        m->config.device->ops->token_memory->squares(m->config.device, m->square + row, keys);
    }
    return pool_send_values(m, first, n);
}

/* Fills the slots from `first` on with keys and values. */
static enum status pool_fill(struct memory_source *m, int64_t first) {
    const int64_t n = m->used - first;
    if (n == 0) return STATUS_OK;
    const double start = clock_seconds();
    TRY(pool_read(m, first, n));
    *(m->stored ? &m->stats.copied : &m->stats.encoded) += n;
    m->stats.encode_seconds += clock_seconds() - start;
    return STATUS_OK;
}

struct memory_slots_host memory_source_slots_host(const struct memory_source *m) {
    assert(!m->packed);
    return (struct memory_slots_host){m->slot_host, m->values};
}

/* Finds slots of the pool for n chunks, and fills new ones. */
static enum status pool_load(struct memory_source *m, int32_t *slot, const int64_t *chunks, int64_t n) {
    int64_t first = m->used;
    assert(n <= m->slots);
    m->slot_host = slot;
    if (!pool_assign(m, slot, chunks, n)) {
        pool_clear(m);
        first = 0;
        bool fits = pool_assign(m, slot, chunks, n);
        assert(fits);
    }
    const enum status s = pool_fill(m, first);
    if (s != STATUS_OK) pool_clear(m);
    return s;
}

struct memory_slots memory_source_packed(const struct memory_source *m, struct packed_passages of,
                                         const int64_t *row_begin, int blocks, int64_t block_rows) {
    return (struct memory_slots){.keys = m->keys,
                                 .value = m->packed->value,
                                 .slot = of.slot,
                                 .row_begin = row_begin,
                                 .slot_rows = (int)m->length,
                                 .blocks = blocks,
                                 .k = m->config.k,
                                 .block_rows = (int)block_rows,
                                 .packed = m->packed->keys,
                                 .entries = of.entries,
                                 .slot_step = m->packed->chunk_rows};
}

enum status memory_source_load(struct memory_source *m, struct memory_slots *out, const int64_t *chunks,
                               const int64_t *row_begin, int blocks) {
    struct device *dev = m->config.device;
    const int k = m->config.k;
    const int64_t n = (int64_t)blocks * k;
    const size_t begins = (size_t)(blocks + 1) * sizeof *row_begin, of_chunks = m->packed ? (size_t)n * 8 : 0,
                 of_slots = (size_t)n * sizeof(int32_t), bytes = begins + of_chunks + 2 * of_slots;
    int64_t rows = 0;
    device_send_wait(dev); /* the copies of the call before have read what is written now */
    if (m->blocks_bytes < bytes) {
        device_pair_release(dev, &m->blocks);
        m->blocks_bytes = 0;
        TRY(device_pair_allocate(dev, &m->blocks, bytes));
        m->blocks_bytes = bytes;
    }
    unsigned char *host = m->blocks.host, *device = m->blocks.device;
    const int64_t *row_begin_device = (const int64_t *)(const void *)device;
    int32_t *slot = (int32_t *)(void *)(device + begins + of_chunks);
    memcpy(host, row_begin, begins);
    for (int b = 0; b < blocks; b++)
        rows = row_begin[b + 1] - row_begin[b] > rows ? row_begin[b + 1] - row_begin[b] : rows;
    if (m->packed) {
        memcpy(host + begins, chunks, of_chunks);
        device_pair_send(dev, &m->blocks, begins + of_chunks);
        const struct packed_passages of = {slot, slot + n};
        dev->ops->packed_keys->passages(dev, of, m->packed, row_begin_device + blocks + 1, n, m->config.before,
                                        m->config.after);
        *out = memory_source_packed(m, of, row_begin_device, blocks, rows);
        return STATUS_OK;
    }
    TRY(pool_load(m, (int32_t *)(void *)(host + begins), chunks, n));
    device_pair_send(dev, &m->blocks, begins + of_slots);
    *out = (struct memory_slots){.keys = m->keys,
                                 .value = m->value,
                                 .square = m->square,
                                 .slot = slot,
                                 .row_begin = row_begin_device,
                                 .slot_rows = (int)m->length,
                                 .blocks = blocks,
                                 .k = k,
                                 .block_rows = (int)rows,
                                 .packed = {m->code, m->scale},
                                 .slot_step = (int)m->length};
    return STATUS_OK;
}
