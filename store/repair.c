/* repair.c -- rebuilds derived data: landmarks from tokens (with an encoder), index and template from landmarks, the
 * lexical index from tokens, runs and hashes from documents. Damaged shards that are not published are dropped; the
 * next build makes them again. Tokens and documents cannot be derived, so their damage is only reported. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/catalog/commit_record_internal.h"
#include "store/catalog/frozen_internal.h"
#include "store/keys/keys_layout_internal.h"
#include "store/keys/store_keys.h"
#include "store/publish_lexical_internal.h"
#include "store/verify_internal.h"
#include <string.h>
#include <unistd.h>

struct repair {
    struct store_writer *w;
    const struct store_publish *how;
    const struct store_encoder *encoder; /* may be NULL */
    struct findings *f;
    bool landmarks_good, journal_good, documents_good;
    struct shard_record *shards;  /* all sealed shards */
    struct shard_record *damaged; /* published files that must be encoded again, each described as one shard */
    size_t n_damaged, capacity;
    /* shards of these files whose landmarks now have other bytes; these are not recorded yet */
    struct shard_record *changed;
    size_t n_changed, changed_capacity;
};

static const char *const remedy_shards_first = "mend the damaged shards first, then run drt-index repair";

static void repair_note(const struct repair *r, const char *text) {
    progress_note(r->how->progress, "%s: %s", r->w->dir, text);
}

static enum status begin_reading(const struct repair *r, struct catalog_txn **t) {
    return catalog_begin(t, r->w->catalog, false);
}

/* ---- shards ---- */

static enum status check_published(struct repair *r, const struct shard_record *file) {
    struct store_writer *w = r->w;
    bool tokens_good = true;
    for (int i = 0; i < SHARD_FILES; i++) {
        char path[FILE_PATH_MAX], remedy[SHARD_REMEDY_MAX];
        const enum shard_kind kind = shard_file_kind(w->landmark_type, i);
        TRY(shard_path(path, w->dir, kind, file->first_file_shard, file->last_file_shard));
        shard_remedy(remedy, tokens_good ? kind : SHARD_TOKENS, file);
        enum status s = shard_file_verify(w->dir, kind, file, &w->fingerprint, true);
        if (s == STATUS_OK) continue;
        if (kind == SHARD_TOKENS) tokens_good = false;
        if (kind != SHARD_TOKENS && tokens_good && r->encoder && s == STATUS_CORRUPT) {
            TRY(memory_grow(&r->damaged, &r->capacity, r->n_damaged + 1));
            r->damaged[r->n_damaged++] = *file;
            continue;
        }
        if (kind != SHARD_TOKENS) r->landmarks_good = false;
        TRY(finding(r->f, s, path, remedy));
    }
    return STATUS_OK;
}

static enum status check_unpublished(struct repair *r, const struct shard_record *shard) {
    struct store_writer *w = r->w;
    for (int i = 0; i < SHARD_FILES; i++) {
        const enum shard_kind kind = shard_file_kind(w->landmark_type, i);
        enum status s = shard_file_verify(w->dir, kind, shard, &w->fingerprint, true);
        if (s != STATUS_OK && s != STATUS_CORRUPT) return s;
        if (s == STATUS_CORRUPT) r->journal_good = false;
    }
    return STATUS_OK;
}

static enum status check_shard(struct repair *r, const struct shard_record *shard) {
    if (shard_is_dropped(shard)) return STATUS_OK;
    return shard->number < r->w->published.shards ? check_published(r, shard) : check_unpublished(r, shard);
}

static enum status repair_shards(struct repair *r) {
    struct store_writer *w = r->w;
    struct catalog_txn *t;
    TRY(begin_reading(r, &t));
    enum status s = record_list_shards(t, w->catalog, &r->shards, w->sealed.shards);
    catalog_abort(t);
    TRY(s);
    r->landmarks_good = r->journal_good = true;
    for (int64_t i = 0; i < w->sealed.shards && s == STATUS_OK; i = r->shards[i].last_file_shard + 1) {
        struct shard_record file = record_of_shard_file(r->shards, i);
        s = check_shard(r, &file);
        progress_step(r->how->progress, "check shards", "shards", file.last_file_shard + 1, w->sealed.shards);
    }
    if (s == STATUS_OK && !r->journal_good) {
        repair_note(r, "damaged shards were not published yet and were dropped; build or add makes them again");
        s = store_writer_drop_journal(w);
    }
    return s;
}

