/* part_record.c -- see part_record_internal.h. Numbers are little-endian; a value ends with its CRC32C. */
#include "base/little_endian.h"
#include "base/system/fault.h"
#include "store/catalog/record_format_internal.h"
#include "store/parts/part_record_internal.h"
#include "store/writer_internal.h"
#include <string.h>

enum {
    PART_FIELDS = 6,
    PART_BYTES = 16 + 8 * PART_FIELDS,
    JOINED_BYTES = 16 + 16,
    INDEXED_BYTES = 16,
    ENCODED_BYTES = 8
};

enum status record_get_part(struct catalog_txn *t, const struct catalog *c, struct part_record *out) {
    const uint8_t *value = NULL;
    int64_t v[PART_FIELDS];
    bool found;
    *out = (struct part_record){0};
    TRY(record_get_checked(t, c, "part", &value, PART_BYTES, &found));
    if (!found) return STATUS_OK;
    for (int i = 0; i < PART_FIELDS; i++)
        v[i] = (int64_t)little_endian_get(value + 16 + 8 * i, 8);
    if (v[1] < 1 || v[1] > INT32_MAX || v[0] < 1 || v[0] > v[1])
        return fail(STATUS_CORRUPT, "%s: record part is damaged, run drt-index verify", catalog_path(c));
    out->part = (struct store_part){.part = (int)v[0], .parts = (int)v[1]};
    memcpy(out->part.corpus, value, 16);
    out->finished = v[2] != 0;
    out->shards = v[3];
    out->documents = v[4];
    out->chunks = v[5];
    return STATUS_OK;
}

enum status record_put_part(struct catalog_txn *t, const struct part_record *r) {
    const int64_t v[PART_FIELDS] = {r->part.part, r->part.parts, r->finished, r->shards, r->documents, r->chunks};
    uint8_t value[PART_BYTES + 4];
    memcpy(value, r->part.corpus, 16);
    for (int i = 0; i < PART_FIELDS; i++)
        little_endian_put(value + 16 + 8 * i, (uint64_t)v[i], 8);
    return record_put_checked(t, "part", value, PART_BYTES);
}

enum status record_get_joined(struct catalog_txn *t, const struct catalog *c, struct joined_record *out) {
    const uint8_t *value = NULL;
    bool found;
    *out = (struct joined_record){0};
    TRY(record_get_checked(t, c, "joined", &value, JOINED_BYTES, &found));
    if (!found) return STATUS_OK;
    memcpy(out->corpus, value, 16);
    out->parts = (int64_t)little_endian_get(value + 16, 8);
    out->contents = (uint32_t)little_endian_get(value + 24, 8);
    return STATUS_OK;
}

enum status record_put_joined(struct catalog_txn *t, const struct joined_record *r) {
    uint8_t value[JOINED_BYTES + 4];
    memcpy(value, r->corpus, 16);
    little_endian_put(value + 16, (uint64_t)r->parts, 8);
    little_endian_put(value + 24, r->contents, 8);
    return record_put_checked(t, "joined", value, JOINED_BYTES);
}

enum status record_get_indexed(struct catalog_txn *t, const struct catalog *c, struct indexed_record *out) {
    const uint8_t *value = NULL;
    bool found;
    *out = (struct indexed_record){0};
    TRY(record_get_checked(t, c, "indexed", &value, INDEXED_BYTES, &found));
    if (!found) return STATUS_OK;
    out->template_number = (int64_t)little_endian_get(value, 8);
    out->plan = (uint32_t)little_endian_get(value + 8, 8);
    return STATUS_OK;
}

enum status record_put_indexed(struct catalog_txn *t, const struct indexed_record *r) {
    uint8_t value[INDEXED_BYTES + 4];
    little_endian_put(value, (uint64_t)r->template_number, 8);
    little_endian_put(value + 8, r->plan, 8);
    return record_put_checked(t, "indexed", value, INDEXED_BYTES);
}

enum status record_get_encoded(struct catalog_txn *t, const struct catalog *c, int64_t *out) {
    const uint8_t *value = NULL;
    bool found;
    *out = 0;
    TRY(record_get_checked(t, c, "encoded", &value, ENCODED_BYTES, &found));
    if (found) *out = (int64_t)little_endian_get(value, 8);
    return STATUS_OK;
}

enum status record_add_encoded(struct catalog_txn *t, const struct catalog *c) {
    uint8_t value[ENCODED_BYTES + 4];
    int64_t count;
    TRY(record_get_encoded(t, c, &count));
    little_endian_put(value, (uint64_t)count + 1, 8);
    return record_put_checked(t, "encoded", value, ENCODED_BYTES);
}

/* ---- the writer's part ---- */

static enum status put_part(struct store_writer *w, const struct part_record *r) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, w->catalog, true));
    enum status s = record_put_part(t, r);
    if (s == STATUS_OK) s = fault_point("store:part:before-commit");
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    return fault_point("store:part:committed");
}

static enum status check_part(const struct store_writer *w, const struct part_record *r,
                              const struct store_part *part) {
    if (r->part.parts == 0 && w->sealed.shards > 0)
        return fail(STATUS_MISMATCH, "%s: is a store, and not a part of one: choose another folder", w->dir);
    if (r->part.parts == 0) return STATUS_OK;
    if (r->part.part != part->part || r->part.parts != part->parts)
        return fail(STATUS_MISMATCH, "%s: is part %d of %d, not part %d of %d: choose another folder", w->dir,
                    r->part.part, r->part.parts, part->part, part->parts);
    if (memcmp(r->part.corpus, part->corpus, sizeof part->corpus) != 0)
        return fail(STATUS_MISMATCH,
                    "%s: was begun with another corpus (names, sizes) or other options (--format, --text-field, "
                    "--eod-id, --shard-chunks): run the same command again, or remove this folder",
                    w->dir);
    return STATUS_OK;
}

enum status store_writer_part(struct store_writer *w, const struct store_part *part, bool *finished) {
    struct part_record r;
    struct catalog_txn *t;
    TRY(catalog_begin(&t, w->catalog, false));
    enum status s = record_get_part(t, w->catalog, &r);
    catalog_abort(t);
    TRY(s);
    TRY(check_part(w, &r, part));
    *finished = r.finished && r.chunks == 0;
    w->part = *part;
    const struct part_record begun = {.part = *part};
    return r.part.parts == 0 ? put_part(w, &begun) : STATUS_OK;
}

enum status store_writer_part_empty(struct store_writer *w) {
    const struct part_record r = {.part = w->part, .finished = true};
    return put_part(w, &r);
}

enum status store_view_part(struct store_view *v, struct store_part *out) {
    struct part_record r;
    TRY(catalog_renew(v->txn));
    enum status s = record_get_part(v->txn, v->store->catalog, &r);
    catalog_pause(v->txn);
    *out = r.part;
    return s;
}
