/* records.c -- encodes and checks the bytes of the catalog's records, which are the same on every machine. Those of
 * documents are in document_records.c. */
#include "base/memory.h"
#include "store/catalog/record_value_internal.h"

enum { FORMAT_WITH_CHECKSUM = 3, FILE_SHARDS_BYTES = 40 };

/* ---- meta ---- */

enum status record_get_fingerprint(struct catalog_txn *t, const struct catalog *c, struct store_fingerprint *out,
                                   int *format) {
    struct bytes value;
    enum status s = catalog_get(t, &value, TABLE_META, "format", 6);
    if (s == STATUS_NOT_FOUND)
        return fail(STATUS_NOT_FOUND, "%s: the store has no contents yet, build it first", catalog_path(c));
    TRY(s);
    struct value_reader r = value_reader_of(value);
    uint64_t version = value_get(&r, 4);
    if (version > STORE_FORMAT_VERSION)
        return fail(STATUS_VERSION,
                    "%s: the store has format version %llu, this program reads up to %d: use a newer program",
                    catalog_path(c), (unsigned long long)version, STORE_FORMAT_VERSION);
    bool checked = r.at != r.end;
    if (!value_finished(&r) || (version >= FORMAT_WITH_CHECKSUM && !checked)) return record_damaged(c, "format", 0);
    if (format) *format = (int)version;
    s = catalog_get(t, &value, TABLE_META, "fingerprint", 11);
    if (s == STATUS_NOT_FOUND) return record_damaged(c, "fingerprint", 0);
    TRY(s);
    r = value_reader_of(value);
    const uint8_t *encoder = value_get_bytes(&r, 16), *tokenizer = value_get_bytes(&r, 16);
    if (!encoder || !tokenizer) return record_damaged(c, "fingerprint", 0);
    memcpy(out->encoder, encoder, 16);
    memcpy(out->tokenizer, tokenizer, 16);
    out->chunk_tokens = (int32_t)value_get(&r, 4);
    out->dim = (int32_t)value_get(&r, 4);
    out->vocab_size = (int32_t)value_get(&r, 4);
    out->metric = (int32_t)value_get(&r, 4);
    if (!value_finished(&r) || out->chunk_tokens < 1 || out->chunk_tokens > 65536 ||
        out->dim < (version > STORE_FORMAT_F16 ? 0 : 1) || out->dim > 65536 || out->vocab_size < 1)
        return record_damaged(c, "fingerprint", 0);
    return STATUS_OK;
}

enum status record_put_fingerprint(struct catalog_txn *t, const struct store_fingerprint *f) {
    uint8_t buffer[VALUE_FIXED_MAX];
    struct value_writer w = {buffer};
    memcpy(w.at, f->encoder, 16);
    memcpy(w.at + 16, f->tokenizer, 16);
    w.at += 32;
    value_put(&w, (uint32_t)f->chunk_tokens, 4);
    value_put(&w, (uint32_t)f->dim, 4);
    value_put(&w, (uint32_t)f->vocab_size, 4);
    value_put(&w, (uint32_t)f->metric, 4);
    return catalog_put(t, TABLE_META, "fingerprint", 11, buffer, value_seal(&w, buffer));
}

enum status record_get_index(struct catalog_txn *t, const struct catalog *c, struct index_record *out) {
    struct bytes value;
    *out = (struct index_record){.next_number = 1};
    enum status s = catalog_get(t, &value, TABLE_META, "index", 5);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    struct value_reader r = value_reader_of(value);
    out->chosen = value_get(&r, 1) != 0;
    out->template_number = value_get_count(&r);
    out->trained_chunks = value_get_count(&r);
    out->template_file = value_get_file(&r);
    out->next_number = value_get_count(&r);
    size_t length = value_get(&r, 1);
    const uint8_t *text = value_get_bytes(&r, length);
    if (!text || !value_finished(&r) || memchr(text, 0, length)) return record_damaged(c, "index", 0);
    memcpy(out->factory, text, length);
    return STATUS_OK;
}

enum status record_put_index(struct catalog_txn *t, const struct index_record *r) {
    uint8_t buffer[VALUE_FIXED_MAX + RECORD_INDEX_MAX];
    struct value_writer w = {buffer};
    value_put(&w, r->chosen, 1);
    value_put_i64(&w, r->template_number);
    value_put_i64(&w, r->trained_chunks);
    value_put_file(&w, r->template_file);
    value_put_i64(&w, r->next_number);
    size_t length = strnlen(r->factory, RECORD_INDEX_MAX - 1);
    value_put(&w, length, 1);
    memcpy(w.at, r->factory, length);
    w.at += length;
    return catalog_put(t, TABLE_META, "index", 5, buffer, value_seal(&w, buffer));
}

