/* document_records.c -- the records of documents: tables runs, documents and hashes. See records_internal.h. */
#include "base/memory.h"
#include "store/catalog/document_records_internal.h"
#include "store/catalog/record_value_internal.h"

enum status record_decode_run(struct bytes value, const struct catalog *c, struct run_record *out) {
    struct value_reader r = value_reader_of(value);
    out->document = value_get_count(&r);
    out->shard = value_get_count(&r);
    out->token_offset = value_get_count(&r);
    out->tokens = value_get_count(&r);
    out->chunks = value_get_count(&r);
    if (!value_finished(&r) || out->chunks < 1 || out->tokens < 1)
        return record_damaged(c, "the run of document", out->document);
    return STATUS_OK;
}

size_t run_record_encode(uint8_t out[RUN_RECORD_BYTES], const struct run_record *run) {
    struct value_writer w = {out};
    value_put_i64(&w, run->document);
    value_put_i64(&w, run->shard);
    value_put_i64(&w, run->token_offset);
    value_put_i64(&w, run->tokens);
    value_put_i64(&w, run->chunks);
    return value_seal(&w, out);
}

enum status record_append_run(struct catalog_txn *t, int64_t first_chunk, const struct run_record *run) {
    uint8_t value[RUN_RECORD_BYTES];
    return record_append(t, TABLE_RUNS, first_chunk, value, run_record_encode(value, run));
}

enum status record_find_run(struct catalog_txn *t, const struct catalog *c, int64_t *first_chunk,
                            struct run_record *out, int64_t chunk) {
    uint64_t found;
    struct bytes value;
    enum status s = catalog_get_floor(t, &found, &value, TABLE_RUNS, (uint64_t)chunk);
    if (s == STATUS_NOT_FOUND) return record_damaged(c, "the run of chunk", chunk);
    TRY(s);
    TRY(record_decode_run(value, c, out));
    if (found > (uint64_t)chunk || chunk - (int64_t)found >= out->chunks)
        return record_damaged(c, "the run of chunk", chunk);
    *first_chunk = (int64_t)found;
    return STATUS_OK;
}

enum status record_decode_document(struct bytes value, const struct catalog *c, struct document_record *out) {
    struct value_reader r = value_reader_of(value);
    out->first_chunk = value_get_count(&r);
    out->chunks = value_get_count(&r);
    out->tokens = value_get_count(&r);
    out->shard = value_get_count(&r);
    out->token_offset = value_get_count(&r);
    out->offset = value_get(&r, 8);
    out->line = value_get(&r, 8);
    out->bytes = value_get(&r, 8);
    const uint8_t *hash = value_get_bytes(&r, 16);
    out->source_bytes = value_get(&r, 4);
    out->key_bytes = value_get(&r, 4);
    out->source = (const char *)value_get_bytes(&r, out->source_bytes);
    out->key = (const char *)value_get_bytes(&r, out->key_bytes);
    if (!value_finished(&r) || !hash) return record_damaged(c, "document with chunk", out->first_chunk);
    memcpy(out->hash, hash, 16);
    return STATUS_OK;
}

enum status record_get_document(struct catalog_txn *t, const struct catalog *c, struct document_record *out,
                                int64_t document) {
    struct catalog_key key = catalog_key((uint64_t)document);
    struct bytes value;
    enum status s = catalog_get(t, &value, TABLE_DOCUMENTS, key.bytes, sizeof key.bytes);
    if (s == STATUS_NOT_FOUND) return record_damaged(c, "document", document);
    TRY(s);
    return record_decode_document(value, c, out);
}

size_t document_record_bytes(const struct document_record *d) {
    return DOCUMENT_RECORD_FIXED + d->source_bytes + d->key_bytes;
}

size_t document_record_encode(uint8_t *out, const struct document_record *d) {
    struct value_writer w = {out};
    value_put_i64(&w, d->first_chunk);
    value_put_i64(&w, d->chunks);
    value_put_i64(&w, d->tokens);
    value_put_i64(&w, d->shard);
    value_put_i64(&w, d->token_offset);
    value_put(&w, d->offset, 8);
    value_put(&w, d->line, 8);
    value_put(&w, d->bytes, 8);
    memcpy(w.at, d->hash, 16);
    w.at += 16;
    value_put(&w, d->source_bytes, 4);
    value_put(&w, d->key_bytes, 4);
    memcpy(w.at, d->source, d->source_bytes);
    w.at += d->source_bytes;
    memcpy(w.at, d->key, d->key_bytes);
    w.at += d->key_bytes;
    return value_seal(&w, out);
}

enum status record_append_document(struct catalog_txn *t, int64_t document, const struct document_record *d) {
    uint8_t *value;
    TRY(memory_allocate(&value, document_record_bytes(d)));
    enum status s = record_append(t, TABLE_DOCUMENTS, document, value, document_record_encode(value, d));
    memory_free(value);
    return s;
}

enum status record_find_hash(struct catalog_txn *t, const uint8_t hash[16], bool *found, int64_t *document) {
    struct bytes value;
    enum status s = catalog_get(t, &value, TABLE_HASHES, hash, 16);
    *found = s == STATUS_OK;
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    struct value_reader r = value_reader_of(value);
    *document = value_get_count(&r);
    if (!value_finished(&r)) *document = -1; /* the hash exists, and the writer needs no more */
    return STATUS_OK;
}

enum { HASH_RECORD_BYTES = 8 + VALUE_CRC_BYTES };

static size_t hash_record_encode(uint8_t out[HASH_RECORD_BYTES], int64_t document) {
    struct value_writer w = {out};
    value_put_i64(&w, document);
    return value_seal(&w, out);
}

enum status record_put_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document) {
    uint8_t value[HASH_RECORD_BYTES];
    return catalog_put(t, TABLE_HASHES, hash, 16, value, hash_record_encode(value, document));
}

enum status record_append_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document) {
    uint8_t value[HASH_RECORD_BYTES];
    return catalog_append(t, TABLE_HASHES, hash, 16, value, hash_record_encode(value, document));
}

enum status record_add_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document) {
    uint8_t value[HASH_RECORD_BYTES];
    return catalog_add(t, TABLE_HASHES, hash, 16, value, hash_record_encode(value, document));
}

enum status document_record_copy(struct store_document *out, char **text, size_t *capacity, int64_t number,
                                 const struct document_record *r) {
    TRY(memory_grow(text, capacity, r->source_bytes + r->key_bytes + 2));
    char *source = *text, *key = *text + r->source_bytes + 1;
    memcpy(source, r->source, r->source_bytes);
    source[r->source_bytes] = 0;
    memcpy(key, r->key, r->key_bytes);
    key[r->key_bytes] = 0;
    *out = (struct store_document){.id = number,
                                   .first_chunk = r->first_chunk,
                                   .chunks = r->chunks,
                                   .tokens = r->tokens,
                                   .offset = r->offset,
                                   .line = r->line,
                                   .bytes = r->bytes,
                                   .source = source,
                                   .key = key};
    memcpy(out->hash, r->hash, sizeof out->hash);
    return STATUS_OK;
}
