/* parts.h -- one store out of the parts that several processes built, each alone.
 *
 * A part is a store with a record of which part it is, of how many, and of what corpus. Joining writes a catalog of its
 * own and gives the parts' data files second names (hard links), so no landmark is read and the joined store does not
 * need the parts afterwards. Parts must not be written to while they are joined. */
#pragma once
#include "store/store.h"

struct store_part {
    int part, parts;                     /* part 1 .. parts */
    uint8_t corpus[16];                  /* of the names and sizes of all inputs, and of how they are read */
};
/* Makes the writer's store this part, or checks that it is: STATUS_MISMATCH when it is another part, or has documents
 * and is none. *finished: it is, without a single document. Else the next publishing finishes it. */
enum status store_writer_part(struct store_writer *w, const struct store_part *part, bool *finished);
/* Finishes a part that has no documents. */
enum status store_writer_part_empty(struct store_writer *w);
/* The part that a store is; parts 0: none. */
enum status store_view_part(struct store_view *v, struct store_part *out);

struct store_join {
    const char *const *parts; int n_parts;                /* folders, in any order */
    bool copy;                           /* files are copied and checked, not linked */
    struct store_publish publish;        /* index NULL: "exact" */
};
struct store_join_report {
    int64_t shards, documents, chunks, tokens;            /* of the joined store, with copies and deleted documents */
    int64_t copies;                      /* documents that an earlier part has too: not in view */
    int64_t linked, copied;              /* files, by this call */
    uint64_t generation;
    bool already_joined;                 /* nothing was done: these parts are joined there already */
};
/* Ids follow the numbers of the parts: chunks, documents and shards of part 1, then those of part 2, ... A document
 * that an earlier part has byte for byte is there as a deleted one. Memory is that of the largest part's list of
 * shards. STATUS_MISMATCH: parts of other models, corpora or counts, a missing or double one, one that was changed;
 * STATUS_INVALID: an unfinished one, or `dir` is another store. A call that was killed or stopped is repeated: it
 * continues, and readers see nothing before its end. */
enum status store_join(struct store_join_report *out, const char *dir, const struct store_join *how);