/* ---- generations ---- */

enum status record_decode_generation(struct bytes key, struct bytes value, const struct catalog *c,
                                     struct generation_record *out) {
    uint64_t number = catalog_key_number(key);
    struct value_reader r = value_reader_of(value);
    *out = (struct generation_record){.number = (int64_t)number};
    out->chunks = value_get_count(&r);
    out->documents = value_get_count(&r);
    out->tokens = value_get_count(&r);
    out->shards = value_get_count(&r);
    out->duplicates = value_get_count(&r);
    if (!value_finished(&r) || number >= INT64_MAX) return record_damaged(c, "generation", (int64_t)number);
    return STATUS_OK;
}

enum status record_get_generation(struct catalog_txn *t, const struct catalog *c, struct generation_record *out) {
    uint64_t number;
    struct bytes value;
    *out = (struct generation_record){0};
    enum status s = catalog_get_last(t, &number, &value, TABLE_GENERATIONS);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    /* Numbers start at 1 without gaps. They are checked because a key has no checksum. */
    if (number != catalog_count(t, TABLE_GENERATIONS)) return record_damaged(c, "generation", (int64_t)number);
    struct catalog_key key = catalog_key(number);
    return record_decode_generation((struct bytes){key.bytes, sizeof key.bytes}, value, c, out);
}

enum status record_put_generation(struct catalog_txn *t, const struct generation_record *g) {
    uint8_t buffer[VALUE_FIXED_MAX];
    struct value_writer w = {buffer};
    value_put_i64(&w, g->chunks);
    value_put_i64(&w, g->documents);
    value_put_i64(&w, g->tokens);
    value_put_i64(&w, g->shards);
    value_put_i64(&w, g->duplicates);
    return record_append(t, TABLE_GENERATIONS, g->number, buffer, value_seal(&w, buffer));
}

/* ---- shards ---- */

enum status record_decode_shard(struct bytes key, struct bytes value, const struct catalog *c,
                                struct shard_record *out) {
    uint64_t number = catalog_key_number(key);
    struct value_reader r = value_reader_of(value);
    *out = (struct shard_record){
        .number = (int64_t)number, .first_file_shard = (int64_t)number, .last_file_shard = (int64_t)number};
    out->first_chunk = value_get_count(&r);
    out->chunks = value_get_count(&r);
    out->first_document = value_get_count(&r);
    out->documents = value_get_count(&r);
    out->first_token = value_get_count(&r);
    out->tokens = value_get_count(&r);
    out->duplicates = value_get_count(&r);
    out->token_file = value_get_file(&r);
    out->landmark_file = value_get_file(&r);
    out->cursor_bytes = value_get(&r, 4);
    out->cursor = value_get_bytes(&r, out->cursor_bytes);
    if (r.end - r.at > VALUE_CRC_BYTES) {
        out->first_file_shard = value_get_count(&r);
        out->last_file_shard = value_get_count(&r);
    }
    out->foreign = r.end - r.at > VALUE_CRC_BYTES;
    if (out->foreign) {
        out->file_number = value_get_count(&r);
        out->file_chunk = value_get_count(&r);
        out->file_token = value_get_count(&r);
    }
    if (!value_finished(&r) || out->cursor_bytes > STORE_CURSOR_MAX || number >= INT64_MAX ||
        out->first_file_shard > out->number || out->last_file_shard < out->number)
        return record_damaged(c, "shard", (int64_t)number);
    return STATUS_OK;
}

enum status record_get_shard(struct catalog_txn *t, const struct catalog *c, struct shard_record *out, int64_t number) {
    struct catalog_key key = catalog_key((uint64_t)number);
    struct bytes value;
    TRY(catalog_get(t, &value, TABLE_SHARDS, key.bytes, sizeof key.bytes));
    return record_decode_shard((struct bytes){key.bytes, sizeof key.bytes}, value, c, out);
}

