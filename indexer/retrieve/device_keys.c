/* device_keys.c -- see device_keys.h. Mapped files cost a page fault for each 4 KiB, so threads copy a block of chunks
 * into pinned memory while the block before is sent. */
#include "indexer/retrieve/device_keys.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/minmax.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 24, SHARE = 16 /* chunks that a thread copies at a time */, LINE = 256 };

struct keys_copy {
    struct keys_copy *next;
    struct packed_chunks chunks;
    int8_t *code;
    float *scale;
    int32_t *value, *first_id;
    struct store_keys_spec spec;
    uint64_t identity; /* of the view */
    int64_t users;
};
struct device_keys {
    struct device *dev;
    void (*report)(const char *line);
    uint64_t reserve;
    struct keys_copy *copies;
};

enum status device_keys_create(struct device_keys **out, struct device *dev, void (*report)(const char *line),
                               uint64_t reserve) {
    TRY(memory_allocate_zero(out, 1));
    **out = (struct device_keys){.dev = dev, .report = report, .reserve = reserve};
    return STATUS_OK;
}

static void copy_free(struct keys_copy *c, struct device *dev) {
    device_release(dev, c->code);
    device_release(dev, c->scale);
    device_release(dev, c->value);
    device_release(dev, c->first_id);
    memory_free(c);
}

/* Frees the copies that none uses. */
static void device_keys_drop(struct device_keys *d) {
    for (struct keys_copy **at = &d->copies; *at;) {
        struct keys_copy *c = *at;
        if (c->users > 0) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        copy_free(c, d->dev);
    }
}

void device_keys_free(struct device_keys *d) {
    if (!d) return;
    device_keys_drop(d);
    assert(!d->copies);
    memory_free(d);
}

/* ---- the copy ---- */

struct keys_block {
    int8_t *code;
    float *scale;
    int32_t *value, *first_id;
};
/* Two blocks in turns: threads fill one while the other is sent. */
struct keys_loading {
    struct store_view *view;
    const struct keys_copy *to;
    struct keys_block blocks[2], *block;
    struct store_key_rows rows; /* of the files, from chunk `first` on */
    int32_t *ids;               /* of a chunk, and the one after them */
    int64_t first, n;           /* chunks of the block */
    struct threads_failure failure;
};

/* The first id of each chunk, and the ids that follow its ids; -1 for a chunk that the view does not have. */
static enum status loading_values(struct keys_loading *l) {
    const int rows = l->to->chunks.chunk_rows;
    const struct store_dropped dropped = store_view_dropped(l->view);
    for (int64_t i = 0; i < l->n; i++) {
        const int64_t chunk = l->first + i;
        enum status s = STATUS_NOT_FOUND;
        if (store_dropped_live(dropped, chunk)) s = store_view_passages(l->view, l->ids, rows + 1, &chunk, 1);
        for (int j = 0; s == STATUS_NOT_FOUND && j <= rows; j++)
            l->ids[j] = -1;
        if (s != STATUS_NOT_FOUND) TRY(s);
        l->block->first_id[i] = l->ids[0];
        memcpy(l->block->value + i * rows, l->ids + 1, (size_t)rows * sizeof *l->ids);
    }
    return STATUS_OK;
}

/* Item 0 is the values of all chunks: one thread may use the view. Item 1 + i is the keys of chunk i. */
static void loading_fill(void *context, int64_t begin, int64_t end, int worker) {
    struct keys_loading *l = context;
    const int64_t rows = l->to->chunks.chunk_rows, size = l->to->spec.size;
    (void)worker;
    if (begin == 0) threads_failed(&l->failure, loading_values(l));
    const int64_t at = (begin > 0 ? begin - 1 : 0) * rows, n = (end - 1) * rows - at;
    memcpy(l->block->code + at * size, l->rows.code + at * size, (size_t)(n * size));
    memcpy(l->block->scale + at, l->rows.scale + at, (size_t)n * sizeof *l->rows.scale);
}

static enum status loading_blocks(struct keys_loading *l, struct device *dev, struct store_keys *keys) {
    const struct keys_copy *c = l->to;
    const int64_t rows = c->chunks.chunk_rows, size = c->spec.size, most = max_i64(BLOCK_BYTES / (rows * size), 1);
    TRY(memory_allocate(&l->ids, (size_t)rows + 1));
    for (int i = 0; i < 2; i++) {
        TRY(device_allocate_host(dev, &l->blocks[i].code, most * rows * size));
        TRY(device_allocate_host(dev, &l->blocks[i].scale, most * rows));
        TRY(device_allocate_host(dev, &l->blocks[i].value, most * rows));
        TRY(device_allocate_host(dev, &l->blocks[i].first_id, most));
    }
    for (int turn = 0; l->first < c->chunks.chunks; l->first += l->n, turn = !turn) {
        int64_t n;
        TRY(store_keys_rows(keys, &l->rows, &n, l->first));
        l->n = min_i64(n, most);
        l->block = &l->blocks[turn];
        threads_for(dev->threads, 1 + l->n, SHARE, loading_fill, l);
        TRY(threads_failure(&l->failure));
        device_send_wait(dev); /* the block before */
        const int64_t at = l->first * rows, numbers = l->n * rows;
        device_send(dev, c->code + at * size, l->block->code, (size_t)(numbers * size));
        device_send(dev, c->scale + at, l->block->scale, (size_t)numbers * sizeof *c->scale);
        device_send(dev, c->value + at, l->block->value, (size_t)numbers * sizeof *c->value);
        device_send(dev, c->first_id + l->first, l->block->first_id, (size_t)l->n * sizeof *c->first_id);
    }
    return device_sync(dev);
}

