/* merge.c -- copies small adjacent shards into common files, so that many small additions do not leave many files.
 *
 * Shards keep their numbers, ranges and cursors; only the file in their records changes. So ids, runs, documents and
 * segments stay valid. As in a log-structured merge tree, files are merged with those before them that are at most
 * twice as large. The sizes of the remaining files then decrease geometrically, and each chunk is copied a logarithmic
 * number of times.
 *
 * Order: the new files become durable; one LMDB transaction names them in the records of all their shards; the old
 * files are removed. A killed writer leaves files that no record names, which the next writer removes. A reader that
 * finds an old file missing reads the newest list of shards (view.c). */
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/writer_internal.h"

enum { MERGES_MAX = 2 }; /* in one publishing: one for its own shards, and one for older shards */

struct merge {
    struct store_writer *w;
    struct shard_record *shards;  /* all published shards */
    int64_t n_shards, begin, end; /* shards begin .. end-1 get common files */
    struct stored_file token_file, landmark_file;
};

/* A file with a dropped shard is not merged, because the ids in a common file must be contiguous. */
static bool merge_can_take(const struct merge *m, const struct shard_record *file) {
    for (int64_t i = file->first_file_shard; i <= file->last_file_shard; i++)
        if (shard_is_dropped(&m->shards[i])) return false;
    return true;
}

/* Finds the last adjacent files that can be merged, with at most `chunks_max` chunks together. */
static bool merge_find(struct merge *m, int64_t chunks_max) {
    for (int64_t end = m->n_shards; end > 0;) {
        struct shard_record last = record_of_shard_file(m->shards, end - 1);
        int64_t begin = last.number, chunks = last.chunks;
        while (begin > 0 && merge_can_take(m, &last)) {
            struct shard_record before = record_of_shard_file(m->shards, begin - 1);
            if (before.chunks > 2 * chunks || before.chunks + chunks > chunks_max) break;
            if (!merge_can_take(m, &before)) break;
            chunks += before.chunks;
            begin = before.number;
        }
        m->begin = begin;
        m->end = end;
        if (begin < last.number) return true;
        end = last.number;
    }
    return false;
}

/* Copies a file's rows and compares them with the recorded checksum. Otherwise damage would get a new,
 * valid checksum. */
static enum status merge_append(const struct merge *m, struct shard_writer *to, enum shard_kind kind, int64_t shard) {
    struct shard_record from = record_of_shard_file(m->shards, shard);
    struct stored_file recorded = kind == SHARD_TOKENS ? from.token_file : from.landmark_file;
    struct shard_map map;
    TRY(shard_open(&map, m->w->dir, kind, &from, &m->w->fingerprint));
    enum status s = STATUS_OK;
    char path[FILE_PATH_MAX];
    if (crc32c(0, map.map.data, map.map.size) != recorded.crc) {
        s = shard_path(path, m->w->dir, kind, from.first_file_shard, from.last_file_shard);
        if (s == STATUS_OK) s = fail(STATUS_CORRUPT, "%s: its bytes changed, run drt-index verify --deep", path);
    }
    if (s == STATUS_OK) s = shard_write_stored(to, &map);
    shard_close(&map);
    return s;
}

static enum status merge_files(const struct merge *m, enum shard_kind kind, struct stored_file *out) {
    struct shard_record r = m->shards[m->begin];
    r.first_file_shard = m->begin;
    r.last_file_shard = m->end - 1;
    r.foreign = false;
    struct shard_writer *to;
    TRY(shard_create(&to, m->w->dir, kind, &r, &m->w->fingerprint));
    enum status s = STATUS_OK;
    for (int64_t i = m->begin; i < m->end && s == STATUS_OK; i = m->shards[i].last_file_shard + 1)
        s = merge_append(m, to, kind, i);
    if (s != STATUS_OK) {
        shard_discard(to);
        return s;
    }
    return shard_publish(to, out);
}

static void merge_rename(const struct merge *m, struct shard_record *r) {
    r->first_file_shard = m->begin;
    r->last_file_shard = m->end - 1;
    r->foreign = false;
    r->token_file = m->token_file;
    r->landmark_file = m->landmark_file;
}

static enum status merge_record(const struct merge *m, struct catalog_txn *t) {
    for (int64_t i = m->begin; i < m->end; i++) {
        struct shard_record r; /* from the catalog, because the list has no cursors */
        TRY(record_get_shard(t, m->w->catalog, &r, i));
        merge_rename(m, &r);
        TRY(record_put_shard(t, &r));
    }
    return fault_point("store:merge:before-commit");
}

static enum status merge_commit(const struct merge *m) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, m->w->catalog, true));
    enum status s = merge_record(m, t);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    return fault_point("store:merge:committed");
}

static enum status merge_remove_old(const struct merge *m) {
    for (int64_t i = m->begin; i < m->end; i = m->shards[i].last_file_shard + 1)
        for (int file = 0; file < SHARD_FILES; file++) {
            char path[FILE_PATH_MAX];
            const enum shard_kind kind = shard_file_kind(m->w->landmark_type, file);
            TRY(shard_path(path, m->w->dir, kind, i, m->shards[i].last_file_shard));
            TRY(file_remove(path));
            TRY(fault_point("store:merge:removed"));
        }
    return STATUS_OK;
}

static enum status merge_run(struct merge *m) {
    TRY(merge_files(m, SHARD_TOKENS, &m->token_file));
    TRY(fault_point("store:merge:tokens-written"));
    TRY(merge_files(m, shard_landmark_kind(m->w->landmark_type), &m->landmark_file));
    TRY(fault_point("store:merge:landmarks-written"));
    TRY(merge_commit(m));
    TRY(merge_remove_old(m));
    for (int64_t i = m->begin; i < m->end; i++)
        merge_rename(m, &m->shards[i]);
    return STATUS_OK;
}

static enum status merge_list(struct merge *m) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, m->w->catalog, false));
    const enum status s = record_list_shards(t, m->w->catalog, &m->shards, m->n_shards);
    catalog_abort(t);
    return s;
}

enum status merge_small_shards(struct store_writer *w, struct shard_record *shards, int64_t chunks_max,
                               const struct progress *progress) {
    struct merge m = {.w = w, .shards = shards, .n_shards = w->published.shards};
    enum status s = STATUS_OK;
    if (chunks_max <= 0) return STATUS_OK;
    if (!shards) s = merge_list(&m);
    for (int i = 0; i < MERGES_MAX && s == STATUS_OK && !progress_stop_requested(progress); i++) {
        if (!merge_find(&m, chunks_max)) break;
        s = merge_run(&m);
    }
    if (!shards) memory_free(m.shards);
    if (s == STATUS_OK || s == STATUS_FAULT) return s;
    progress_note(progress, "%s: the documents are published, small shards were not merged: %s", w->dir,
                  status_message());
    return STATUS_OK;
}