enum status record_names_shard_file(struct catalog_txn *t, const struct catalog *c, int64_t first, int64_t last,
                                    bool *yes) {
    *yes = false;
    for (int64_t i = first; i <= last && !*yes; i++) {
        struct shard_record r;
        enum status s = record_get_shard(t, c, &r, i);
        if (s == STATUS_NOT_FOUND) return STATUS_OK;
        *yes = s == STATUS_CORRUPT;
        if (*yes) return STATUS_OK;
        TRY(s);
        if (r.first_file_shard != first || r.last_file_shard != last) return STATUS_OK;
        *yes = !shard_is_dropped(&r);
    }
    return STATUS_OK;
}

enum status record_put_shard(struct catalog_txn *t, const struct shard_record *s) {
    uint8_t buffer[VALUE_FIXED_MAX + STORE_CURSOR_MAX + FILE_SHARDS_BYTES];
    struct value_writer w = {buffer};
    value_put_i64(&w, s->first_chunk);
    value_put_i64(&w, s->chunks);
    value_put_i64(&w, s->first_document);
    value_put_i64(&w, s->documents);
    value_put_i64(&w, s->first_token);
    value_put_i64(&w, s->tokens);
    value_put_i64(&w, s->duplicates);
    value_put_file(&w, s->token_file);
    value_put_file(&w, s->landmark_file);
    value_put(&w, s->cursor_bytes, 4);
    if (s->cursor_bytes) memcpy(w.at, s->cursor, s->cursor_bytes);
    w.at += s->cursor_bytes;
    if (s->first_file_shard != s->last_file_shard || s->foreign) { /* otherwise the record has the layout of format 2 */
        value_put_i64(&w, s->first_file_shard);
        value_put_i64(&w, s->last_file_shard);
    }
    if (s->foreign) {
        value_put_i64(&w, s->file_number);
        value_put_i64(&w, s->file_chunk);
        value_put_i64(&w, s->file_token);
    }
    struct catalog_key key = catalog_key((uint64_t)s->number);
    return catalog_put(t, TABLE_SHARDS, key.bytes, sizeof key.bytes, buffer, value_seal(&w, buffer));
}

enum status record_get_sealed(struct catalog_txn *t, const struct catalog *c, struct generation_record *out,
                              const struct generation_record *published, int64_t *loose) {
    int64_t counted = 0;
    *out = (struct generation_record){0};
    struct catalog_walk *walk;
    TRY(catalog_walk_begin(&walk, t, TABLE_SHARDS, 0));
    enum status s;
    for (;;) {
        bool more;
        struct bytes key, value;
        TRY_GOTO(s, catalog_walk_next(walk, &more, &key, &value), out);
        if (!more) break;
        struct shard_record r;
        TRY_GOTO(s, record_decode_shard(key, value, c, &r), out);
        if (r.number != out->shards || r.first_chunk != out->chunks || r.first_document != out->documents ||
            r.first_token != out->tokens) {
            s = record_damaged(c, "shard", r.number);
            goto out;
        }
        out->shards++;
        out->chunks += r.chunks;
        out->documents += r.documents;
        out->tokens += r.tokens;
        out->duplicates += r.duplicates;
        if (published && out->shards == published->shards) counted = out->duplicates;
    }
    out->number = out->shards;
    if (loose) *loose = published->duplicates > counted ? published->duplicates - counted : 0;
out:
    catalog_walk_end(walk);
    return s;
}

static bool stored_files_equal(struct stored_file a, struct stored_file b) {
    return a.bytes == b.bytes && a.crc == b.crc;
}

/* All shards of one file must record the same range of shards, which must end within the list. `file`: the first of
 * these shards that is not dropped, or -1. */
static bool shard_file_agrees(const struct shard_record *list, int64_t i, int64_t count, int64_t file) {
    const struct shard_record *r = &list[i], *before = r - 1;
    if (r->last_file_shard >= count) return false;
    if (r->first_file_shard == i) return i == 0 || before->last_file_shard == i - 1;
    if (i == 0 || before->first_file_shard != r->first_file_shard || before->last_file_shard != r->last_file_shard)
        return false;
    return shard_is_dropped(r) || file < 0 ||
           (stored_files_equal(list[file].token_file, r->token_file) &&
            stored_files_equal(list[file].landmark_file, r->landmark_file));
}

struct shard_record record_of_shard_file(const struct shard_record *list, int64_t i) {
    struct shard_record file = list[list[i].first_file_shard], last = list[list[i].last_file_shard];
    for (int64_t s = file.number; s <= last.number && shard_is_dropped(&file); s++) {
        file.token_file = list[s].token_file;
        file.landmark_file = list[s].landmark_file;
    }
    file.chunks = last.first_chunk + last.chunks - file.first_chunk;
    file.documents = last.first_document + last.documents - file.first_document;
    file.tokens = last.first_token + last.tokens - file.first_token;
    return file;
}

