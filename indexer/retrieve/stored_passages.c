/* stored_passages.c -- see stored_passages.h. */
#include "indexer/retrieve/stored_passages.h"
#include "base/memory.h"
#include "indexer/build/stored_keys.h"
#include "kernels/device/device_pair.h"
#include "kernels/ops.h"
#include <string.h>

enum { SHARE = 4 /* chunks that a thread copies at a time */ };

/* Rows of a chunk in the store's files, and the first of the pool's rows that they become. */
struct stored_chunk {
    struct store_key_rows rows;
    int64_t to;
};
struct stored_passages {
    struct stored_passages_config config;
    struct store_keys *files;         /* NULL: closed, after they were copied */
    const struct packed_chunks *copy; /* in the device's memory; NULL: none */
    /* Of one call, before it is copied into the pool: where chunks are in the store; rows of codes with scales, and the
     * numbers of the pool's rows that they become: int8 [capacity, size], float32 [capacity], int32 [capacity]. */
    struct stored_chunk *chunks;
    struct device_pair code, scale, rows;
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
    device_pair_release(dev, &p->rows);
    p->capacity = 0;
}

void stored_passages_close(struct stored_passages *p) {
    if (!p) return;
    rows_free(p);
    store_keys_close(p->files);
    device_keys_return(p->config.copies, p->copy);
    memory_free(p);
}

bool stored_passages_on_device(const struct stored_passages *p) {
    return p->copy != NULL;
}

/* ---- from files ---- */

static enum status rows_reserve(struct stored_passages *p, int64_t rows) {
    struct device *dev = p->config.device;
    if (p->capacity >= rows) return STATUS_OK;
    const int64_t n = rows + rows / 2;
    rows_free(p);
    TRY(memory_allocate(&p->chunks, (size_t)n));
    TRY(device_pair_allocate(dev, &p->code, (size_t)(n * p->config.spec.size)));
    TRY(device_pair_allocate(dev, &p->scale, (size_t)n * sizeof(float)));
    TRY(device_pair_allocate(dev, &p->rows, (size_t)n * sizeof(int32_t)));
    p->capacity = n;
    return STATUS_OK;
}

/* Rows of chunks that are not in memory wait for the disk, so threads copy them. */
static void copy_chunks(void *context, int64_t begin, int64_t end, int worker) {
    const struct stored_passages *p = context;
    const int64_t size = p->config.spec.size, chunk = p->config.spec.chunk_tokens;
    int8_t *code = p->code.host;
    float *scale = p->scale.host;
    int32_t *to = p->rows.host;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        memcpy(code + i * chunk * size, p->chunks[i].rows.code, (size_t)(chunk * size));
        memcpy(scale + i * chunk, p->chunks[i].rows.scale, (size_t)chunk * sizeof *scale);
        for (int64_t j = 0; j < chunk; j++)
            to[i * chunk + j] = (int32_t)(p->chunks[i].to + j);
    }
}

static int64_t slot_rows(const struct stored_passages *p) {
    return (int64_t)(p->config.to.before + 1 + p->config.to.after) * p->config.spec.chunk_tokens;
}

enum status stored_passages_copy(struct stored_passages *p, int64_t first, const struct store_range *ranges,
                                 int64_t n) {
    struct device *dev = p->config.device;
    const struct packed_slots *to = &p->config.to;
    const int64_t chunk = p->config.spec.chunk_tokens;
    int64_t chunks = 0;
    TRY(rows_reserve(p, n * slot_rows(p)));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = ranges[i].begin; c < ranges[i].end; c++) {
            struct stored_chunk *s = &p->chunks[chunks++];
            s->to = (first + i) * slot_rows(p) + (c - ranges[i].begin) * chunk;
            TRY(store_keys_chunk(p->files, &s->rows, c));
        }
    threads_for(dev->threads, chunks, SHARE, copy_chunks, p);
    const int64_t rows = chunks * chunk;
    device_pair_send(dev, &p->code, (size_t)(rows * p->config.spec.size));
    device_pair_send(dev, &p->scale, (size_t)rows * sizeof(float));
    device_pair_send(dev, &p->rows, (size_t)rows * sizeof(int32_t));
    dev->ops->packed_keys->unpack(dev, to->keys, to->square, p->code.device, p->scale.device, p->rows.device, rows);
    return STATUS_OK;
}

/* ---- from the device's memory ---- */

void stored_passages_gather(struct stored_passages *p, int64_t first, const int64_t *chunks, int64_t n) {
    struct device *dev = p->config.device;
    dev->ops->packed_keys->gather(dev, &p->config.to, p->copy, chunks, first, n);
}
