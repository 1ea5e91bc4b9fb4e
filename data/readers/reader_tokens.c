/* reader_tokens.c -- raw little-endian u16 or u32 ids. Documents end at the end-of-document id, which is dropped. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include <string.h>

static uint32_t id_at(const struct tokens *t, size_t i) {
    const uint8_t *p = t->map.data + i * (size_t)t->width;
    uint32_t low = p[0] | (uint32_t)p[1] << 8;
    return t->width == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void tokens_copy(uint32_t *restrict ids, const struct tokens *t, size_t begin, size_t n) {
    const uint8_t *from = t->map.data + begin * (size_t)t->width;
    for (size_t i = 0; i < n && t->width == 2; i++) {
        uint16_t id;
        memcpy(&id, from + 2 * i, sizeof id); /* numbers are little-endian here, too */
        ids[i] = id;
    }
    if (t->width != 2) memcpy(ids, from, n * sizeof *ids);
}

/* The number of ids from `begin` until the first end-of-document id, at most n. Ids are compared in blocks without a
 * branch for each, so that it can be vector code. */
static size_t tokens_until_end(const struct tokens *t, size_t begin, size_t n, int64_t end) {
    enum { BLOCK = 64 };
    size_t i = 0;
    if (end < 0) return n;
    for (unsigned found = 0; i + BLOCK <= n; i += BLOCK) {
        uint32_t ids[BLOCK];
        tokens_copy(ids, t, begin + i, BLOCK);
        for (int k = 0; k < BLOCK; k++)
            found |= ids[k] == (uint32_t)end;
        if (found) break;
    }
    while (i < n && (int64_t)id_at(t, begin + i) != end)
        i++;
    return i;
}

/* Moves to the first document that begins at or after this byte. */
static enum status tokens_skip_to(struct reader *r, uint64_t begin) {
    const struct tokens *t = &r->tokens;
    size_t width = (size_t)t->width, count = t->map.size / width, at = (size_t)((begin + width - 1) / width);
    while (at > 0 && at < count && (int64_t)id_at(t, at - 1) != r->eod_id)
        at++;
    r->position.offset = (at < count ? at : count) * width;
    return STATUS_OK;
}

enum status tokens_open(struct reader *r) {
    struct tokens *t = &r->tokens;
    const struct input_file *f = reader_file(r);
    t->width = f->format == READER_U16 ? 2 : 4;
    if (r->eod_id >= 0 && r->eod_id > (t->width == 2 ? UINT16_MAX : UINT32_MAX))
        return fail(STATUS_INVALID, "%s: the end-of-document id %lld does not fit into %d bytes", f->path,
                    (long long)r->eod_id, t->width);
    TRY(file_map(&t->map, f->path));
    if (t->map.size % (size_t)t->width != 0)
        return fail(STATUS_INVALID, "%s: its size of %zu bytes is not a multiple of %d; is it really %s?", f->path,
                    t->map.size, t->width, t->width == 2 ? "u16" : "u32");
    return tokens_skip_to(r, f->begin);
}

enum status tokens_pass(struct reader *r, uint64_t offset) {
    const struct file_map *map = &r->tokens.map;
    size_t begin = (size_t)r->position.offset, end = offset < map->size ? (size_t)offset : map->size;
    if (end > begin) reader_part_add(r, map->data + begin, end - begin);
    r->position.offset = end;
    return STATUS_OK;
}

void tokens_close(struct reader *r) {
    file_unmap(&r->tokens.map);
    r->tokens.map = (struct file_map){0};
}

enum status tokens_next(struct reader *r, struct document *d, int *more) {
    struct tokens *t = &r->tokens;
    size_t width = (size_t)t->width, begin = r->position.offset / width, count = t->map.size / width;
    *more = begin < count && r->position.offset < reader_file(r)->end;
    if (!*more) return STATUS_OK;
    const size_t most = (size_t)(r->max_bytes / width) + (r->max_bytes % width > 0), left = count - begin;
    const size_t n = tokens_until_end(t, begin, left <= most ? left : most + 1, r->eod_id);
    if (n > most)
        return fail(
            STATUS_UNSUPPORTED,
            "%s: the document at byte %llu is longer than the limit of %llu bytes; is %lld the end-of-document id?",
            reader_file(r)->path, (unsigned long long)r->position.offset, (unsigned long long)r->max_bytes,
            (long long)r->eod_id);
    TRY(memory_grow(&t->ids, &t->ids_capacity, n + 1));
    tokens_copy(t->ids, t, begin, n);
    d->ids = t->ids;
    d->n_ids = n;
    d->offset = begin * width;
    size_t next = (begin + n + (n < left)) * width;
    reader_part_add(r, t->map.data + d->offset, next - d->offset);
    r->position.offset = next;
    return STATUS_OK;
}
