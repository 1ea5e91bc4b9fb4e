/* index_parts.h -- the index of a store, made by many processes: train once, fill in parts, merge.
 *
 * The processes share a work folder. It contains `template.faiss` (trained centroids and codes), `plan` (the store and
 * what is indexed of it) and one or more files of lists for each part. Parts are equal ranges of chunks. The processes
 * do not communicate with each other. They only read the store, which may therefore be a snapshot
 * (store/change/freeze.h) on other hosts. Merging writes the lists of all parts, list after list, as one segment, and
 * publishes it in one transaction. The segment has the same bytes as one that a single process makes with the template.
 *
 * Rows are assigned to lists by FAISS, or by how->assignment: store_index_train chooses the latter if it is set and can
 * assign this type. The plan records the method, and filling refuses a process with another one (STATUS_MISMATCH).
 *
 * Only inverted files of flat, scalar or product codes can be made in parts. Other types: STATUS_UNSUPPORTED.
 *
 * A call that was killed or stopped can be repeated, and then continues. A call whose work is done already reports
 * that. While parts are filled the store may change: documents may be added (they get a segment of their own when the
 * parts are merged) and deleted. If shards were dropped or encoded again, the parts that contain them must be filled
 * again; merging names these parts. */
#pragma once
#include "store/store.h"

struct store_index_parts_report {
    bool already;                        /* the work was done before */
    char index[256];
    int64_t chunks;                      /* that the plan indexes: all chunks that the store had when it was trained */
    int64_t lists;
    /* set by filling: the part's range of chunks, its rows, its files of lists, and how many of these existed before */
    int64_t begin, end, rows, files, kept;
    /* set by merging: number of parts, segments that contain them, bytes of these, chunks added after the training */
    int parts;
    int64_t segments, added;
    uint64_t bytes, generation;
};

/* Trains how->index over all chunks of the newest generation, and makes the folder `work`. STATUS_MISMATCH: it holds
 * the plan of another index or store. STATUS_INVALID: "auto" makes no index for so few chunks, or the type needs more
 * memory than how->max_ram. */
enum status store_index_train(struct store_index_parts_report *out, const char *dir, const char *work,
                              const struct store_publish *how);
/* The method by which the plan in `work` has rows assigned to lists. */
enum status store_index_assigned(enum store_assign_method *out, const char *work);
/* Fills part `part` of 1 .. parts. Files of lists that match the plan and the store are kept; missing ones are made.
 * Memory: how->max_ram. STATUS_BUSY: another process fills this part. STATUS_MISMATCH: the plan is of another store. */
enum status store_index_fill(struct store_index_parts_report *out, const char *dir, const char *work, int part,
                             int parts, const struct store_publish *how);
/* Merges all parts and publishes the result. `work` is only read. Memory: how->max_ram, for any number of chunks.
 * STATUS_NOT_FOUND: a part is missing. STATUS_MISMATCH: one was made with another template, or from other rows than the
 * store has now. STATUS_CORRUPT: one is damaged. STATUS_READ_ONLY: the store is a snapshot. The messages name the file
 * and the command that makes it again. After a failure the store is unchanged. */
enum status store_index_merge(struct store_index_parts_report *out, const char *dir, const char *work,
                              const struct store_publish *how);
/* Fills one part and merges it. If how->assignment assigns the rows and they fit in how->max_ram, they are written to
 * the store at once, without files in `work`; then no other process can write to the store meanwhile. */
enum status store_index_make(struct store_index_parts_report *out, const char *dir, const char *work,
                             const struct store_publish *how);
/* STATUS_READ_ONLY: the store is a snapshot, which cannot get an index. */
enum status store_index_check_writable(const char *dir);
/* Removes the files of a work folder if its plan is of this index type. Removes the folder if nothing else is in it. */
enum status store_index_parts_remove(const char *work, const char *index);
