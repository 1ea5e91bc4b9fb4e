/* index_parts.h -- the index of a store, made by many processes: train once, fill in parts, merge.
 *
 * A work folder holds what the processes share: `template.faiss` (trained centroids and codes), `plan` (what is
 * indexed, of which store) and one or more files of lists for each part. Parts are equal ranges of chunks. The
 * processes do not talk to each other. They only read the store, which may therefore be a snapshot
 * (store/change/freeze.h) on other hosts. Merging writes the lists of all parts, list after list, as one segment, and
 * publishes it in one transaction. The segment is byte for byte the one that a single process would make with the
 * template.
 *
 * Only inverted files of flat, scalar or product codes can be made so: STATUS_UNSUPPORTED for other types.
 *
 * A call that was killed or stopped is repeated: it continues. A call whose work is done already reports so. While
 * parts are filled the store may change: documents may be added (they get a segment of their own when the parts are
 * merged) and deleted. Where shards were dropped or encoded again, the parts that hold them are to be filled again;
 * merging names them. */
#pragma once
#include "store/store.h"

struct store_index_parts_report {
    bool already;                        /* nothing was left to do */
    char index[256];
    int64_t chunks;                      /* that the plan indexes: all of the store's when it was trained */
    int64_t lists;
    /* of filling: the part's range of chunks, rows in it, files of lists, and those of them that were there already */
    int64_t begin, end, rows, files, kept;
    /* of merging: segments that hold the parts, their bytes, and chunks that were added after the training */
    int parts;
    int64_t segments, added;
    uint64_t bytes, generation;
};

/* Trains how->index over all chunks of the newest generation. Makes the folder `work`. STATUS_MISMATCH: it holds the
 * plan of another index or store. STATUS_INVALID: "auto" makes no index for so few chunks, or the type needs more
 * memory than how->max_ram. */
enum status store_index_train(struct store_index_parts_report *out, const char *dir, const char *work,
                              const struct store_publish *how);
/* Fills part `part` of 1 .. parts. Files of lists that fit the plan and the store are kept; the others are made.
 * Memory: how->max_ram. STATUS_BUSY: another process fills this part. STATUS_MISMATCH: the plan is of another store. */
enum status store_index_fill(struct store_index_parts_report *out, const char *dir, const char *work, int part,
                             int parts, const struct store_publish *how);
/* Merges all parts and publishes them. `work` is only read. Memory: how->max_ram, whatever the number of chunks.
 * STATUS_NOT_FOUND: a part is missing. STATUS_MISMATCH: one was made with another template, or from other rows than the
 * store has now. STATUS_CORRUPT: one is damaged. STATUS_READ_ONLY: the store is a snapshot. The messages name the file
 * and the command that makes it again; the store is as it was. */
enum status store_index_merge(struct store_index_parts_report *out, const char *dir, const char *work,
                              const struct store_publish *how);
/* STATUS_READ_ONLY: the store is a snapshot, into which nothing can be merged. */
enum status store_index_check_writable(const char *dir);
/* Removes the files of a work folder whose plan is of this type, and the folder if nothing else is in it. */
enum status store_index_parts_remove(const char *work, const char *index);
