/* deleted_records.c -- see deleted_records_internal.h. The value of a record: first chunk, chunks,
 * tokens (u64), CRC32C. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/catalog/deleted_records_internal.h"

enum { FIELDS = 3, FIELD_BYTES = 8 * FIELDS, VALUE_BYTES = FIELD_BYTES + 4 };

enum status record_put_deleted(struct catalog_txn *t, const struct deleted_record *r) {
    const int64_t fields[FIELDS] = {r->first_chunk, r->chunks, r->tokens};
    uint8_t value[VALUE_BYTES];
    for (int i = 0; i < FIELDS; i++)
        little_endian_put(value + 8 * i, (uint64_t)fields[i], 8);
    little_endian_put(value + FIELD_BYTES, crc32c(0, value, FIELD_BYTES), 4);
    struct catalog_key key = catalog_key((uint64_t)r->document);
    return catalog_put(t, TABLE_DELETED, key.bytes, sizeof key.bytes, value, sizeof value);
}

enum status record_is_deleted(struct catalog_txn *t, int64_t document, bool *yes) {
    struct catalog_key key = catalog_key((uint64_t)document);
    struct bytes value;
    enum status s = catalog_get(t, &value, TABLE_DELETED, key.bytes, sizeof key.bytes);
    *yes = s == STATUS_OK;
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

static enum status record_decode_deleted(struct bytes key, struct bytes value, const struct catalog *c,
                                         struct deleted_record *out) {
    uint64_t document = catalog_key_number(key), fields[FIELDS] = {0};
    bool good = document < INT64_MAX && value.size == VALUE_BYTES &&
                little_endian_get(value.data + FIELD_BYTES, 4) == crc32c(0, value.data, FIELD_BYTES);
    for (int i = 0; i < FIELDS && good; i++) {
        fields[i] = little_endian_get(value.data + 8 * i, 8);
        good = fields[i] <= (uint64_t)INT64_MAX / 1024; /* small enough that sums cannot overflow */
    }
    *out = (struct deleted_record){(int64_t)document, (int64_t)fields[0], (int64_t)fields[1], (int64_t)fields[2]};
    if (good && out->chunks > 0) return STATUS_OK;
    return fail(STATUS_CORRUPT, "%s: record of deleted document %lld is damaged, run drt-index repair", catalog_path(c),
                (long long)document);
}

static enum status list_add(struct deleted_list *list, size_t *capacity, const struct deleted_record *r,
                            const struct catalog *c) {
    struct store_range *last = list->n > 0 ? &list->ranges[list->n - 1] : NULL;
    int64_t end = r->first_chunk + r->chunks;
    list->documents++;
    list->chunks += r->chunks;
    list->tokens += r->tokens;
    if (last && r->first_chunk < last->end)
        return fail(STATUS_CORRUPT, "%s: deleted document %lld is out of order, run drt-index repair", catalog_path(c),
                    (long long)r->document);
    if (last && r->first_chunk == last->end) {
        last->end = end;
        return STATUS_OK;
    }
    TRY(memory_grow(&list->ranges, capacity, (size_t)list->n + 1));
    list->ranges[list->n++] = (struct store_range){r->first_chunk, end};
    return STATUS_OK;
}

enum status record_list_deleted(struct catalog_txn *t, const struct catalog *c, struct deleted_list *out,
                                int64_t documents) {
    struct deleted_list list = {0};
    struct catalog_walk *walk;
    size_t capacity = 0;
    TRY(catalog_walk_begin(&walk, t, TABLE_DELETED, 0));
    enum status s = STATUS_OK;
    while (s == STATUS_OK) {
        bool more = false;
        struct bytes key, value;
        struct deleted_record r;
        s = catalog_walk_next(walk, &more, &key, &value);
        if (s != STATUS_OK || !more) break;
        s = record_decode_deleted(key, value, c, &r);
        if (s == STATUS_OK && r.document >= documents) break;
        if (s == STATUS_OK) s = list_add(&list, &capacity, &r, c);
    }
    catalog_walk_end(walk);
    if (s == STATUS_OK)
        *out = list;
    else
        memory_free(list.ranges);
    return s;
}
