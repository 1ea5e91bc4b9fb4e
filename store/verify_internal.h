/* verify_internal.h -- checks that verifying and repairing share. */
#pragma once
#include "store/catalog/record_lexical_internal.h"
#include "store/writer_internal.h"

/* frozen: a snapshot, where one remedy alone helps */
struct findings { store_problem *problem; void *context; int64_t count; bool frozen; };

/* Reports the last failure (its message begins with `file` or not: the name is cut off) and continues: STATUS_OK. Only
 * what is not damage (out of memory, stopped) is returned. STATUS_OK as `s` reports nothing. */
enum status finding(struct findings *f, enum status s, const char *file, const char *remedy);

/* Size, and with `deep` every byte. STATUS_CORRUPT. */
enum status stored_file_verify(const char *path, struct stored_file recorded, bool deep);
enum status shard_file_verify(const char *dir, enum shard_kind kind, const struct shard_record *r,
                              const struct store_fingerprint *f, bool deep);

/* Documents and runs against each other and the shards: counts, or with `deep` every record. */
enum status documents_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                             const struct shard_record *shards, int chunk_tokens, bool deep);
enum status runs_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                        bool deep);
/* A document that is not published may leave its hash to the published one that it will replace. */
enum status hashes_verify(struct catalog_txn *t, const struct catalog *c, const struct generation_record *sealed,
                          const struct generation_record *published, const struct shard_record *shards, bool deep);
/* Whether the segments cover what a generation needs: all chunks that were not dropped, or none without an index. */
enum status published_covered(bool *out, const struct segment_record *list, int64_t n,
                              const struct shard_record *shards,
                              const struct generation_record *published, bool has_index);

/* Whether the lexical segments hold all chunks that were not dropped. */
enum status lexical_covered(bool *out, const struct lexical_record *record, const struct shard_record *shards,
                            const struct generation_record *published);
/* One file: as recorded, and with `deep` every byte and list. STATUS_CORRUPT. */
enum status lexical_segment_verify(const char *path, const struct lexical_segment_record *r, int vocab_size, bool deep,
                                   const struct progress *progress);

extern const char *const remedy_repair, *const remedy_build;
