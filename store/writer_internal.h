/* writer_internal.h -- the writer's state, for sealing, publishing and repairing. */
#pragma once
#include "store/catalog/record_lexical_internal.h"
#include "store/parts/part_record_internal.h"
#include "store/view_internal.h"

struct pending_document {
    /* source, key: set from source_at and key_at, offsets into the text pool, which may move */
    struct document_record record;
    size_t source_at, key_at;
};
/* A shard that is being made. Only the thread that adds documents uses it until it is ended, except for `landmarks`.
 * After that only `landmarks` changes. Once it is complete only the thread that seals it uses it. */
struct store_shard {
    struct store_writer *writer;
    struct shard_writer *tokens, *landmarks;
    struct pending_document *documents; size_t n_documents, documents_capacity;
    char *text; size_t text_used, text_capacity;
    int64_t *slots; size_t n_slots; /* hash table of its documents (open addressing): the index of a document, or -1 */
    int64_t chunks, duplicates;
    struct shard_record record;          /* set when it is ended; its cursor is in `cursor` */
    uint8_t cursor[STORE_CURSOR_MAX];
    bool complete, taken, written;       /* in the queue: has all landmarks; files begun; files done */
    struct store_shard *next;            /* in the queue: the next shard */
};
/* What a writer created when it opened a store. */
enum { WRITER_FOLDERS = 4 };
extern const char *const writer_folders[WRITER_FOLDERS];  /* of data files */
struct writer_made {
    bool store, catalog, lock;           /* the folders of both; the lock file */
    bool folders[WRITER_FOLDERS];
};
struct store_writer {
    struct catalog *catalog;
    struct catalog_txn *lookup;          /* a read transaction, paused between calls */
    struct store_fingerprint fingerprint;
    enum store_landmarks landmark_type;
    struct generation_record published;  /* number 0: nothing is published */
    /* totals of all recorded shards; duplicates: also those that no shard's record has */
    struct generation_record sealed;
    int lock;
    char dir[FILE_PATH_MAX];

    struct store_shard *shard;           /* the open shard; NULL: none is open */
    struct seal_queue *queue;            /* shards that were ended; NULL: none was */
    struct known_hashes *known;          /* has all documents of the store; NULL: it may lack some */
    struct held_pool *held;              /* of shards that are not sealed; NULL: none */

    struct lexical_follower *follower;   /* makes the lexical index of recorded shards; NULL: none */
    /* the segment that it made, whose file no record names yet; chunks 0: none */
    struct lexical_segment_record followed;

    int64_t loose_duplicates; /* duplicates after the last shard, which the next published generation counts */
    struct store_part part;              /* the part that the next publishing finishes; parts 0: none */
    struct writer_made made;             /* what opening created */
};
/* Whether a folder has entries whose names begin with another character than a dot. A missing folder has none. */
bool writer_folder_has_files(const char *folder);
/* Removes what opening created, if the store has no data files. All but the lock is closed. */
void writer_remove_made(const struct store_writer *w);

/* Opens as store_writer_open does; config NULL: with the store's own fingerprint (for repair). */
enum status writer_open(struct store_writer **out, const char *dir, const struct store_writer_config *config,
                        bool create);

/* An index over the chunks below `end` that are not dropped, made before the transaction. Its files are in the store,
 * but no record names them yet. Later chunks get new segments. */
struct publish_made {
    struct index_record index;
    const struct segment_record *segments; int64_t n;
    int64_t end;
    struct indexed_record indexed;       /* recorded together with the index */
};
/* What a generation changes in published shards: their new files (of a dropped shard: zeroed). */
struct publish_change {
    bool rebuild;                        /* trains again and fills all segments, also if old ones could stay */
    const struct shard_record *shards; int64_t n_shards;
    const struct publish_made *made;     /* replaces the index; NULL: none */
};
/* Indexes the first `target->chunks` chunks and publishes target's counts as the next generation. Segments from the
 * first changed shard on are rebuilt. change NULL: no change. */
enum status publish_generation(struct store_writer *w, const struct generation_record *target,
                               const struct store_publish *how, const struct publish_change *change);
/* Records the files of shards in this transaction, and removes the hashes of the documents of dropped ones. */
enum status publish_record_shards(struct store_writer *w, struct catalog_txn *t, const struct publish_change *change);

/* Records in this transaction that published documents are deleted (store/change/delete.c). */
enum status publish_delete(const struct catalog *c, struct catalog_txn *t, const int64_t *documents, int64_t n);

/* Makes the landmark file of a shard again from its tokens, under the same name. The caller must record `out` in all
 * shards of the file. `shards`: all, by number; `file`: from record_of_shard_file. Documents and token file must be
 * undamaged. */
enum status shard_encode(struct stored_file *out, const struct store_writer *w, const struct shard_record *shards,
                         const struct shard_record *file, const struct store_encoder *encoder,
                         const struct progress *progress);

enum status shard_write_files(struct store_shard *s);     /* syncs, renames both; after a failure shard_free closes */
enum status seal_failure(enum status status);             /* adds to the message of a full disk what is kept */
/* Records n >= 1 consecutive shards, whose files are written, in one transaction. */
enum status shards_record(const struct store_shard *const *shards, int n);
bool shard_has(const struct store_shard *s, const uint8_t hash[16]);      /* whether a document has this hash */
void shard_free(struct store_shard *s);                   /* discards files that are not sealed; NULL is fine */
/* The queue of store/shards/seal_queue.c. seal_queue_add: the shard must be ended; the queue owns it from then on.
 * seal_queue_has: whether a shard that is not recorded yet has a document with this hash. seal_queue_wait: waits until
 * all are sealed. seal_queue_free: seals the complete ones before. */
enum status seal_queue_add(struct store_writer *w, struct store_shard *s);
bool seal_queue_has(struct seal_queue *q, const uint8_t hash[16]);
enum status seal_queue_wait(struct seal_queue *q);        /* NULL is fine, also for seal_queue_free */
void seal_queue_free(struct seal_queue *q);

/* Copies small adjacent published shards into common files of at most `chunks_max` chunks (0: does not merge). A
 * failure does not change the published store; it is only noted. shards: all published ones, which it changes; NULL: it
 * reads them. */
enum status merge_small_shards(struct store_writer *w, struct shard_record *shards, int64_t chunks_max,
                               const struct progress *progress);

/* Calls `found` for each file in the store's folders that no record names: temporary files, and files of killed
 * writers. */
typedef enum status orphan_files_found(void *context, const char *path);
enum status orphan_files_each(const char *dir, struct catalog *c, orphan_files_found *found, void *context);
