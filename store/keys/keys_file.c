/* keys_file.c -- see keys_file_internal.h. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/keys/keys_file_internal.h"
#include "store/view_internal.h"
#include <stdio.h>
#include <string.h>

enum {
    FILE_VERSION = 2, /* 1: without the rounding */
    ROUNDING_AT = 80,
    WINDOW_MAX = 1024,
    NUMBER_MAX = 1 << 20 /* of size and tokens of a chunk: sizes of files cannot overflow */
};
static const char header_magic[8] = "DRTSKEYS", footer_magic[8] = "DRTKYEND";

enum status keys_path(char out[FILE_PATH_MAX], const char *store, int64_t number) {
    char name[64];
    snprintf(name, sizeof name, "keys/%05lld.keys", (long long)number);
    return file_join(out, store, name);
}
static uint64_t keys_scales_at(const struct store_keys_spec *s, int64_t chunks) {
    const uint64_t end = KEYS_HEADER_BYTES + (uint64_t)chunks * (uint64_t)s->chunk_tokens * (uint64_t)s->size;
    return (end + KEYS_ALIGN - 1) / KEYS_ALIGN * KEYS_ALIGN;
}
uint64_t keys_file_bytes(const struct store_keys_spec *s, int64_t chunks) {
    return keys_scales_at(s, chunks) + (uint64_t)chunks * (uint64_t)s->chunk_tokens * sizeof(float) + KEYS_FOOTER_BYTES;
}

void keys_header_make(uint8_t out[KEYS_HEADER_BYTES], const struct keys_head *h) {
    const int32_t numbers[] = {h->spec.layer, h->spec.size, h->spec.chunk_tokens, h->spec.window, h->spec.step};
    memset(out, 0, KEYS_HEADER_BYTES);
    memcpy(out, header_magic, 8);
    little_endian_put(out + 8, FILE_VERSION, 4);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        little_endian_put(out + 12 + 4 * i, (uint64_t)numbers[i], 4);
    memcpy(out + 32, h->spec.model, 16);
    little_endian_put(out + 48, (uint64_t)h->number, 8);
    little_endian_put(out + 56, (uint64_t)h->chunks, 8);
    memcpy(out + 64, h->anchor, 16);
    little_endian_put(out + ROUNDING_AT, (uint64_t)h->spec.rounding, 4);
}

static void header_read(struct keys_head *h, const uint8_t *from) {
    int32_t *numbers[] = {&h->spec.layer, &h->spec.size, &h->spec.chunk_tokens, &h->spec.window, &h->spec.step};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        *numbers[i] = (int32_t)little_endian_get(from + 12 + 4 * i, 4);
    memcpy(h->spec.model, from + 32, 16);
    h->number = (int64_t)little_endian_get(from + 48, 8);
    h->chunks = (int64_t)little_endian_get(from + 56, 8);
    memcpy(h->anchor, from + 64, 16);
    h->spec.rounding = (int32_t)little_endian_get(from + ROUNDING_AT, 4);
}

void keys_footer_make(uint8_t out[KEYS_FOOTER_BYTES], uint32_t crc) {
    memset(out, 0, KEYS_FOOTER_BYTES);
    memcpy(out, footer_magic, 8);
    little_endian_put(out + 8, crc, 4);
}

static bool same_spec(const struct store_keys_spec *have, const struct store_keys_spec *want) {
    return have->layer == want->layer && have->size == want->size && have->chunk_tokens == want->chunk_tokens &&
           (want->step == 0 || (have->window == want->window && have->step == want->step)) &&
           (want->rounding == STORE_KEYS_ANY || have->rounding == want->rounding) &&
           memcmp(have->model, want->model, sizeof have->model) == 0;
}

static bool in_bounds(const struct keys_head *h) {
    return h->spec.layer >= 1 && h->spec.size >= 1 && h->spec.size <= NUMBER_MAX && h->spec.chunk_tokens >= 1 &&
           h->spec.chunk_tokens <= NUMBER_MAX && h->spec.step >= 1 && h->spec.step <= h->spec.window &&
           h->spec.window <= WINDOW_MAX && h->chunks >= 1 && h->chunks <= STORE_KEYS_CHUNKS &&
           (h->spec.rounding == STORE_KEYS_F32 || h->spec.rounding == STORE_KEYS_BF16);
}

