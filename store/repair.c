/* repair.c -- makes anew what follows from something else: index and template from landmarks, runs and hashes from
 * documents. Shards that are not published are dropped when damaged (the next build makes them again). Tokens,
 * landmarks and documents follow from nothing here: they are reported. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/commit_record_internal.h"
#include "store/verify_internal.h"
#include <string.h>
#include <unistd.h>

struct repair {
    struct store_writer *w;
    const struct store_publish *how;
    struct findings *f;
    bool landmarks_good, journal_good;
};

static void note(const struct repair *r, const char *text) {
    progress_note(r->how->progress, "%s: %s", r->w->dir, text);
}

static enum status begin_reading(struct repair *r, struct catalog_txn **t) {
    return catalog_begin(t, r->w->catalog, false);
}

/* ---- shards ---- */

static enum status check_shard(struct repair *r, const struct shard_record *shard) {
    struct store_writer *w = r->w;
    for (int kind = SHARD_TOKENS; kind <= SHARD_LANDMARKS; kind++) {
        char path[FILE_PATH_MAX];
        TRY(shard_path(path, w->dir, (enum shard_kind)kind, shard->first_file_shard, shard->last_file_shard));
        enum status s = shard_file_verify(w->dir, (enum shard_kind)kind, shard, &w->fingerprint, true);
        if (s == STATUS_OK) continue;
        if (shard->number >= w->published.shards && s == STATUS_CORRUPT) {
            r->journal_good = false;
            continue;
        }
        if (kind == SHARD_LANDMARKS) r->landmarks_good = false;
        TRY(finding(r->f, s, path, remedy_build));
    }
    return STATUS_OK;
}

static enum status repair_shards(struct repair *r) {
    struct store_writer *w = r->w;
    struct shard_record *shards;
    struct catalog_txn *t;
    TRY(begin_reading(r, &t));
    enum status s = record_list_shards(t, w->catalog, &shards, w->sealed.shards);
    catalog_abort(t);
    TRY(s);
    r->landmarks_good = r->journal_good = true;
    for (int64_t i = 0; i < w->sealed.shards && s == STATUS_OK; i = shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(shards, i);
        s = check_shard(r, &file);
        progress_step(r->how->progress, "check shards", "shards", file.last_file_shard + 1, w->sealed.shards);
    }
    memory_free(shards);
    if (s == STATUS_OK && !r->journal_good) {
        note(r, "damaged shards were not published yet and were dropped; build or add makes them again");
        s = store_writer_drop_journal(w);
    }
    return s;
}

/* ---- runs and hashes ---- */

/* Documents are numbered without gaps (documents_verify came first). */
static enum status refill(const struct repair *r, struct catalog_txn *t, enum catalog_table table) {
    TRY(catalog_empty(t, table));
    for (int64_t i = 0; i < r->w->sealed.documents; i++) {
        struct document_record d;
        TRY(record_get_document(t, r->w->catalog, &d, i));
        struct run_record run = {i, d.shard, d.token_offset, d.tokens, d.chunks};
        if (table == TABLE_RUNS)
            TRY(record_append_run(t, d.first_chunk, &run));
        else
            TRY(record_put_hash(t, d.hash, i));
    }
    return fault_point("store:repair:before-commit");
}

static enum status rebuild_table(const struct repair *r, enum catalog_table table) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, r->w->catalog, true));
    enum status s = refill(r, t, table);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    TRY(catalog_commit(t));
    progress_note(r->how->progress, "%s: table %s was rebuilt from the documents", r->w->dir,
                  catalog_table_name(table));
    return STATUS_OK;
}

static enum status repair_tables(struct repair *r) {
    struct store_writer *w = r->w;
    struct shard_record *shards = NULL;
    struct catalog_txn *t;
    TRY(begin_reading(r, &t));
    enum status s = record_list_shards(t, w->catalog, &shards, w->sealed.shards), runs = STATUS_OK, hashes = STATUS_OK;
    if (s == STATUS_OK) s = documents_verify(t, w->catalog, &w->sealed, shards, w->fingerprint.chunk_tokens, true);
    if (s == STATUS_OK) runs = runs_verify(t, w->catalog, &w->sealed, true);
    if (s == STATUS_OK) hashes = hashes_verify(t, w->catalog, &w->sealed, true);
    catalog_abort(t);
    memory_free(shards);
    if (s != STATUS_OK) return finding(r->f, s, catalog_path(w->catalog), remedy_build);
    if (runs == STATUS_CORRUPT) runs = rebuild_table(r, TABLE_RUNS);
    TRY(runs);
    return hashes == STATUS_CORRUPT ? rebuild_table(r, TABLE_HASHES) : hashes;
}

/* ---- index ---- */