/* ---- runs and hashes ---- */

/* Documents are numbered without gaps, as documents_verify checked. */
static enum status repair_refill(const struct repair *r, struct catalog_txn *t, enum catalog_table table,
                                 const struct shard_record *shards) {
    TRY(catalog_empty(t, table));
    for (int64_t i = 0; i < r->w->sealed.documents; i++) {
        struct document_record d;
        TRY(record_get_document(t, r->w->catalog, &d, i));
        bool deleted = false;
        if (table == TABLE_HASHES) TRY(record_is_deleted(t, i, &deleted));
        if (deleted || (table == TABLE_HASHES && shard_is_dropped(&shards[d.shard]))) continue;
        struct run_record run = {i, d.shard, d.token_offset, d.tokens, d.chunks};
        if (table == TABLE_RUNS)
            TRY(record_append_run(t, d.first_chunk, &run));
        else
            /* fails only for an unfinished update: the published document has the hash */
            TRY(record_add_hash(t, d.hash, i));
    }
    return fault_point("store:repair:before-commit");
}

static enum status rebuild_table(const struct repair *r, enum catalog_table table, const struct shard_record *shards) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, r->w->catalog, true));
    enum status s = repair_refill(r, t, table, shards);
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
    if (s == STATUS_OK) hashes = hashes_verify(t, w->catalog, &w->sealed, &w->published, shards, true);
    catalog_abort(t);
    r->documents_good = s == STATUS_OK;
    if (s != STATUS_OK) {
        s = finding(r->f, s, catalog_path(w->catalog), remedy_build);
        goto out;
    }
    if (runs == STATUS_CORRUPT) runs = rebuild_table(r, TABLE_RUNS, shards);
    if (runs == STATUS_OK && hashes == STATUS_CORRUPT) hashes = rebuild_table(r, TABLE_HASHES, shards);
    s = runs == STATUS_OK ? hashes : runs;
out:
    memory_free(shards);
    return s;
}

/* ---- landmarks ---- */

/* Records the new checksum of a file for all of its shards. */
static enum status change_landmark_file(struct repair *r, const struct shard_record *file, struct stored_file now) {
    for (int64_t i = file->first_file_shard; i <= file->last_file_shard; i++) {
        if (shard_is_dropped(&r->shards[i])) continue;
        TRY(memory_grow(&r->changed, &r->changed_capacity, r->n_changed + 1));
        r->changed[r->n_changed] = r->shards[i];
        r->changed[r->n_changed++].landmark_file = now;
    }
    return STATUS_OK;
}

static enum status encode_file(struct repair *r, const struct shard_record *file) {
    char path[FILE_PATH_MAX];
    const enum shard_kind kind = shard_landmark_kind(r->w->landmark_type);
    TRY(shard_path(path, r->w->dir, kind, file->first_file_shard, file->last_file_shard));
    if (!r->documents_good) {
        r->landmarks_good = false;
        return finding(r->f, fail(STATUS_CORRUPT, "%s: damaged, and so is the catalog", path), path, remedy_build);
    }
    struct stored_file now, before = file->landmark_file;
    TRY(shard_encode(&now, r->w, r->shards, file, r->encoder, r->how->progress));
    if (now.crc == before.crc && now.bytes == before.bytes) {
        progress_note(r->how->progress, "%s: was encoded again, to the bytes that are recorded", path);
        return STATUS_OK;
    }
    progress_note(r->how->progress,
                  "%s: was encoded again; its bytes are not those recorded (CRC32C %08x, recorded %08x), as on another "
                  "kind of device; the new ones are recorded",
                  path, now.crc, before.crc);
    return change_landmark_file(r, file, now);
}

static enum status repair_landmarks(struct repair *r) {
    for (size_t i = 0; i < r->n_damaged; i++)
        TRY(encode_file(r, &r->damaged[i]));
    return STATUS_OK;
}