int64_t shard_records_chunks(const struct shard_record *list, int64_t count) {
    return count ? list[count - 1].first_chunk + list[count - 1].chunks : 0;
}

enum status record_list_shards(struct catalog_txn *t, const struct catalog *c, struct shard_record **out,
                               int64_t count) {
    if (count < 0 || (uint64_t)count > catalog_count(t, TABLE_SHARDS)) return record_damaged(c, "shard", count);
    struct shard_record *list;
    TRY(memory_allocate_zero(&list, (size_t)count));
    struct catalog_walk *walk = NULL;
    enum status s;
    TRY_GOTO(s, catalog_walk_begin(&walk, t, TABLE_SHARDS, 0), out);
    int64_t next_chunk = 0, file = -1;
    for (int64_t i = 0; i < count; i++) {
        bool more;
        struct bytes key, value;
        TRY_GOTO(s, catalog_walk_next(walk, &more, &key, &value), out);
        s = more ? record_decode_shard(key, value, c, &list[i]) : record_damaged(c, "shard", i);
        if (s != STATUS_OK) goto out;
        list[i].cursor = NULL;
        if (list[i].first_file_shard == i) file = -1;
        if (list[i].number != i || list[i].first_chunk != next_chunk || !shard_file_agrees(list, i, count, file)) {
            s = record_damaged(c, "shard", i);
            goto out;
        }
        if (file < 0 && !shard_is_dropped(&list[i])) file = i;
        next_chunk += list[i].chunks;
    }
out:
    catalog_walk_end(walk);
    if (s == STATUS_OK)
        *out = list;
    else
        memory_free(list);
    return s;
}

/* ---- segments ---- */

static enum status record_decode_segment(struct bytes key, struct bytes value, const struct catalog *c,
                                         struct segment_record *out) {
    uint64_t number = catalog_key_number(key);
    struct value_reader r = value_reader_of(value);
    *out = (struct segment_record){.number = (int64_t)number};
    out->first_chunk = value_get_count(&r);
    out->chunks = value_get_count(&r);
    out->file = value_get_file(&r);
    out->head = value_get_file(&r);
    if (!value_finished(&r) || number >= INT64_MAX || out->head.bytes > out->file.bytes)
        return record_damaged(c, "segment", (int64_t)number);
    return STATUS_OK;
}

enum status record_put_segment(struct catalog_txn *t, const struct segment_record *s) {
    uint8_t buffer[VALUE_FIXED_MAX];
    struct value_writer w = {buffer};
    value_put_i64(&w, s->first_chunk);
    value_put_i64(&w, s->chunks);
    value_put_file(&w, s->file);
    value_put_file(&w, s->head);
    struct catalog_key key = catalog_key((uint64_t)s->number);
    return catalog_put(t, TABLE_SEGMENTS, key.bytes, sizeof key.bytes, buffer, value_seal(&w, buffer));
}

enum status record_list_segments(struct catalog_txn *t, const struct catalog *c, struct segment_record **out,
                                 int64_t *count) {
    int64_t n = (int64_t)catalog_count(t, TABLE_SEGMENTS), next_chunk = 0;
    struct segment_record *list;
    TRY(memory_allocate_zero(&list, (size_t)n));
    struct catalog_walk *walk = NULL;
    enum status s;
    TRY_GOTO(s, catalog_walk_begin(&walk, t, TABLE_SEGMENTS, 0), out);
    for (int64_t i = 0; i < n; i++) {
        bool more;
        struct bytes key, value;
        TRY_GOTO(s, catalog_walk_next(walk, &more, &key, &value), out);
        s = more ? record_decode_segment(key, value, c, &list[i]) : record_damaged(c, "segment", i);
        if (s != STATUS_OK) goto out;
        if (list[i].first_chunk < next_chunk) { /* ids of dropped shards are in no segment */
            s = record_damaged(c, "segment", list[i].number);
            goto out;
        }
        next_chunk = list[i].first_chunk + list[i].chunks;
    }
out:
    catalog_walk_end(walk);
    if (s == STATUS_OK) {
        *out = list;
        *count = n;
    } else
        memory_free(list);
    return s;
}
