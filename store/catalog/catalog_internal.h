/* catalog_internal.h -- the store's LMDB environment: tables of bytes, transactions, cursors. No record layouts here
 * (records_internal.h), and no LMDB type leaves catalog.c. Keys are big-endian, so that they sort as numbers.
 *
 * A process opens one store's catalog once at a time (LMDB's own rule: its file locks belong to the process). */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum catalog_table {
    TABLE_META,        /* "format", "fingerprint", "index", "template": single records by name */
    TABLE_RUNS,        /* first chunk id -> where the document's tokens are */
    TABLE_DOCUMENTS,   /* document id -> source, key, position, hash */
    TABLE_HASHES,      /* 16 bytes of content hash -> document id; derived from documents */
    TABLE_SHARDS,      /* shard number -> its two files, id ranges, the caller's cursor */
    TABLE_SEGMENTS,    /* segment number -> its file and id range; those of the newest generation */
    TABLE_GENERATIONS, /* generation number -> what it made visible */
    TABLE_DELETED,     /* document id -> the chunks it had; not in formats 1 to 3 */
    TABLE_COUNT
};
const char *catalog_table_name(enum catalog_table table);

struct catalog;
struct catalog_txn;
struct bytes { const uint8_t *data; size_t size; };

/* `write`: makes catalog/ and the tables when missing. Reading: STATUS_NOT_FOUND when there is no catalog. Both check
 * the meta pages first, and the page structure as far as that is cheap (catalog_pages.c), since LMDB trusts it. */
enum status catalog_open(struct catalog **out, const char *store, bool write, uint64_t max_bytes);
enum status catalog_check(struct catalog *c);             /* every page, see below */
/* STATUS_CORRUPT when a catalog of this store format must have its record catalog/commit and had none when it was
 * opened. */
enum status catalog_check_record(const struct catalog *c, int format);
void catalog_close(struct catalog *c);                    /* NULL is fine; after its transactions */
const char *catalog_path(const struct catalog *c);        /* of the data file, for messages */
uint64_t catalog_bytes(const struct catalog *c);          /* in use, of the data file */
bool catalog_is_frozen(const struct catalog *c);          /* a snapshot (frozen_internal.h) */
/* A copy of the newest snapshot without unused pages, with its commit record, durable. `folder` is empty. */
enum status catalog_copy(struct catalog *c, const char *folder);

/* One write transaction at a time; any number of reading ones, each for one thread at a time. Writing keeps
 * catalog/commit (commit_record_internal.h): a commit is durable and recorded when OK. Where only the record failed the
 * commit is durable too, which the caller cannot know; c then begins no further write transaction. */
enum status catalog_begin(struct catalog_txn **out, struct catalog *c, bool write);
enum status catalog_commit(struct catalog_txn *t);        /* t is gone afterwards, also on failure */
/* The error that catalog_begin would return, for a call before files are written. */
enum status catalog_check_writable(const struct catalog *c);
enum status catalog_renew_record(struct catalog *c);      /* for the writer: after a kill it can miss a commit */
void catalog_abort(struct catalog_txn *t);                /* NULL is fine */
/* A reading transaction between uses: pause releases the snapshot, renew takes the newest. */
void catalog_pause(struct catalog_txn *t);
enum status catalog_renew(struct catalog_txn *t);

/* Values are borrowed until the transaction ends or writes. STATUS_NOT_FOUND without a message when there is none. */
enum status catalog_get(struct catalog_txn *t, struct bytes *value, enum catalog_table table, const void *key,
                        size_t key_bytes);
/* The record with the largest key <= key. */
enum status catalog_get_floor(struct catalog_txn *t, uint64_t *found, struct bytes *value, enum catalog_table table,
                              uint64_t key);
enum status catalog_get_last(struct catalog_txn *t, uint64_t *key, struct bytes *value, enum catalog_table table);
enum status catalog_put(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes,
                        const void *value, size_t bytes);
/* Keys must rise: cheaper, and packs pages. */
enum status catalog_append(struct catalog_txn *t, enum catalog_table table, uint64_t key, const void *value,
                           size_t bytes);
/* OK also when there is no such record. */
enum status catalog_delete(struct catalog_txn *t, enum catalog_table table, const void *key, size_t key_bytes);
enum status catalog_empty(struct catalog_txn *t, enum catalog_table table);
uint64_t catalog_count(struct catalog_txn *t, enum catalog_table table);

/* Walks a table in key order, from `begin` (numbers) on: STATUS_OK with *more false at the end. */
struct catalog_walk;
enum status catalog_walk_begin(struct catalog_walk **out, struct catalog_txn *t, enum catalog_table table,
                               uint64_t begin);
enum status catalog_walk_next(struct catalog_walk *w, bool *more, struct bytes *key, struct bytes *value);
void catalog_walk_end(struct catalog_walk *w);            /* NULL is fine; before its transaction ends */

struct catalog_key { uint8_t bytes[8]; };
struct catalog_key catalog_key(uint64_t number);
uint64_t catalog_key_number(struct bytes key);            /* UINT64_MAX unless it has 8 bytes */

enum { CATALOG_META_BYTES = 152 };   /* of a meta page: what LMDB reads and writes */
/* Checks the data file without LMDB (catalog_pages.c): meta pages alone, or every page that the newest committed
 * tree reaches. STATUS_CORRUPT names file and page. `pages_max` > 0: leave it at the meta pages when there are more.
 * Hold a reading transaction (its number in `txn`) while a writer may be at work; `txn` 0: the newest. */
enum status catalog_check_meta(const char *path);
enum status catalog_check_pages(const char *path, uint64_t txn, uint64_t pages_max);
/* Every page that the newer of these meta pages reaches, whatever the file's own are. *freed_by: the last transaction
 * that gave up pages. That is the one that made the tree, unless the file was empty before it. */
enum status catalog_check_pages_under(uint64_t *freed_by, const char *path, const uint8_t metas[2][CATALOG_META_BYTES]);