/* Records the files, but no index of them, which needs the landmarks of all shards. */
static enum status record_changed(const struct repair *r) {
    if (r->n_changed == 0) return STATUS_OK;
    struct catalog_txn *t;
    const struct publish_change change = {.shards = r->changed, .n_shards = (int64_t)r->n_changed};
    TRY(catalog_begin(&t, r->w->catalog, true));
    enum status s = publish_record_shards(r->w, t, &change);
    if (s == STATUS_OK) s = fault_point("store:reencode:before-commit");
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    return catalog_commit(t);
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
    struct shard_record *shards;
    int64_t n;
    bool covered = false;
    TRY(record_list_segments(t, w->catalog, &list, &n));
    enum status s = record_list_shards(t, w->catalog, &shards, w->published.shards);
    if (s == STATUS_OK) {
        s = published_covered(&covered, list, n, shards, &w->published, index.template_number > 0);
        memory_free(shards);
    }
    if (s == STATUS_OK && !covered)
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

/* Deletes records that cannot be read. The later steps write them again, but could not read them. */
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

/* Whether the caller names another kind of index than the store has. It is then made even if the old
 * one is undamaged. */
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
    /* An index that is replaced is not opened, because its type may not have been checked. */
    if (s == STATUS_OK && !(another && r->landmarks_good)) s = check_segments(r, t);
    catalog_abort(t);
    bool damaged = s == STATUS_CORRUPT || s == STATUS_IO;
    if (s != STATUS_OK && !damaged) return s;
    if (!r->landmarks_good) {
        char folder[FILE_PATH_MAX];
        TRY(file_join(folder, w->dir, "index"));
        TRY(finding(r->f, s, folder, remedy_shards_first));
        return record_changed(r);
    }
    if (damaged) TRY(drop_unreadable(r));
    if (!damaged && !another && r->n_changed == 0) return STATUS_OK;
    const struct publish_change change = {
        .rebuild = damaged || another, .shards = r->changed, .n_shards = (int64_t)r->n_changed};
    TRY(publish_generation(w, &w->published, r->how, &change));
    if (change.rebuild)
        repair_note(r,
                    another ? "the index was made anew, of another kind" : "the index was rebuilt from the landmarks");
    return STATUS_OK;
}

/* ---- lexical index ---- */

/* Removes damaged segments from the record. */
static enum status lexical_check(const struct repair *r, struct lexical_record *record, bool *damaged) {
    struct store_writer *w = r->w;
    int64_t kept = 0;
    char path[FILE_PATH_MAX];
    for (int64_t i = 0; i < record->n; i++) {
        TRY(lexical_path(path, w->dir, record->list[i].number));
        enum status s = lexical_segment_verify(path, &record->list[i], w->fingerprint.vocab_size, true, NULL);
        if (s == STATUS_NO_MEMORY || s == STATUS_INTERRUPTED) return s;
        if (s == STATUS_OK) record->list[kept++] = record->list[i];
    }
    *damaged = *damaged || kept < record->n;
    record->n = kept;
    return STATUS_OK;
}

/* Replaces a record that cannot be read. It is unknown whether an index was wanted and which file names it used. So an
 * index is made, with numbers after those of all files of the folder. */
static enum status lexical_read(const struct repair *r, struct lexical_record *record, bool *damaged) {
    struct catalog_txn *t;
    TRY(begin_reading(r, &t));
    enum status s = record_get_lexical(t, r->w->catalog, record);
    catalog_abort(t);
    *damaged = s == STATUS_CORRUPT;
    if (!*damaged) return s;
    record->wanted = true;
    for (bool taken = true; taken;) {
        char path[FILE_PATH_MAX];
        TRY(lexical_path(path, r->w->dir, record->next_number));
        taken = file_exists(path);
        record->next_number += taken;
    }
    return STATUS_OK;
}

