/* parts.h -- joins parts, which several processes built independently, into one store.
 *
 * A part is a store with a record of its number, the number of parts and the corpus. Joining writes a new catalog and
 * links the parts' data files (hard links). So no landmark is read, and the joined store does not need the parts
 * afterwards. Parts must not be written to while they are joined. */
#pragma once
#include "store/store.h"

struct store_part {
    int part, parts;                     /* part 1 .. parts */
    uint8_t corpus[16];                  /* hash of the names and sizes of all inputs, and of how they are read */
};
/* Makes the writer's store this part, or checks that it is. STATUS_MISMATCH: it is another part, or it has documents
 * and is not a part. *finished true: it is finished and has no documents. Otherwise the next publishing
 * finishes it. */
enum status store_writer_part(struct store_writer *w, const struct store_part *part, bool *finished);
/* Finishes a part that has no documents. */
enum status store_writer_part_empty(struct store_writer *w);
/* Gets the part that a store is; parts 0: it is not a part. */
enum status store_view_part(struct store_view *v, struct store_part *out);

struct store_join {
    const char *const *parts; int n_parts;                /* folders, in any order */
    bool copy;                           /* copies and checks files instead of linking them */
    struct store_publish publish;        /* index NULL: index_later, which reads no landmark */
};
struct store_join_report {
    int64_t shards, documents, chunks, tokens; /* of the joined store, including copies and deleted documents */
    int64_t copies;                      /* documents that an earlier part also has, and that are not in view */
    int64_t linked, copied;              /* files that this call linked or copied */
    int64_t keys_files;                  /* files of keys (store/keys/store_keys.h); 0: a part lacks them */
    uint64_t generation;
    bool already_joined;                 /* nothing was done: the store was joined from these parts before */
};
/* Joins parts. Ids follow the numbers of the parts: chunks, documents and shards of part 1, then those of part 2, and
 * so on. A document whose bytes an earlier part also has is recorded as deleted. The bytes of the catalog do not depend
 * on the order of the folders, or on publish.threads, which read and encode records while this thread appends them.
 * Memory: the largest part's list of shards, and at most 200 MB for hashes of documents. A call that was killed or
 * stopped can be repeated, and then continues; readers see nothing before its end. If all parts have keys of all
 * chunks, of one spec, so has the joined store. STATUS_MISMATCH: parts differ in model, corpus or number of parts, one
 * is missing or occurs twice, or one was changed. STATUS_INVALID: a part is unfinished, or `dir` is another store. */
enum status store_join(struct store_join_report *out, const char *dir, const struct store_join *how);