static enum status copy_load(struct keys_copy *c, struct device *dev, struct store_view *view,
                             struct store_keys *keys) {
    struct keys_loading l = {.view = view, .to = c, .failure = THREADS_FAILURE_NONE};
    const enum status s = loading_blocks(&l, dev, keys);
    memory_free(l.ids);
    for (int i = 0; i < 2; i++) {
        device_release_host(dev, l.blocks[i].code);
        device_release_host(dev, l.blocks[i].scale);
        device_release_host(dev, l.blocks[i].value);
        device_release_host(dev, l.blocks[i].first_id);
    }
    return s;
}

static uint64_t copy_bytes(const struct keys_copy *c) {
    const uint64_t rows = (uint64_t)c->chunks.chunks * (uint64_t)c->chunks.chunk_rows;
    return rows * ((uint64_t)c->spec.size + sizeof *c->scale + sizeof *c->value) +
           (uint64_t)c->chunks.chunks * sizeof *c->first_id;
}

static enum status copy_allocate(struct keys_copy *c, struct device *dev, uint64_t reserve) {
    const int64_t rows = c->chunks.chunks * c->chunks.chunk_rows;
    void *spare = NULL;
    enum status s = STATUS_OK;
    TRY_GOTO(s, device_allocate(dev, &c->code, rows * c->spec.size), out);
    TRY_GOTO(s, device_allocate(dev, &c->scale, rows), out);
    TRY_GOTO(s, device_allocate(dev, &c->value, rows), out);
    TRY_GOTO(s, device_allocate(dev, &c->first_id, c->chunks.chunks), out);
    if (reserve) s = device_allocate_bytes(dev, &spare, (size_t)reserve);
out:
    device_release(dev, spare);
    c->chunks.keys = (struct packed_keys){c->code, c->scale};
    c->chunks.value = c->value;
    c->chunks.first_id = c->first_id;
    return s;
}

static enum status copy_make(struct device_keys *d, struct keys_copy *c, struct store_view *view,
                             struct store_keys *keys) {
    char line[LINE];
    const double start = clock_seconds(), gib = (double)copy_bytes(c) / (1 << 30);
    const enum status s = copy_allocate(c, d->dev, d->reserve);
    if (s == STATUS_NO_MEMORY)
        return fail(
            s,
            "%s: the keys of %lld chunks need %llu bytes (%.2f GiB) of the device's memory, which are not free: "
            "leave them in their files (--memory-keys stored)",
            store_view_path(view), (long long)c->chunks.chunks, (unsigned long long)copy_bytes(c), gib);
    TRY(s);
    TRY(copy_load(c, d->dev, view, keys));
    snprintf(line, sizeof line, "token memory: keys of %lld chunks, %.2f GiB on the GPU, loaded in %.2f s",
             (long long)c->chunks.chunks, gib, clock_seconds() - start);
    if (d->report) d->report(line);
    return STATUS_OK;
}

/* ---- who uses it ---- */

static bool is_same(const struct store_keys_spec *a, const struct store_keys_spec *b) {
    return memcmp(a->model, b->model, sizeof a->model) == 0 && a->layer == b->layer && a->size == b->size &&
           a->chunk_tokens == b->chunk_tokens;
}

enum status device_keys_take(struct device_keys *d, const struct packed_chunks **out, struct store_view *view,
                             struct store_keys *keys, const struct store_keys_spec *spec) {
    uint64_t identity;
    struct store_info info;
    TRY(store_view_identity(view, &identity));
    struct keys_copy *c = d->copies;
    while (c && !(c->identity == identity && is_same(&c->spec, spec)))
        c = c->next;
    if (!c) {
        device_keys_drop(d);
        store_view_info(view, &info);
        TRY(memory_allocate_zero(&c, 1));
        c->spec = *spec, c->identity = identity;
        c->chunks.chunks = info.chunks, c->chunks.chunk_rows = spec->chunk_tokens;
        const enum status s = copy_make(d, c, view, keys);
        if (s != STATUS_OK) {
            copy_free(c, d->dev);
            return s;
        }
        c->next = d->copies;
        d->copies = c;
    }
    c->users++;
    *out = &c->chunks;
    return STATUS_OK;
}

void device_keys_return(struct device_keys *d, const struct packed_chunks *copy) {
    if (!copy) return;
    struct keys_copy *c = d->copies;
    while (&c->chunks != copy)
        c = c->next;
    assert(c->users > 0);
    c->users--;
}
