/* writer_internal.h -- the one writer's state, shared by sealing, publishing and repairing. */
#pragma once
#include "store/parts/part_record_internal.h"
#include "store/view_internal.h"

struct pending_document {
    struct document_record record;       /* source and key: offsets into the text pool, kept apart as it moves */
    size_t source_at, key_at;
};
struct store_writer {
    struct catalog *catalog;
    struct catalog_txn *lookup;          /* reading, paused between calls */
    struct store_fingerprint fingerprint;
    struct generation_record published;  /* number 0: nothing yet */
    /* totals of all shards with a record; duplicates: also published ones that are in no shard's record */
    struct generation_record sealed;
    int lock;
    char dir[FILE_PATH_MAX];

    /* the open shard */
    bool open;
    struct shard_writer *tokens, *landmarks;
    struct pending_document *documents; size_t n_documents, documents_capacity;
    char *text; size_t text_used, text_capacity;
    int64_t *slots; size_t n_slots;      /* hashes of the open shard: open addressing, document index or -1 */
    int64_t chunks, duplicates;

    int64_t loose_duplicates;            /* seen after the last shard, counted by the next publishing */
    struct store_part part;              /* that the next publishing finishes; parts 0: none */
};

/* As store_writer_open; config NULL: take the store's own fingerprint (repair). */
enum status writer_open(struct store_writer **out, const char *dir, const struct store_writer_config *config,
                        bool create);

/* What a generation changes in what was published before: files of shards (dropped: zeroed), recorded with it. */
struct publish_change {
    bool rebuild;                        /* trains and fills anew even where the old segments would do */
    const struct shard_record *shards; int64_t n_shards;
};
/* Indexes the first `target->chunks` chunks and publishes target's counts as the next generation. Segments from the
 * first changed shard on are filled anew. change NULL: none. */
enum status publish_generation(struct store_writer *w, const struct generation_record *target,
                               const struct store_publish *how, const struct publish_change *change);
/* Records the files of shards in this transaction; the documents of dropped ones lose their hashes. */
enum status publish_record_shards(struct store_writer *w, struct catalog_txn *t, const struct publish_change *change);

/* Records in this transaction that published documents are deleted (change/delete.c). */
enum status publish_delete(const struct catalog *c, struct catalog_txn *t, const int64_t *documents, int64_t n);

/* Writes a landmark file again, from its tokens, over the one that is there; recording `out` in all shards that have it
 * is the caller's. `shards`: all, by number; `file`: record_of_shard_file. Documents and token file must be sound. */
enum status shard_encode(struct stored_file *out, const struct store_writer *w, const struct shard_record *shards,
                         const struct shard_record *file, const struct store_encoder *encoder,
                         const struct progress *progress);

/* Copies small neighbouring shards that are published into common files of at most `chunks_max` chunks (0: none). What
 * fails here leaves the store as it was published, and is only noted. */
enum status merge_small_shards(struct store_writer *w, int64_t chunks_max, const struct progress *progress);

/* Files of the store's folders that no record names (temporary ones, and what a killed writer left). */
typedef enum status orphan_files_found(void *context, const char *path);
enum status orphan_files_each(const char *dir, struct catalog *c, orphan_files_found *found, void *context);
