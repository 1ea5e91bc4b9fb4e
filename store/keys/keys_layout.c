/* keys_layout.c -- see keys_layout.h. Numbers of the record are little-endian, 8 bytes each; its CRC32C follows. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "store/keys/keys_layout_internal.h"
#include "store/view_internal.h"

static const char key[] = "keys";
enum { NUMBER_BYTES = 8, CRC_BYTES = 4 };

static int64_t files_of(int64_t chunks) {
    return (chunks + STORE_KEYS_CHUNKS - 1) / STORE_KEYS_CHUNKS;
}

/* Fills the sections from the record's value; false: it is damaged. */
static bool sections_decode(struct keys_layout *l, struct bytes value) {
    const size_t body = value.size - CRC_BYTES;
    if (little_endian_get(value.data + body, CRC_BYTES) != crc32c(0, value.data, body)) return false;
    for (int64_t i = 0; i < l->sections; i++) {
        const int64_t first = (int64_t)little_endian_get(value.data + i * NUMBER_BYTES, NUMBER_BYTES);
        if (i == 0 ? first != 0 : first <= l->section[i - 1].chunk) return false;
        l->section[i].chunk = first;
    }
    return true;
}

enum status keys_layout_read(struct keys_layout *out, struct catalog_txn *t, const struct catalog *c, int64_t chunks) {
    struct keys_layout l = {.chunks = chunks, .sections = 1};
    struct bytes value = {0};
    const enum status found = catalog_get(t, &value, TABLE_META, key, sizeof key - 1);
    *out = (struct keys_layout){0};
    if (found != STATUS_NOT_FOUND) TRY(found);
    bool good = true;
    if (found == STATUS_OK) {
        good = value.size >= NUMBER_BYTES + CRC_BYTES && (value.size - CRC_BYTES) % NUMBER_BYTES == 0;
        l.sections = good ? (int64_t)((value.size - CRC_BYTES) / NUMBER_BYTES) : 1;
    }
    TRY(memory_allocate_zero(&l.section, (size_t)l.sections));
    if (good && found == STATUS_OK) good = sections_decode(&l, value);
    if (!good) {
        memory_free(l.section);
        return fail(STATUS_CORRUPT, "%s: record %s is damaged, run drt-index repair", catalog_path(c), key);
    }
    for (int64_t i = 0; i < l.sections; i++) {
        const int64_t end = i + 1 < l.sections ? min_i64(l.section[i + 1].chunk, chunks) : chunks;
        l.section[i].file = l.files;
        l.files += files_of(max_i64(end - l.section[i].chunk, 0));
    }
    *out = l;
    return STATUS_OK;
}

enum status keys_layout_open(struct keys_layout *out, struct store_view *view) {
    *out = (struct keys_layout){0};
    TRY(catalog_renew(view->txn));
    const enum status s = keys_layout_read(out, view->txn, view->store->catalog, view->generation.chunks);
    catalog_pause(view->txn);
    return s;
}

void keys_layout_free(struct keys_layout *l) {
    memory_free(l->section);
    *l = (struct keys_layout){0};
}

/* The last section whose first chunk (or file) is not above `number`. */
static const struct keys_section *section_of(const struct keys_layout *l, int64_t number, bool file) {
    int64_t low = 0, high = l->sections;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t first = file ? l->section[middle].file : l->section[middle].chunk;
        if (first <= number)
            low = middle;
        else
            high = middle;
    }
    return &l->section[low];
}

struct keys_range keys_layout_range(const struct keys_layout *l, int64_t file) {
    const struct keys_section *s = section_of(l, file, true);
    const int64_t end = s + 1 < l->section + l->sections ? min_i64(s[1].chunk, l->chunks) : l->chunks;
    const int64_t number = file - s->file, begin = s->chunk + number * STORE_KEYS_CHUNKS;
    return (struct keys_range){begin, min_i64(begin + STORE_KEYS_CHUNKS, end), number};
}

int64_t keys_layout_file(const struct keys_layout *l, int64_t chunk) {
    const struct keys_section *s = section_of(l, chunk, false);
    return s->file + (chunk - s->chunk) / STORE_KEYS_CHUNKS;
}

enum status record_put_sections(struct catalog_txn *t, const int64_t *first, int64_t n) {
    uint8_t *value;
    const size_t body = (size_t)n * NUMBER_BYTES;
    TRY(memory_allocate(&value, body + CRC_BYTES));
    for (int64_t i = 0; i < n; i++)
        little_endian_put(value + i * NUMBER_BYTES, (uint64_t)first[i], NUMBER_BYTES);
    little_endian_put(value + body, crc32c(0, value, body), CRC_BYTES);
    const enum status s = catalog_put(t, TABLE_META, key, sizeof key - 1, value, body + CRC_BYTES);
    memory_free(value);
    return s;
}

enum status record_remove_sections(struct catalog_txn *t) {
    return catalog_delete(t, TABLE_META, key, sizeof key - 1);
}
