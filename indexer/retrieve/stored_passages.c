/* stored_passages.c -- see stored_passages.h. */
#include "indexer/retrieve/stored_passages.h"
#include "base/memory.h"
#include "indexer/build/stored_keys.h"
#include "kernels/device/device_pair.h"
#include "kernels/ops.h"
#include <assert.h>
#include <string.h>

enum { SHARE = 4 /* chunks that a thread copies at a time */ };

/* A chunk: its rows in the store's files, and the first of the slots' rows that they become. */
struct stored_chunk {
    struct store_key_rows rows;
    int64_t number, to;
};
struct stored_passages {
    struct stored_passages_config config;
    struct store_keys *files;         /* NULL: closed, after they were copied */
    const struct packed_chunks *copy; /* in the device's memory; NULL: none */
    /* Of one call: the chunks; from files also rows of codes with scales, int8 [capacity, size] and float32 [capacity];
     * the numbers of rows `to` of slots and, of the copy, `from`: int32 [capacity] each. */
    struct stored_chunk *chunks;
    struct device_pair code, scale, to, from;
    int64_t capacity; /* rows */
};

enum status stored_passages_open(struct stored_passages **out, const struct stored_passages_config *config) {
    struct store_keys *files;
    struct stored_passages *p;
    *out = NULL;
    TRY(stored_keys_find(&files, config->view, &config->spec, config->name, config->must));
    if (!files) return STATUS_OK;
    enum status s = memory_allocate_zero(&p, 1);
    if (s != STATUS_OK) {
        store_keys_close(files);
        return s;
    }
    p->config = *config;
    p->files = files;
    if (config->copies) {
        s = device_keys_take(config->copies, &p->copy, config->view, files, &config->spec);
        store_keys_close(files);
        p->files = NULL;
    }
    if (s != STATUS_OK) {
        stored_passages_close(p);
        return s;
    }
    *out = p;
    return STATUS_OK;
}

static void rows_free(struct stored_passages *p) {
    struct device *dev = p->config.device;
    memory_free(p->chunks);
    p->chunks = NULL;
    device_pair_release(dev, &p->code);
    device_pair_release(dev, &p->scale);
    device_pair_release(dev, &p->to);
    device_pair_release(dev, &p->from);
    p->capacity = 0;
}

void stored_passages_close(struct stored_passages *p) {
    if (!p) return;
    rows_free(p);
    store_keys_close(p->files);
    device_keys_return(p->config.copies, p->copy);
    memory_free(p);
}

const struct packed_chunks *stored_passages_on_device(const struct stored_passages *p) {
    return p->copy;
}

static enum status rows_reserve(struct stored_passages *p, int64_t rows) {
    struct device *dev = p->config.device;
    if (p->capacity >= rows) return STATUS_OK;
    const int64_t n = rows + rows / 2;
    rows_free(p);
    TRY(memory_allocate(&p->chunks, (size_t)n));
    TRY(device_pair_allocate(dev, &p->to, (size_t)n * sizeof(int32_t)));
    if (p->copy) {
        TRY(device_pair_allocate(dev, &p->from, (size_t)n * sizeof(int32_t)));
    } else {
        TRY(device_pair_allocate(dev, &p->code, (size_t)(n * p->config.spec.size)));
        TRY(device_pair_allocate(dev, &p->scale, (size_t)n * sizeof(float)));
    }
    p->capacity = n;
    return STATUS_OK;
}

/* What is copied: whole slots, or the rows of chunks one after another, with their numbers. */
struct ranges_copy {
    struct stored_passages *p;
    bool slots;
};
/* Rows of chunks that are not in memory wait for the disk, so threads copy them. */
static void copy_chunks(void *context, int64_t begin, int64_t end, int worker) {
    const struct ranges_copy *copy = context;
    const struct stored_passages *p = copy->p;
    const int64_t size = p->config.spec.size, chunk = p->config.spec.chunk_tokens;
    int8_t *code = p->code.host;
    float *scale = p->scale.host;
    int32_t *to = p->to.host, *from = p->from.host;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct stored_chunk *c = &p->chunks[i];
        const int64_t at = copy->slots ? c->to : i * chunk;
        if (!p->copy) {
            memcpy(code + at * size, c->rows.code, (size_t)(chunk * size));
            memcpy(scale + at, c->rows.scale, (size_t)chunk * sizeof *scale);
        }
        for (int64_t j = 0; j < chunk && !copy->slots; j++) {
            to[at + j] = (int32_t)(c->to + j);
            if (p->copy) from[at + j] = (int32_t)(c->number * chunk + j);
        }
    }
}

/* Returns the number of rows of chunks. */
static enum status copy_ranges(struct stored_passages *p, bool slots, int64_t *rows, int64_t slot_rows,
                               const struct store_range *ranges, int64_t n) {
    const int64_t chunk = p->config.spec.chunk_tokens;
    struct ranges_copy copy = {p, slots};
    int64_t chunks = 0;
    TRY(rows_reserve(p, n * slot_rows));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = ranges[i].begin; c < ranges[i].end; c++) {
            struct stored_chunk *s = &p->chunks[chunks++];
            s->number = c, s->to = i * slot_rows + (c - ranges[i].begin) * chunk;
            if (!p->copy) TRY(store_keys_chunk(p->files, &s->rows, c));
        }
    threads_for(p->config.device->threads, chunks, SHARE, copy_chunks, &copy);
    *rows = chunks * chunk;
    return STATUS_OK;
}

enum status stored_passages_copy(struct stored_passages *p, struct mat keys, float *square, int64_t slot_rows,
                                 const struct store_range *ranges, int64_t n) {
    struct device *dev = p->config.device;
    int64_t rows;
    TRY(copy_ranges(p, false, &rows, slot_rows, ranges, n));
    device_pair_send(dev, &p->to, (size_t)rows * sizeof(int32_t));
    struct packed_keys packed = {p->code.device, p->scale.device};
    if (p->copy) {
        packed = p->copy->keys;
        device_pair_send(dev, &p->from, (size_t)rows * sizeof(int32_t));
    } else {
        device_pair_send(dev, &p->code, (size_t)(rows * p->config.spec.size));
        device_pair_send(dev, &p->scale, (size_t)rows * sizeof(float));
    }
    dev->ops->packed_keys->unpack(dev, keys, square, packed, p->from.device, p->to.device, rows);
    return STATUS_OK;
}

enum status stored_passages_send(struct stored_passages *p, int8_t *code, float *scale, int64_t slot_rows,
                                 const struct store_range *ranges, int64_t n) {
    struct device *dev = p->config.device;
    int64_t rows;
    assert(!p->copy);
    TRY(copy_ranges(p, true, &rows, slot_rows, ranges, n));
    device_send(dev, code, p->code.host, (size_t)(n * slot_rows * p->config.spec.size));
    device_send(dev, scale, p->scale.host, (size_t)(n * slot_rows) * sizeof *scale);
    return STATUS_OK;
}