/* Messages end with the remedy. */
static enum status head_check(struct keys_head *h, const struct file_map *map, const char *path,
                              const struct store_keys_spec *spec, const char *model) {
    uint8_t again[KEYS_HEADER_BYTES];
    if (map->size < KEYS_HEADER_BYTES)
        return fail(STATUS_CORRUPT, "%s: %llu bytes, shorter than its header: run drt-index keys again", path,
                    (unsigned long long)map->size);
    if (memcmp(map->data, header_magic, 8) != 0)
        return fail(STATUS_CORRUPT, "%s: is not a file of keys: remove it and run drt-index keys again", path);
    if (little_endian_get(map->data + 8, 4) != FILE_VERSION)
        return fail(STATUS_VERSION, "%s: version %u, this program reads %d: run drt-index keys again", path,
                    (unsigned)little_endian_get(map->data + 8, 4), FILE_VERSION);
    header_read(h, map->data);
    if (spec && !same_spec(&h->spec, spec))
        return fail(STATUS_MISMATCH,
                    "%s: its keys were computed with other weights, layer or size than those of %s: run drt-index keys "
                    "--remove, then drt-index keys with this model",
                    path, model);
    keys_header_make(again, h);
    if (!in_bounds(h) || memcmp(map->data, again, KEYS_HEADER_BYTES) != 0)
        return fail(STATUS_CORRUPT, "%s: header is damaged: run drt-index keys again", path);
    return STATUS_OK;
}

static enum status file_check(struct keys_file *f, const char *path, const struct store_keys_spec *spec,
                              const char *model) {
    const struct file_map *m = &f->map;
    TRY(head_check(&f->head, m, path, spec, model));
    const uint64_t bytes = keys_file_bytes(&f->head.spec, f->head.chunks);
    if (m->size != bytes)
        return fail(STATUS_CORRUPT, "%s: %llu bytes, but %lld chunks need %llu: run drt-index keys again", path,
                    (unsigned long long)m->size, (long long)f->head.chunks, (unsigned long long)bytes);
    if (memcmp(m->data + m->size - KEYS_FOOTER_BYTES, footer_magic, 8) != 0)
        return fail(STATUS_CORRUPT, "%s: footer is damaged: run drt-index keys again", path);
    return STATUS_OK;
}

enum status keys_file_open(struct keys_file *out, const char *path, const struct store_keys_spec *spec,
                           const char *model) {
    struct keys_file f = {0};
    *out = f;
    if (!file_exists(path)) return fail(STATUS_NOT_FOUND, "%s: there is no such file: run drt-index keys", path);
    TRY(file_map(&f.map, path));
    const enum status s = file_check(&f, path, spec, model);
    if (s != STATUS_OK) {
        file_unmap(&f.map);
        return s;
    }
    *out = f;
    return STATUS_OK;
}

void keys_file_close(struct keys_file *f) {
    file_unmap(&f->map);
    *f = (struct keys_file){0};
}

enum status keys_file_verify(const struct keys_file *f, const char *path) {
    uint8_t footer[KEYS_FOOTER_BYTES];
    const size_t body = f->map.size - KEYS_FOOTER_BYTES;
    keys_footer_make(footer, crc32c(0, f->map.data, body));
    const bool same = memcmp(footer, f->map.data + body, KEYS_FOOTER_BYTES) == 0;
    file_release_pages(&f->map);
    if (same) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: its checksum is wrong: remove it and run drt-index keys again", path);
}

struct stored_file keys_file_recorded(const struct keys_file *f) {
    const uint8_t *footer = f->map.data + f->map.size - KEYS_FOOTER_BYTES;
    const uint32_t crc = (uint32_t)little_endian_get(footer + 8, 4);
    return (struct stored_file){.bytes = f->map.size, .crc = crc32c(crc, footer, KEYS_FOOTER_BYTES)};
}

struct store_key_rows keys_file_rows(const struct keys_file *f, int64_t chunk) {
    const struct store_keys_spec *s = &f->head.spec;
    const int64_t at = chunk * s->chunk_tokens;
    return (struct store_key_rows){
        .code = (const int8_t *)f->map.data + KEYS_HEADER_BYTES + at * s->size,
        .scale = (const float *)(const void *)(f->map.data + keys_scales_at(s, f->head.chunks)) + at};
}

enum status keys_anchor(uint8_t out[16], struct store_view *view, int64_t chunk) {
    struct store_chunk c;
    struct store_document d;
    int32_t *ids;
    memset(out, 0, 16);
    TRY(memory_allocate(&ids, (size_t)view->store->fingerprint.chunk_tokens));
    enum status s = store_view_chunk(view, &c, ids, chunk);
    memory_free(ids);
    if (s == STATUS_OK) s = store_view_document(view, &d, c.document);
    if (s == STATUS_OK) memcpy(out, d.hash, sizeof d.hash);
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

enum status keys_file_in(const struct keys_file *f, const char *path, struct keys_range range) {
    if (f->head.number == range.number) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: header is damaged, or of another file: run drt-index keys again", path);
}

/* A deleted document counts as 0, and so may differ between the time of writing and of reading. */
enum status keys_file_fits(const struct keys_file *f, const char *path, struct store_view *view,
                           struct keys_range range) {
    static const uint8_t none[16];
    uint8_t anchor[16];
    TRY(keys_file_in(f, path, range));
    TRY(keys_anchor(anchor, view, range.begin));
    if (memcmp(anchor, f->head.anchor, 16) != 0 && memcmp(anchor, none, 16) != 0 &&
        memcmp(f->head.anchor, none, 16) != 0)
        return fail(STATUS_CORRUPT, "%s: is of another store: remove it and run drt-index keys again", path);
    return STATUS_OK;
}
