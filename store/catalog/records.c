/* records.c -- encodes and checks the bytes of the catalog's records, which are the same on every machine.
 *
 * Every value ends with the CRC32C of its bytes, except that values of format 1 have no checksum, and the value of
 * "format" has one only since format 3. Values that an older program wrote are read without it until they are written
 * again. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "store/catalog/records_internal.h"
#include <stdio.h>
#include <string.h>

enum { FIXED_MAX = 256, CRC_BYTES = 4, FORMAT_WITH_CHECKSUM = 3, FILE_SHARDS_BYTES = 40 };

struct writer {
    uint8_t *at;
};

static void put(struct writer *w, uint64_t value, int bytes) {
    little_endian_put(w->at, value, bytes);
    w->at += bytes;
}
static void put_i64(struct writer *w, int64_t value) {
    put(w, (uint64_t)value, 8);
}
static void put_file(struct writer *w, struct stored_file f) {
    put(w, f.bytes, 8);
    put(w, f.crc, 4);
}

/* Appends the checksum to the value that begins at `value`; returns its size. */
static size_t seal(struct writer *w, const uint8_t *value) {
    put(w, crc32c(0, value, (size_t)(w->at - value)), CRC_BYTES);
    return (size_t)(w->at - value);
}

/* Reads past the end give zeros and set `good` to false. */
struct reader {
    const uint8_t *begin, *at, *end;
    bool good;
};