static enum status check_segments(const struct repair *r, struct catalog_txn *t) {
    struct store_writer *w = r->w;
    struct index_record index;
    char path[FILE_PATH_MAX];
    TRY(record_get_index(t, w->catalog, &index));
    if (index.template_number) {
        TRY(index_path(path, w->dir, index.template_number));
        TRY(stored_file_verify(path, index.template_file, true));
    }
    struct segment_record *list;
    int64_t n;
    TRY(record_list_segments(t, w->catalog, &list, &n));
    int64_t covered = n ? list[n - 1].first_chunk + list[n - 1].chunks : 0;
    enum status s = STATUS_OK;
    if (covered != (index.template_number ? w->published.chunks : 0))
        s = fail(STATUS_CORRUPT, "%s: segments do not cover the chunks", catalog_path(w->catalog));
    for (int64_t i = 0; i < n && s == STATUS_OK; i++) {
        struct vectors *opened;
        s = index_path(path, w->dir, list[i].number);
        if (s == STATUS_OK) s = stored_file_verify(path, list[i].file, true);
        if (s == STATUS_OK) s = segment_open(&opened, w->dir, &list[i], w->fingerprint.dim);
        if (s == STATUS_OK) vectors_free(opened);
        const struct segment_shape shape = {w->fingerprint.dim, list[i].chunks, list[i].first_chunk};
        if (s == STATUS_OK) s = segment_check_file(path, &shape, true, NULL);
    }
    memory_free(list);
    return s;
}

/* Records that cannot be read would stand in the way of their replacement. */
static enum status drop_unreadable(const struct repair *r) {
    struct catalog *c = r->w->catalog;
    struct catalog_txn *t;
    TRY(catalog_begin(&t, c, true));
    struct index_record index;
    struct segment_record *list = NULL;
    int64_t n;
    enum status s = record_get_index(t, c, &index);
    if (s == STATUS_CORRUPT) s = catalog_delete(t, TABLE_META, "index", 5);
    if (s == STATUS_OK) {
        s = record_list_segments(t, c, &list, &n);
        if (s == STATUS_OK)
            memory_free(list);
        else if (s == STATUS_CORRUPT)
            s = catalog_empty(t, TABLE_SEGMENTS);
    }
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    return catalog_commit(t);
}

/* Whoever names a kind of index gets it, though the one that is there be whole. */
static enum status wants_another(bool *yes, const struct repair *r, struct catalog_txn *t) {
    struct index_record index;
    TRY(record_get_index(t, r->w->catalog, &index));
    *yes = r->how->index && strcmp(r->how->index, "auto") != 0 && strcmp(r->how->index, index.factory) != 0;
    return STATUS_OK;
}

static enum status repair_index(struct repair *r) {
    struct store_writer *w = r->w;
    if (w->published.number == 0) return STATUS_OK;
    struct catalog_txn *t;
    TRY(begin_reading(r, &t));
    bool another = false;
    enum status s = wants_another(&another, r, t);
    /* One that is replaced is not opened: its type may be one that nobody checks. */
    if (s == STATUS_OK && !(another && r->landmarks_good)) s = check_segments(r, t);
    catalog_abort(t);
    if (another && r->landmarks_good) {
        TRY(publish_generation(w, &w->published, r->how, true));
        note(r, "the index was made anew, of another kind");
        return STATUS_OK;
    }
    if (s == STATUS_OK || (s != STATUS_CORRUPT && s != STATUS_IO)) return s;
    char folder[FILE_PATH_MAX];
    TRY(file_join(folder, w->dir, "index"));
    if (!r->landmarks_good) return finding(r->f, s, folder, remedy_build);
    TRY(drop_unreadable(r));
    TRY(publish_generation(w, &w->published, r->how, true));
    note(r, "the index was rebuilt from the landmarks");
    return STATUS_OK;
}

static enum status repair_all(struct repair *r) {
    enum status s = catalog_check(r->w->catalog);
    if (s != STATUS_OK) return finding(r->f, s, catalog_path(r->w->catalog), remedy_build);
    TRY(repair_shards(r));
    TRY(repair_tables(r));
    return repair_index(r);
}

/* Before the writer opens the catalog, which it refuses to do with meta pages that catalog/commit contradicts. Whether
 * the store may be written at all is the writer's to say. */
static enum status repair_commit(const struct repair *r, const char *dir) {
    char lock_path[FILE_PATH_MAX], folder[FILE_PATH_MAX], data[FILE_PATH_MAX];
    const char *what = NULL;
    uint64_t size;
    int lock = -1;
    TRY(file_join(lock_path, dir, "lock"));
    TRY(file_join(folder, dir, "catalog"));
    TRY(file_join(data, folder, "data.mdb"));
    if (!file_exists(data) || file_size(&size, data) != STATUS_OK || size == 0) return STATUS_OK;
    if (file_lock(&lock, lock_path) != STATUS_OK) return STATUS_OK;
    enum status s = commit_record_restore(&what, folder);
    close(lock);
    if (s == STATUS_OK && what) progress_note(r->how->progress, "%s: %s", dir, what);
    return s;
}

enum status store_repair(const char *dir, const struct store_publish *how, store_problem *problem, void *context,
                         int64_t *problems) {
    static const struct store_publish defaults = {.seed = 1};
    struct findings f = {problem, context, 0};
    struct repair r = {.how = how ? how : &defaults, .f = &f};
    char path[FILE_PATH_MAX];
    TRY(file_join(path, dir, "catalog/data.mdb"));
    enum status s = repair_commit(&r, dir);
    if (s == STATUS_OK) s = writer_open(&r.w, dir, NULL, false);
    if (s == STATUS_OK)
        s = repair_all(&r);
    else if (s == STATUS_CORRUPT)
        s = finding(&f, s, path, remedy_build);
    store_writer_close(r.w);
    *problems = f.count;
    return s;
}