static enum status repair_lexical(struct repair *r) {
    struct store_writer *w = r->w;
    struct lexical_record record = {0};
    bool damaged = false;
    char folder[FILE_PATH_MAX];
    if (w->published.number == 0) return STATUS_OK;
    TRY(file_join(folder, w->dir, "lexical"));
    enum status s = lexical_read(r, &record, &damaged);
    if (s == STATUS_OK) s = lexical_check(r, &record, &damaged);
    int64_t before = w->published.number;
    struct store_publish how = *r->how;
    how.lexical = STORE_LEXICAL_KEEP;
    if (s == STATUS_OK) s = publish_lexical(w, &how, &record, damaged);
    lexical_record_free(&record);
    if (s == STATUS_CORRUPT) return finding(r->f, s, folder, remedy_shards_first);
    if (s == STATUS_OK && w->published.number > before) repair_note(r, "the lexical index was rebuilt from the tokens");
    return s;
}

/* Keys need their model, so damaged files are only reported. Without the record of sections it is not known which
 * chunks a file has, so all are removed. */
static enum status repair_keys(const struct repair *r) {
    struct store_writer *w = r->w;
    struct catalog_txn *t;
    struct keys_layout layout;
    int64_t removed;
    TRY(begin_reading(r, &t));
    enum status s = keys_layout_read(&layout, t, w->catalog, w->published.chunks);
    keys_layout_free(&layout);
    const bool damaged = s == STATUS_CORRUPT;
    if (s == STATUS_OK) s = keys_verify(r->f, t, w->catalog, w->dir, w->published.chunks, true, r->how->progress);
    catalog_abort(t);
    if (!damaged) return s;
    TRY(store_keys_remove(&removed, w->dir));
    TRY(catalog_begin(&t, w->catalog, true));
    s = record_remove_sections(t);
    if (s != STATUS_OK) {
        catalog_abort(t);
        return s;
    }
    repair_note(r, "the record of its keys was damaged, and the keys were removed: run drt-index keys");
    return catalog_commit(t);
}

static enum status repair_all(struct repair *r) {
    enum status s = catalog_check(r->w->catalog);
    if (s != STATUS_OK) return finding(r->f, s, catalog_path(r->w->catalog), remedy_build);
    TRY(repair_shards(r));
    TRY(repair_tables(r));
    TRY(repair_landmarks(r));
    TRY(repair_index(r));
    TRY(repair_lexical(r));
    return repair_keys(r);
}

/* Restores the meta pages before the writer opens the catalog: opening refuses pages that contradict catalog/commit.
 * The writer checks whether the store may be written at all. */
static enum status repair_commit(const struct repair *r, const char *dir) {
    char lock_path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    const char *what = NULL;
    bool unwritten;
    int lock = -1;
    TRY(file_join(lock_path, dir, "lock"));
    TRY(file_join(folder, dir, "catalog"));
    if (catalog_is_unwritten(&unwritten, folder) != STATUS_OK || unwritten) return STATUS_OK;
    if (file_lock(&lock, lock_path) != STATUS_OK) return STATUS_OK;
    enum status s = commit_record_restore(&what, folder);
    close(lock);
    if (s == STATUS_OK && what) progress_note(r->how->progress, "%s: %s", dir, what);
    return s;
}

enum status store_repair(const char *dir, const struct store_publish *how, const struct store_encoder *encoder,
                         store_problem *problem, void *context, int64_t *problems) {
    static const struct store_publish defaults = {.seed = 1};
    static const struct store_encoder without = {.encode = store_encode_nothing};
    struct findings f = {.problem = problem, .context = context};
    struct repair r = {.how = how ? how : &defaults, .encoder = encoder, .f = &f};
    char path[FILE_PATH_MAX];
    TRY(frozen_refuse(dir));
    TRY(file_join(path, dir, "catalog/data.mdb"));
    enum status s = repair_commit(&r, dir);
    if (s == STATUS_OK) s = writer_open(&r.w, dir, NULL, false);
    if (s == STATUS_CORRUPT) {
        s = finding(&f, s, path, remedy_build);
    } else if (s == STATUS_OK) {
        if (r.w->landmark_type == STORE_LANDMARKS_NONE)
            r.encoder = &without; /* a store without landmarks needs no model */
        else if (encoder)
            s = store_check_fingerprint(dir, &r.w->fingerprint, "the model", &encoder->fingerprint);
        if (s == STATUS_OK) s = repair_all(&r);
    }
    store_writer_close(r.w);
    memory_free(r.shards);
    memory_free(r.damaged);
    memory_free(r.changed);
    *problems = f.count;
    return s;
}
