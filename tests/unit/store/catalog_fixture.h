/* catalog_fixture.h -- stores with catalogs of any size, whose records the test writes itself.
 *
 * Shards have one document each. Their files take a few bytes on disk. They are one file of each kind under many names,
 * with a header of shard 0 (as in joined stores); or a sparse file for each; or no file at all, for dropped shards. */
#pragma once
#include "base/crc32c.h"
#include "base/memory.h"
#include "store/parts/part_record_internal.h"
#include "store/writer_internal.h"
#include "tests/store_fixture.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum catalog_files { CATALOG_DROPPED, CATALOG_SPARSE, CATALOG_LINKED };
struct catalog_shards {
    const char *dir;
    struct store_fingerprint fingerprint;
    int64_t shards, chunks;              /* of each shard */
    enum catalog_files files;
    struct store_part part;              /* parts 0: none */
};
enum { CATALOG_LINKS = 60000, CATALOG_BATCH = 1 << 15 };   /* names (hard links) of one file: ext4 allows 65,000 */

static inline void catalog_path_of(char out[FILE_PATH_MAX], const struct catalog_shards *c, enum shard_kind kind,
                                   int64_t shard) {
    CHECK_OK(shard_path(out, c->dir, kind, shard, shard));
}

/* A file of the record's rows: header and footer of shard_files.c, and a hole between them. */
static inline struct stored_file catalog_sparse_file(const char *dir, const struct store_fingerprint *f,
                                                     enum shard_kind kind, const struct shard_record *r) {
    uint8_t header[SHARD_HEADER_BYTES], footer[SHARD_FOOTER_BYTES] = "DRTSHEND";
    struct shard_writer *w;
    struct stored_file file;
    char path[FILE_PATH_MAX];
    int64_t rows = kind == SHARD_TOKENS ? r->tokens : r->chunks;
    int64_t bytes = rows * (kind == SHARD_TOKENS ? shard_token_bytes(f) : 2 * f->dim);
    CHECK_OK(shard_create(&w, dir, kind, r, f));
    CHECK_OK(shard_publish(w, &file));
    CHECK_OK(shard_path(path, dir, kind, r->first_file_shard, r->last_file_shard));
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, header, sizeof header, 0) == sizeof header);
    little_endian_put(footer + 8, (uint64_t)rows, 8);
    little_endian_put(footer + 16, crc32c(crc32c(0, header, sizeof header), footer, 16), 4);
    file.bytes = SHARD_HEADER_BYTES + (uint64_t)bytes + SHARD_FOOTER_BYTES;
    CHECK(ftruncate(fd, SHARD_HEADER_BYTES) == 0 && ftruncate(fd, (off_t)file.bytes) == 0);
    CHECK(pwrite(fd, footer, sizeof footer, (off_t)(file.bytes - sizeof footer)) == sizeof footer);
    CHECK(close(fd) == 0);
    return file;
}

/* The file of this shard: a new name of the last new file, or a new file. */
static inline void catalog_file(struct stored_file *out, const struct catalog_shards *c, enum shard_kind kind,
                                int64_t shard) {
    char path[FILE_PATH_MAX], first[FILE_PATH_MAX];
    const int64_t of = shard / CATALOG_LINKS * CATALOG_LINKS;
    if (c->files == CATALOG_SPARSE || shard == of) {
        const struct shard_record r = {.first_file_shard = shard, .last_file_shard = shard, .chunks = c->chunks,
                                       .tokens = c->chunks * c->fingerprint.chunk_tokens};
        *out = catalog_sparse_file(c->dir, &c->fingerprint, kind, &r);
        return;
    }
    catalog_path_of(path, c, kind, shard);
    catalog_path_of(first, c, kind, of);
    CHECK(link(first, path) == 0);
}

static inline void catalog_document(struct catalog_txn *t, const struct shard_record *r, const char *source) {
    char key[40];
    struct document_record d = {.first_chunk = r->first_chunk, .chunks = r->chunks, .tokens = r->tokens,
                                .shard = r->number, .bytes = 99, .line = (uint64_t)r->number + 1};
    d.source = source;
    d.source_bytes = strlen(source);
    d.key = key;
    d.key_bytes = (size_t)snprintf(key, sizeof key, "document-%09lld", (long long)r->number);
    fixture_hash(d.hash, r->first_document);
    const struct run_record run = {r->first_document, r->number, 0, r->tokens, r->chunks};
    CHECK_OK(record_append_document(t, r->first_document, &d));
    CHECK_OK(record_append_run(t, r->first_chunk, &run));
    if (!shard_is_dropped(r)) CHECK_OK(record_put_hash(t, d.hash, r->first_document));
}

/* Publishes all shards without an index. `end`: its number and first ids are the counts of the store. */
static inline void catalog_publish(struct catalog_txn *t, const struct shard_record *end, struct store_part is) {
    const struct generation_record g = {1, end->first_chunk, end->first_document, end->first_token, end->number, 0};
    const struct part_record part = {is, true, g.shards, g.documents, g.chunks};
    const struct index_record index = {.factory = "exact", .next_number = 1};
    CHECK_OK(record_put_generation(t, &g));
    if (is.parts) CHECK_OK(record_put_part(t, &part));
    CHECK_OK(record_put_index(t, &index));
}

/* Makes the store, publishes it without an index, and closes its writer. */
[[maybe_unused]] static void catalog_make(const struct catalog_shards *c) {
    const struct store_writer_config config = {.fingerprint = c->fingerprint};
    struct store_writer *w;
    struct stored_file files[2] = {0};
    const int64_t tokens = c->chunks * c->fingerprint.chunk_tokens;
    CHECK_OK(store_writer_open(&w, c->dir, &config, true));
    struct catalog_txn *t = NULL;
    for (int64_t i = 0; i < c->shards; i++) {
        for (int kind = SHARD_TOKENS; kind <= SHARD_LANDMARKS_F16 && c->files != CATALOG_DROPPED; kind++)
            catalog_file(&files[kind], c, (enum shard_kind)kind, i);
        const struct shard_record r = {
            .number = i, .first_file_shard = i, .last_file_shard = i, .first_chunk = i * c->chunks, .chunks = c->chunks,
            .first_document = i, .documents = 1, .first_token = i * tokens, .tokens = tokens, .token_file = files[0],
            .landmark_file = files[1], .foreign = c->files != CATALOG_DROPPED};
        if (!t) CHECK_OK(catalog_begin(&t, w->catalog, true));
        CHECK_OK(record_put_shard(t, &r));
        catalog_document(t, &r, "corpus/of/some/length/documents.jsonl");
        if ((i + 1) % CATALOG_BATCH != 0 && i + 1 < c->shards) continue;
        const struct shard_record end = {.number = i + 1, .first_chunk = (i + 1) * c->chunks, .first_document = i + 1,
                                         .first_token = (i + 1) * tokens};
        if (i + 1 == c->shards) catalog_publish(t, &end, c->part);
        CHECK_OK(catalog_commit(t));
        t = NULL;
    }
    store_writer_close(w);
}
