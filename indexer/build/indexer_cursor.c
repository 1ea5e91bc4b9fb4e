/* indexer_cursor.c -- see indexer_internal.h. Fields are packed as little-endian 64-bit numbers, so that a build may
 * continue on another machine. */
#include "base/little_endian.h"
#include "indexer/build/indexer_internal.h"
#include <string.h>
#include <xxhash.h>

static const char magic[8] = "drtcur3";
enum { CURSOR_FIXED = CURSOR_BYTES_MAX - 16 * CURSOR_MARKS };

/* Updates a running hash: hashes its last value together with the hash of the new piece. */
static void hash_bytes(uint8_t hash[16], const void *data, size_t bytes) {
    uint8_t pair[32];
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
    memcpy(pair, hash, 16);
    memcpy(pair + 16, canonical.digest, 16);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(pair, sizeof pair));
    memcpy(hash, canonical.digest, 16);
}
static void hash_int(uint8_t hash[16], int64_t value) {
    hash_bytes(hash, &value, sizeof value);
}

void cursor_describe(struct cursor *out, const struct reader_config *reader, int64_t shard_chunks) {
    const char *field = reader->text_field ? reader->text_field : "text";
    memset(out, 0, sizeof *out);
    out->files_a_mark = 1;
    hash_int(out->options, reader->format);
    hash_bytes(out->options, field, strlen(field));
    hash_int(out->options, reader->eod_id);
    hash_int(out->options, shard_chunks);
}

void cursor_describe_update(struct cursor *c, uint64_t generation, const char *source) {
    hash_bytes(c->options, "update", 6);
    hash_int(c->options, (int64_t)generation);
    hash_bytes(c->options, source ? source : "", source ? strlen(source) : 0);
}

/* The options' hash covers the generation, so earlier ones are tried. Each takes well under a microsecond. */
bool cursor_of_earlier_update(const uint8_t *bytes, size_t n, const struct cursor *plain, uint64_t generation,
                              const char *source) {
    if (n < CURSOR_FIXED || memcmp(bytes, magic, 8) != 0) return false;
    for (uint64_t g = generation; g-- > 1;) {
        struct cursor c;
        memcpy(c.options, plain->options, sizeof c.options);
        cursor_describe_update(&c, g, source);
        if (memcmp(c.options, bytes + 8, sizeof c.options) == 0) return true;
    }
    return false;
}

enum status cursor_corpus(uint8_t out[16], const struct reader_config *reader, int64_t shard_chunks) {
    struct cursor c;
    struct reader *r;
    cursor_describe(&c, reader, shard_chunks);
    TRY(reader_open(&r, reader));
    hash_int(c.options, (int64_t)reader_list_hash(r));
    hash_int(c.options, reader->skip_bad_lines);
    reader_close(r);
    memcpy(out, c.options, sizeof c.options);
    return STATUS_OK;
}

void cursor_advance(struct cursor *c, const struct reader_position *after) {
    uint64_t last = c->n_marks ? c->marks[c->n_marks - 1].file : 0;
    c->position = *after;
    if (after->file < last + c->files_a_mark) return;
    if (c->n_marks == CURSOR_MARKS) { /* keep every second mark */
        for (int i = 0; i < CURSOR_MARKS / 2; i++)
            c->marks[i] = c->marks[2 * i + 1];
        c->n_marks = CURSOR_MARKS / 2;
        c->files_a_mark *= 2;
    }
    c->marks[c->n_marks++] = (struct reader_mark){after->file, after->files_hash};
}

static uint8_t *indexer_cursor_put(uint8_t *at, uint64_t value) {
    little_endian_put(at, value, 8);
    return at + 8;
}
static const uint8_t *indexer_cursor_get(uint64_t *value, const uint8_t *at) {
    *value = little_endian_get(at, 8);
    return at + 8;
}

size_t cursor_pack(uint8_t out[CURSOR_BYTES_MAX], const struct cursor *c) {
    const struct reader_position *p = &c->position;
    memcpy(out, magic, 8);
    memcpy(out + 8, c->options, 16);
    uint8_t *at = out + 24;
    at = indexer_cursor_put(at, p->documents);
    at = indexer_cursor_put(at, p->file);
    at = indexer_cursor_put(at, p->offset);
    at = indexer_cursor_put(at, p->line);
    at = indexer_cursor_put(at, p->skipped);
    at = indexer_cursor_put(at, p->files_hash);
    at = indexer_cursor_put(at, p->part_hash);
    at = indexer_cursor_put(at, (uint64_t)c->since_boundary);
    at = indexer_cursor_put(at, (uint64_t)c->empty);
    at = indexer_cursor_put(at, (uint64_t)c->replaced);
    at = indexer_cursor_put(at, c->files_a_mark);
    for (uint64_t i = 0; i < c->n_marks; i++) {
        at = indexer_cursor_put(at, c->marks[i].file);
        at = indexer_cursor_put(at, c->marks[i].files_hash);
    }
    return (size_t)(at - out);
}

enum status cursor_unpack(struct cursor *out, const uint8_t *bytes, size_t n, const struct cursor *now,
                          const char *store) {
    if (n < CURSOR_FIXED || n > CURSOR_BYTES_MAX || (n - CURSOR_FIXED) % 16 != 0 || memcmp(bytes, magic, 8) != 0)
        return fail(STATUS_VERSION,
                    "%s: its journal is of another program version: finish the build with that one, or drop what was "
                    "done with --restart",
                    store);
    memset(out, 0, sizeof *out);
    memcpy(out->options, bytes + 8, 16);
    if (memcmp(out->options, now->options, 16) != 0)
        return fail(STATUS_MISMATCH,
                    "%s: it was begun with other options (one of --format, --text-field, --eod-id, --shard-chunks), or "
                    "one of add and update was: run the same command again, or drop what was done with --restart",
                    store);
    uint64_t v[11];
    const uint8_t *at = bytes + 24;
    for (size_t i = 0; i < ARRAY_LEN(v); i++)
        at = indexer_cursor_get(&v[i], at);
    out->position = (struct reader_position){v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
    out->since_boundary = (int64_t)v[7];
    out->documents = (int64_t)v[0];
    out->empty = (int64_t)v[8];
    out->replaced = (int64_t)v[9];
    out->files_a_mark = v[10];
    out->n_marks = (n - CURSOR_FIXED) / 16;
    for (uint64_t i = 0; i < out->n_marks; i++) {
        at = indexer_cursor_get(&out->marks[i].file, at);
        at = indexer_cursor_get(&out->marks[i].files_hash, at);
    }
    return STATUS_OK;
}
