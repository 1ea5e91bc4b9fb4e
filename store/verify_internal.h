/* verify_internal.h -- checks that both store_verify and store_repair use. */
#pragma once
#include "store/catalog/record_lexical_internal.h"
#include "store/writer_internal.h"

/* frozen: the store is a snapshot, which has only one remedy */
struct findings { store_problem *problem; void *context; int64_t count; bool frozen; };

/* Where the remedy of a message begins (", run drt-index ..."), for a caller that has another one; NULL: nowhere. */
char *message_remedy(char *text);
/* Reports the failure `s` with this thread's message, from which it removes the name `file` at the start. Returns
 * STATUS_OK after damage, so that checking continues; other failures (out of memory, stopped) are returned. Reports
 * nothing for STATUS_OK. */
enum status finding(struct findings *f, enum status s, const char *file, const char *remedy);

/* Checks the size, and with `deep` every byte. STATUS_CORRUPT. */
enum status stored_file_verify(const char *path, struct stored_file recorded, bool deep);
enum status shard_file_verify(const char *dir, enum shard_kind kind, const struct shard_record *r,
                              const struct store_fingerprint *f, bool deep);

/* Check documents and runs against each other and the shards: counts only, or with `deep` every record. */
enum status documents_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                             const struct shard_record *shards, int chunk_tokens, bool deep);
enum status runs_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                        bool deep);
/* A document that is not published may lack a hash, because the published document that it will replace still has
 * it. */
enum status hashes_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                          const struct generation_record *published, const struct shard_record *shards, bool deep);
/* Whether the segments cover a generation: all chunks that were not dropped, or nothing if there is no index. */
enum status published_covered(bool *out, const struct segment_record *list, int64_t n,
                              const struct shard_record *shards,
                              const struct generation_record *published, bool has_index);

/* Checks that one file is as recorded, with `deep` also every byte and list. STATUS_CORRUPT. */
enum status lexical_segment_verify(const char *path, const struct lexical_segment_record *r, int vocab_size, bool deep,
                                   const struct progress *progress);

/* Reports damaged files of keys; with `deep` checks every byte. Missing and incomplete ones are no problem. */
enum status keys_verify(struct findings *f, struct catalog_txn *t, const struct catalog *c, const char *dir,
                        int64_t chunks, bool deep, const struct progress *progress);

extern const char *const remedy_repair, *const remedy_build;
