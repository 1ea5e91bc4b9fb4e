/* indexer_cursor.c -- see indexer_internal.h. Fields are packed as little-endian 64-bit numbers, so a store may move
 * to another machine in the middle of a build. */
#include "indexer/indexer_internal.h"
#include <string.h>
#include <xxhash.h>

static const char magic[8] = "drtcur2";

/* A running hash: the next value is the hash of the last one and of the new piece's own. */
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

/* Every file with its size, those of folders too: a position counts files, and a corpus that changed under a
 * half-finished build would be taken up at places that mean nothing in it. */
static void hash_inputs(uint8_t hash[16], const struct reader *files) {
    for (size_t i = 0; i < reader_files(files); i++) {
        int64_t bytes;
        const char *path = reader_file_at(files, i, &bytes);
        hash_bytes(hash, path, strlen(path));
        hash_int(hash, bytes);
    }
}

void cursor_describe(struct cursor *out, const struct reader *files, const struct reader_config *reader,
                     int64_t shard_chunks) {
    const char *field = reader->text_field ? reader->text_field : "text";
    memset(out, 0, sizeof *out);
    hash_inputs(out->inputs, files);
    hash_int(out->options, reader->format);
    hash_bytes(out->options, field, strlen(field));
    hash_int(out->options, reader->eod_id);
    hash_int(out->options, shard_chunks);
}

static uint8_t *put(uint8_t *at, uint64_t value) {
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> (8 * i));
    return at + 8;
}
static const uint8_t *get(uint64_t *value, const uint8_t *at) {
    *value = 0;
    for (int i = 0; i < 8; i++)
        *value |= (uint64_t)at[i] << (8 * i);
    return at + 8;
}

void cursor_pack(uint8_t out[CURSOR_BYTES], const struct cursor *c) {
    memset(out, 0, CURSOR_BYTES);
    memcpy(out, magic, 8);
    memcpy(out + 8, c->inputs, 16);
    memcpy(out + 24, c->options, 16);
    uint8_t *at = out + 40;
    at = put(at, c->position.documents);
    at = put(at, c->position.file);
    at = put(at, c->position.offset);
    at = put(at, c->position.line);
    at = put(at, (uint64_t)c->since_boundary);
    at = put(at, (uint64_t)c->documents);
    at = put(at, (uint64_t)c->empty);
    put(at, (uint64_t)c->replaced);
}

static enum status refuse(const char *store, const char *what) {
    return fail(STATUS_MISMATCH,
                "%s: its unfinished build was made with other %s: run the same command again, or drop what was done "
                "with --restart",
                store, what);
}

enum status cursor_unpack(struct cursor *out, const uint8_t *bytes, size_t n, const struct cursor *now,
                          const char *store) {
    if (n != CURSOR_BYTES || memcmp(bytes, magic, 8) != 0)
        return fail(STATUS_VERSION,
                    "%s: the journal of its unfinished build is of another program version: finish it with that one, "
                    "or drop what was done with --restart",
                    store);
    memset(out, 0, sizeof *out);
    memcpy(out->inputs, bytes + 8, 16);
    memcpy(out->options, bytes + 24, 16);
    if (memcmp(out->inputs, now->inputs, 16) != 0)
        return refuse(store, "inputs (or a file came, went, or changed its size)");
    if (memcmp(out->options, now->options, 16) != 0)
        return refuse(store, "options (one of --format, --text-field, --eod-id, --shard-chunks)");
    uint64_t v[8];
    const uint8_t *at = bytes + 40;
    for (int i = 0; i < 8; i++)
        at = get(&v[i], at);
    out->position = (struct reader_position){.documents = v[0], .file = v[1], .offset = v[2], .line = v[3]};
    out->since_boundary = (int64_t)v[4];
    out->documents = (int64_t)v[5];
    out->empty = (int64_t)v[6];
    out->replaced = (int64_t)v[7];
    return STATUS_OK;
}