static uint64_t get(struct reader *r, int bytes) {
    if (r->end - r->at < bytes) {
        r->good = false;
        return 0;
    }
    uint64_t value = little_endian_get(r->at, bytes);
    r->at += bytes;
    return value;
}
/* Reads a count or id. A negative or very large number is refused, because later sums could overflow. */
static int64_t get_count(struct reader *r) {
    uint64_t value = get(r, 8);
    if (value > (uint64_t)INT64_MAX / 1024) r->good = false;
    return r->good ? (int64_t)value : 0;
}
static struct stored_file get_file(struct reader *r) {
    struct stored_file f = {.bytes = get(r, 8)};
    f.crc = (uint32_t)get(r, 4);
    return f;
}
static const uint8_t *get_bytes(struct reader *r, size_t n) {
    if ((size_t)(r->end - r->at) < n) {
        r->good = false;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += n;
    return at;
}
static struct reader reader_of(struct bytes b) {
    return (struct reader){b.data, b.data, b.data + b.size, true};
}

static enum status damaged(const struct catalog *c, const char *what, int64_t number) {
    return fail(STATUS_CORRUPT, "%s: record of %s %lld is missing or damaged, run drt-index verify", catalog_path(c),
                what, (long long)number);
}
static bool finished(struct reader *r) {
    size_t size = (size_t)(r->at - r->begin);
    if (!r->good || r->at == r->end) return r->good;
    return get(r, CRC_BYTES) == crc32c(0, r->begin, size) && r->good && r->at == r->end;
}

/* ---- meta ---- */

enum status record_get_fingerprint(struct catalog_txn *t, const struct catalog *c, struct store_fingerprint *out,
                                   int *format) {
    struct bytes value;
    enum status s = catalog_get(t, &value, TABLE_META, "format", 6);
    if (s == STATUS_NOT_FOUND)
        return fail(STATUS_NOT_FOUND, "%s: the store has no contents yet, build it first", catalog_path(c));
    TRY(s);
    struct reader r = reader_of(value);
    uint64_t version = get(&r, 4);
    if (version > STORE_FORMAT_VERSION)
        return fail(STATUS_VERSION,
                    "%s: the store has format version %llu, this program reads up to %d: use a newer program",
                    catalog_path(c), (unsigned long long)version, STORE_FORMAT_VERSION);
    bool checked = r.at != r.end;
    if (!finished(&r) || (version >= FORMAT_WITH_CHECKSUM && !checked)) return damaged(c, "format", 0);
    if (format) *format = (int)version;
    s = catalog_get(t, &value, TABLE_META, "fingerprint", 11);
    if (s == STATUS_NOT_FOUND) return damaged(c, "fingerprint", 0);
    TRY(s);
    r = reader_of(value);
    const uint8_t *encoder = get_bytes(&r, 16), *tokenizer = get_bytes(&r, 16);
    if (!encoder || !tokenizer) return damaged(c, "fingerprint", 0);
    memcpy(out->encoder, encoder, 16);
    memcpy(out->tokenizer, tokenizer, 16);
    out->chunk_tokens = (int32_t)get(&r, 4);
    out->dim = (int32_t)get(&r, 4);
    out->vocab_size = (int32_t)get(&r, 4);
    out->metric = (int32_t)get(&r, 4);
    if (!finished(&r) || out->chunk_tokens < 1 || out->chunk_tokens > 65536 ||
        out->dim < (version > STORE_FORMAT_F16 ? 0 : 1) || out->dim > 65536 || out->vocab_size < 1)
        return damaged(c, "fingerprint", 0);
    return STATUS_OK;
}

enum status record_put_fingerprint(struct catalog_txn *t, const struct store_fingerprint *f) {
    uint8_t buffer[FIXED_MAX];
    struct writer w = {buffer};
    memcpy(w.at, f->encoder, 16);
    memcpy(w.at + 16, f->tokenizer, 16);
    w.at += 32;
    put(&w, (uint32_t)f->chunk_tokens, 4);
    put(&w, (uint32_t)f->dim, 4);
    put(&w, (uint32_t)f->vocab_size, 4);
    put(&w, (uint32_t)f->metric, 4);
    return catalog_put(t, TABLE_META, "fingerprint", 11, buffer, seal(&w, buffer));
}

enum status record_get_index(struct catalog_txn *t, const struct catalog *c, struct index_record *out) {
    struct bytes value;
    *out = (struct index_record){.next_number = 1};
    enum status s = catalog_get(t, &value, TABLE_META, "index", 5);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    struct reader r = reader_of(value);
    out->chosen = get(&r, 1) != 0;
    out->template_number = get_count(&r);
    out->trained_chunks = get_count(&r);
    out->template_file = get_file(&r);
    out->next_number = get_count(&r);
    size_t length = get(&r, 1);
    const uint8_t *text = get_bytes(&r, length);
    if (!text || !finished(&r) || memchr(text, 0, length)) return damaged(c, "index", 0);
    memcpy(out->factory, text, length);
    return STATUS_OK;
}

enum status record_put_index(struct catalog_txn *t, const struct index_record *r) {
    uint8_t buffer[FIXED_MAX + RECORD_INDEX_MAX];
    struct writer w = {buffer};
    put(&w, r->chosen, 1);
    put_i64(&w, r->template_number);
    put_i64(&w, r->trained_chunks);
    put_file(&w, r->template_file);
    put_i64(&w, r->next_number);
    size_t length = strnlen(r->factory, RECORD_INDEX_MAX - 1);
    put(&w, length, 1);
    memcpy(w.at, r->factory, length);
    w.at += length;
    return catalog_put(t, TABLE_META, "index", 5, buffer, seal(&w, buffer));
}

/* ---- generations ---- */

enum status record_decode_generation(struct bytes key, struct bytes value, const struct catalog *c,
                                     struct generation_record *out) {
    uint64_t number = catalog_key_number(key);
    struct reader r = reader_of(value);
    *out = (struct generation_record){.number = (int64_t)number};
    out->chunks = get_count(&r);
    out->documents = get_count(&r);
    out->tokens = get_count(&r);
    out->shards = get_count(&r);
    out->duplicates = get_count(&r);
    if (!finished(&r) || number >= INT64_MAX) return damaged(c, "generation", (int64_t)number);
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
    if (number != catalog_count(t, TABLE_GENERATIONS)) return damaged(c, "generation", (int64_t)number);
    struct catalog_key key = catalog_key(number);
    return record_decode_generation((struct bytes){key.bytes, sizeof key.bytes}, value, c, out);
}

enum status record_put_generation(struct catalog_txn *t, const struct generation_record *g) {
    uint8_t buffer[FIXED_MAX];
    struct writer w = {buffer};
    put_i64(&w, g->chunks);
    put_i64(&w, g->documents);
    put_i64(&w, g->tokens);
    put_i64(&w, g->shards);
    put_i64(&w, g->duplicates);
    return catalog_append(t, TABLE_GENERATIONS, (uint64_t)g->number, buffer, seal(&w, buffer));
}

/* ---- shards ---- */

enum status record_decode_shard(struct bytes key, struct bytes value, const struct catalog *c,
                                struct shard_record *out) {
    uint64_t number = catalog_key_number(key);
    struct reader r = reader_of(value);
    *out = (struct shard_record){
        .number = (int64_t)number, .first_file_shard = (int64_t)number, .last_file_shard = (int64_t)number};
    out->first_chunk = get_count(&r);
    out->chunks = get_count(&r);
    out->first_document = get_count(&r);
    out->documents = get_count(&r);
    out->first_token = get_count(&r);
    out->tokens = get_count(&r);
    out->duplicates = get_count(&r);
    out->token_file = get_file(&r);
    out->landmark_file = get_file(&r);
    out->cursor_bytes = get(&r, 4);
    out->cursor = get_bytes(&r, out->cursor_bytes);
    if (r.end - r.at > CRC_BYTES) {
        out->first_file_shard = get_count(&r);
        out->last_file_shard = get_count(&r);
    }
    out->foreign = r.end - r.at > CRC_BYTES;
    if (out->foreign) {
        out->file_number = get_count(&r);
        out->file_chunk = get_count(&r);
        out->file_token = get_count(&r);
    }
    if (!finished(&r) || out->cursor_bytes > STORE_CURSOR_MAX || number >= INT64_MAX ||
        out->first_file_shard > out->number || out->last_file_shard < out->number)
        return damaged(c, "shard", (int64_t)number);
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
    uint8_t buffer[FIXED_MAX + STORE_CURSOR_MAX + FILE_SHARDS_BYTES];
    struct writer w = {buffer};
    put_i64(&w, s->first_chunk);
    put_i64(&w, s->chunks);
    put_i64(&w, s->first_document);
    put_i64(&w, s->documents);
    put_i64(&w, s->first_token);
    put_i64(&w, s->tokens);
    put_i64(&w, s->duplicates);
    put_file(&w, s->token_file);
    put_file(&w, s->landmark_file);
    put(&w, s->cursor_bytes, 4);
    if (s->cursor_bytes) memcpy(w.at, s->cursor, s->cursor_bytes);
    w.at += s->cursor_bytes;
    if (s->first_file_shard != s->last_file_shard || s->foreign) { /* otherwise the record has the layout of format 2 */
        put_i64(&w, s->first_file_shard);
        put_i64(&w, s->last_file_shard);
    }
    if (s->foreign) {
        put_i64(&w, s->file_number);
        put_i64(&w, s->file_chunk);
        put_i64(&w, s->file_token);
    }
    struct catalog_key key = catalog_key((uint64_t)s->number);
    return catalog_put(t, TABLE_SHARDS, key.bytes, sizeof key.bytes, buffer, seal(&w, buffer));
}

enum status record_get_sealed(struct catalog_txn *t, const struct catalog *c, struct generation_record *out) {
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
            s = damaged(c, "shard", r.number);
            goto out;
        }
        out->shards++;
        out->chunks += r.chunks;
        out->documents += r.documents;
        out->tokens += r.tokens;
        out->duplicates += r.duplicates;
    }
    out->number = out->shards;
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
    if (count < 0 || (uint64_t)count > catalog_count(t, TABLE_SHARDS)) return damaged(c, "shard", count);
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
        s = more ? record_decode_shard(key, value, c, &list[i]) : damaged(c, "shard", i);
        if (s != STATUS_OK) goto out;
        list[i].cursor = NULL;
        if (list[i].first_file_shard == i) file = -1;
        if (list[i].number != i || list[i].first_chunk != next_chunk || !shard_file_agrees(list, i, count, file)) {
            s = damaged(c, "shard", i);
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

enum status record_decode_segment(struct bytes key, struct bytes value, const struct catalog *c,
                                  struct segment_record *out) {
    uint64_t number = catalog_key_number(key);
    struct reader r = reader_of(value);
    *out = (struct segment_record){.number = (int64_t)number};
    out->first_chunk = get_count(&r);
    out->chunks = get_count(&r);
    out->file = get_file(&r);
    out->head = get_file(&r);
    if (!finished(&r) || number >= INT64_MAX || out->head.bytes > out->file.bytes)
        return damaged(c, "segment", (int64_t)number);
    return STATUS_OK;
}

enum status record_put_segment(struct catalog_txn *t, const struct segment_record *s) {
    uint8_t buffer[FIXED_MAX];
    struct writer w = {buffer};
    put_i64(&w, s->first_chunk);
    put_i64(&w, s->chunks);
    put_file(&w, s->file);
    put_file(&w, s->head);
    struct catalog_key key = catalog_key((uint64_t)s->number);
    return catalog_put(t, TABLE_SEGMENTS, key.bytes, sizeof key.bytes, buffer, seal(&w, buffer));
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
        s = more ? record_decode_segment(key, value, c, &list[i]) : damaged(c, "segment", i);
        if (s != STATUS_OK) goto out;
        if (list[i].first_chunk < next_chunk) { /* ids of dropped shards are in no segment */
            s = damaged(c, "segment", list[i].number);
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

/* ---- runs, documents, hashes ---- */

enum status record_decode_run(struct bytes value, const struct catalog *c, struct run_record *out) {
    struct reader r = reader_of(value);
    out->document = get_count(&r);
    out->shard = get_count(&r);
    out->token_offset = get_count(&r);
    out->tokens = get_count(&r);
    out->chunks = get_count(&r);
    if (!finished(&r) || out->chunks < 1 || out->tokens < 1) return damaged(c, "the run of document", out->document);
    return STATUS_OK;
}

enum status record_append_run(struct catalog_txn *t, int64_t first_chunk, const struct run_record *run) {
    uint8_t buffer[FIXED_MAX];
    struct writer w = {buffer};
    put_i64(&w, run->document);
    put_i64(&w, run->shard);
    put_i64(&w, run->token_offset);
    put_i64(&w, run->tokens);
    put_i64(&w, run->chunks);
    return catalog_append(t, TABLE_RUNS, (uint64_t)first_chunk, buffer, seal(&w, buffer));
}

enum status record_find_run(struct catalog_txn *t, const struct catalog *c, int64_t *first_chunk,
                            struct run_record *out, int64_t chunk) {
    uint64_t found;
    struct bytes value;
    enum status s = catalog_get_floor(t, &found, &value, TABLE_RUNS, (uint64_t)chunk);
    if (s == STATUS_NOT_FOUND) return damaged(c, "the run of chunk", chunk);
    TRY(s);
    TRY(record_decode_run(value, c, out));
    if (found > (uint64_t)chunk || chunk - (int64_t)found >= out->chunks) return damaged(c, "the run of chunk", chunk);
    *first_chunk = (int64_t)found;
    return STATUS_OK;
}

enum status record_decode_document(struct bytes value, const struct catalog *c, struct document_record *out) {
    struct reader r = reader_of(value);
    out->first_chunk = get_count(&r);
    out->chunks = get_count(&r);
    out->tokens = get_count(&r);
    out->shard = get_count(&r);
    out->token_offset = get_count(&r);
    out->offset = get(&r, 8);
    out->line = get(&r, 8);
    out->bytes = get(&r, 8);
    const uint8_t *hash = get_bytes(&r, 16);
    out->source_bytes = get(&r, 4);
    out->key_bytes = get(&r, 4);
    out->source = (const char *)get_bytes(&r, out->source_bytes);
    out->key = (const char *)get_bytes(&r, out->key_bytes);
    if (!finished(&r) || !hash) return damaged(c, "document with chunk", out->first_chunk);
    memcpy(out->hash, hash, 16);
    return STATUS_OK;
}

enum status record_get_document(struct catalog_txn *t, const struct catalog *c, struct document_record *out,
                                int64_t document) {
    struct catalog_key key = catalog_key((uint64_t)document);
    struct bytes value;
    enum status s = catalog_get(t, &value, TABLE_DOCUMENTS, key.bytes, sizeof key.bytes);
    if (s == STATUS_NOT_FOUND) return damaged(c, "document", document);
    TRY(s);
    return record_decode_document(value, c, out);
}

enum status record_append_document(struct catalog_txn *t, int64_t document, const struct document_record *d) {
    uint8_t *buffer;
    TRY(memory_allocate(&buffer, FIXED_MAX + d->source_bytes + d->key_bytes));
    struct writer w = {buffer};
    put_i64(&w, d->first_chunk);
    put_i64(&w, d->chunks);
    put_i64(&w, d->tokens);
    put_i64(&w, d->shard);
    put_i64(&w, d->token_offset);
    put(&w, d->offset, 8);
    put(&w, d->line, 8);
    put(&w, d->bytes, 8);
    memcpy(w.at, d->hash, 16);
    w.at += 16;
    put(&w, d->source_bytes, 4);
    put(&w, d->key_bytes, 4);
    memcpy(w.at, d->source, d->source_bytes);
    w.at += d->source_bytes;
    memcpy(w.at, d->key, d->key_bytes);
    w.at += d->key_bytes;
    enum status s = catalog_append(t, TABLE_DOCUMENTS, (uint64_t)document, buffer, seal(&w, buffer));
    memory_free(buffer);
    return s;
}

enum status record_find_hash(struct catalog_txn *t, const uint8_t hash[16], bool *found, int64_t *document) {
    struct bytes value;
    enum status s = catalog_get(t, &value, TABLE_HASHES, hash, 16);
    *found = s == STATUS_OK;
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    struct reader r = reader_of(value);
    *document = get_count(&r);
    if (!finished(&r)) *document = -1; /* the hash exists, and the writer needs no more */
    return STATUS_OK;
}

enum status record_put_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document) {
    uint8_t buffer[8 + CRC_BYTES];
    struct writer w = {buffer};
    put_i64(&w, document);
    return catalog_put(t, TABLE_HASHES, hash, 16, buffer, seal(&w, buffer));
}

enum status record_add_hash(struct catalog_txn *t, const uint8_t hash[16], int64_t document) {
    bool found;
    int64_t other;
    TRY(record_find_hash(t, hash, &found, &other));
    return found ? STATUS_OK : record_put_hash(t, hash, document);
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
