/* freeze.c -- see freeze.h.
 *
 * Order: the data files are put into <to>.partial; then the catalog is copied and its journal removed; then
 * catalog/frozen is written. Everything is durable before the folder gets its final name. Links are safe: data files
 * never change, and when the store removes a file, the snapshot's link stays. */
#include "store/change/freeze.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/catalog/frozen_internal.h"
#include "store/catalog/record_format_internal.h"
#include "store/catalog/record_lexical_internal.h"
#include "store/keys/keys_file_internal.h"
#include "store/keys/keys_layout_internal.h"
#include "store/parts/take_file_internal.h"
#include "store/writer_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const folders[] = {"tokens", "landmarks", "index", "lexical", "keys", "catalog"};
static const char marker[] = ".drt-freeze"; /* in <to>.partial: shows that the folder may be removed */

struct freeze {
    const char *dir;
    char to[FILE_PATH_MAX];   /* without trailing slashes */
    char work[FILE_PATH_MAX]; /* <to>.partial */
    const struct store_freeze *how;
    struct store_freeze_report *report;
    bool copy;
    int lock;
    struct catalog *catalog;
    struct catalog_txn *t;
    struct store_fingerprint fingerprint;
    enum store_landmarks landmarks;
    struct generation_record generation;
    struct shard_record *shards;
};

/* ---- the folder of the work --------------------------------------------------------------------------------- */

static enum status freeze_remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return errno == ENOENT ? STATUS_OK : fail_errno("%s", path);
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(folder));) {
        char name[FILE_PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        s = file_join(name, path, entry->d_name);
        if (s == STATUS_OK) s = file_remove(name);
    }
    closedir(folder);
    if (s == STATUS_OK && rmdir(path) != 0) s = fail_errno("%s", path);
    return s;
}

/* Removes what a killed or failed call left. The marker is removed last, so that this function can be killed
 * and repeated, too. */
static enum status freeze_clean(const struct freeze *f) {
    char path[FILE_PATH_MAX], frozen[FILE_PATH_MAX];
    if (!file_is_directory(f->work) || rmdir(f->work) == 0) return STATUS_OK;
    TRY(file_join(path, f->work, marker));
    TRY(file_join(frozen, f->work, "catalog/frozen")); /* the snapshot was complete but not renamed yet */
    if (!file_exists(path) && !file_exists(frozen))
        return fail(STATUS_INVALID, "%s: exists and is not an unfinished snapshot: move it, or choose another --out",
                    f->work);
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        TRY(file_join(path, f->work, folders[i]));
        TRY(freeze_remove_folder(path));
    }
    return freeze_remove_folder(f->work);
}

static enum status freeze_begin(const struct freeze *f) {
    char path[FILE_PATH_MAX];
    TRY(freeze_clean(f));
    TRY(file_make_directory(f->work));
    TRY(file_join(path, f->work, marker));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return fail_errno("%s", path);
    close(fd);
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        TRY(file_join(path, f->work, folders[i]));
        TRY(file_make_directory(path));
    }
    return fault_point("store:freeze:begun");
}

/* ---- data files --------------------------------------------------------------------------------------------- */

/* `from` is a path in the store. */
static enum status freeze_take(struct freeze *f, const char *from, struct stored_file recorded, const char *remedy) {
    char to[FILE_PATH_MAX];
    const struct file_taking taking = {&f->copy, &f->report->linked, &f->report->copied, f->how->progress};
    TRY(file_join(to, f->work, from + strlen(f->dir) + 1));
    TRY(stored_file_check(from, recorded, remedy));
    return file_take(to, from, recorded, &taking);
}

static enum status freeze_shards(struct freeze *f) {
    char path[FILE_PATH_MAX], remedy[SHARD_REMEDY_MAX];
    for (int64_t i = 0; i < f->generation.shards; i = f->shards[i].last_file_shard + 1) {
        const struct shard_record file = record_of_shard_file(f->shards, i);
        progress_step(f->how->progress, "freeze", "shards", file.last_file_shard + 1, f->generation.shards);
        if (progress_stop_requested(f->how->progress))
            return fail(STATUS_INTERRUPTED, "%s: stopped; no snapshot was made", f->to);
        if (shard_is_dropped(&file)) continue;
        for (int which = 0; which < SHARD_FILES; which++) {
            const enum shard_kind kind = shard_file_kind(f->landmarks, which);
            shard_remedy(remedy, kind, &file);
            TRY(shard_path(path, f->dir, kind, file.first_file_shard, file.last_file_shard));
            TRY(freeze_take(f, path, kind == SHARD_TOKENS ? file.token_file : file.landmark_file, remedy));
        }
    }
    return fault_point("store:freeze:shards-taken");
}

static enum status freeze_index(struct freeze *f) {
    char path[FILE_PATH_MAX];
    struct index_record index;
    struct segment_record *list;
    int64_t n;
    TRY(record_get_index(f->t, f->catalog, &index));
    if (index.template_number) {
        TRY(index_path(path, f->dir, index.template_number));
        TRY(freeze_take(f, path, index.template_file, "run drt-index repair"));
    }
    TRY(record_list_segments(f->t, f->catalog, &list, &n));
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < n && s == STATUS_OK; i++) {
        s = index_path(path, f->dir, list[i].number);
        if (s == STATUS_OK) s = freeze_take(f, path, list[i].file, "run drt-index repair");
    }
    memory_free(list);
    return s;
}

static enum status freeze_lexical(struct freeze *f) {
    char path[FILE_PATH_MAX];
    struct lexical_record record;
    TRY(record_get_lexical(f->t, f->catalog, &record));
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < record.n && s == STATUS_OK; i++) {
        s = lexical_path(path, f->dir, record.list[i].number);
        if (s == STATUS_OK) s = freeze_take(f, path, record.list[i].file, "run drt-index repair");
    }
    lexical_record_free(&record);
    return s;
}

/* A damaged file is left out: a store without keys is complete. */
static enum status freeze_keys_file(struct freeze *f, int64_t number, struct keys_range range) {
    char path[FILE_PATH_MAX];
    struct keys_file file;
    TRY(keys_path(path, f->dir, number));
    enum status s = keys_file_open(&file, path, NULL, NULL);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    if (s == STATUS_OK) s = keys_file_in(&file, path, range);
    if (s == STATUS_OK) s = freeze_take(f, path, keys_file_recorded(&file), "run drt-index keys again");
    keys_file_close(&file);
    if (s == STATUS_CORRUPT || s == STATUS_VERSION) {
        progress_note(f->how->progress, "the snapshot lacks keys of a token memory: %s", status_message());
        s = STATUS_OK;
    }
    return s;
}

static enum status freeze_keys(struct freeze *f) {
    struct keys_layout layout;
    enum status s = keys_layout_read(&layout, f->t, f->catalog, f->generation.chunks);
    for (int64_t i = 0; i < layout.files && s == STATUS_OK; i++) {
        s = freeze_keys_file(f, i, keys_layout_range(&layout, i));
        if (s == STATUS_OK && progress_stop_requested(f->how->progress))
            s = fail(STATUS_INTERRUPTED, "%s: stopped; no snapshot was made", f->to);
    }
    keys_layout_free(&layout);
    return s;
}

/* ---- the catalog -------------------------------------------------------------------------------------------- */

/* Opens the copy as a writer does. That raises it to the current format, writes its commit record, and removes the
 * journal and the lock files. */
static enum status freeze_catalog(const struct freeze *f) {
    char path[FILE_PATH_MAX];
    struct store_writer *w;
    TRY(file_join(path, f->work, "catalog"));
    TRY(catalog_copy(f->catalog, path));
    TRY(fault_point("store:freeze:catalog-copied"));
    TRY(writer_open(&w, f->work, NULL, false));
    enum status s = store_writer_drop_journal(w);
    store_writer_close(w);
    TRY(s);
    TRY(file_join(path, f->work, "catalog/lock.mdb"));
    TRY(file_remove(path));
    TRY(file_join(path, f->work, "lock"));
    TRY(file_remove(path));
    TRY(file_join(path, f->work, "catalog"));
    return frozen_write(path, (uint64_t)f->generation.number);
}

static enum status freeze_publish(const struct freeze *f) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, f->work, marker));
    TRY(file_remove(path));
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        TRY(file_join(path, f->work, folders[i]));
        TRY(file_sync_directory(path));
    }
    TRY(file_sync_directory(f->work));
    TRY(fault_point("store:freeze:before-rename"));
    if (rename(f->work, f->to) != 0) return fail_errno("%s: cannot be renamed to %s", f->work, f->to);
    snprintf(path, sizeof path, "%s", f->to);
    return file_sync_directory(dirname(path));
}

/* ---- all of it ---------------------------------------------------------------------------------------------- */

/* Whether `to` is this snapshot already. Fails if `to` is something else. */
static enum status freeze_existing(struct freeze *f) {
    char folder[FILE_PATH_MAX];
    struct frozen_record found;
    bool frozen;
    struct store *store;
    struct store_view *view = NULL;
    struct store_info info = {0};
    if (!file_exists(f->to) || rmdir(f->to) == 0) return STATUS_OK; /* an empty folder is replaced */
    TRY(file_join(folder, f->to, "catalog"));
    TRY(frozen_read(&found, &frozen, folder));
    if (!frozen) return fail(STATUS_MISMATCH, "%s: exists and is not a snapshot: choose another folder", f->to);
    TRY(store_open(&store, f->to));
    enum status s = store_view_open(&view, store);
    if (s == STATUS_OK) store_view_info(view, &info);
    store_view_close(view);
    store_close(store);
    TRY(s);
    const struct generation_record *g = &f->generation;
    f->report->already_frozen = info.generation == (uint64_t)g->number && info.chunks == g->chunks &&
                                info.documents == g->documents && info.tokens == g->tokens &&
                                info.landmarks == f->landmarks &&
                                memcmp(&f->fingerprint, &info.fingerprint, sizeof f->fingerprint) == 0;
    if (f->report->already_frozen) return STATUS_OK;
    return fail(STATUS_MISMATCH,
                "%s: is a snapshot of generation %llu of a store, %s has generation %lld: choose another folder, or "
                "remove the old snapshot when nothing reads it",
                f->to, (unsigned long long)info.generation, f->dir, (long long)g->number);
}

static enum status freeze_read(struct freeze *f) {
    char path[FILE_PATH_MAX];
    TRY(catalog_open(&f->catalog, f->dir, false, 0));
    if (!catalog_is_frozen(f->catalog)) {
        TRY(file_join(path, f->dir, "lock"));
        enum status s = file_lock(&f->lock, path);
        if (s == STATUS_BUSY)
            return fail(s, "%s: a writer is at work on this store, freeze it when that is done", f->dir);
        TRY(s);
    }
    TRY(catalog_begin(&f->t, f->catalog, false));
    TRY(record_get_generation(f->t, f->catalog, &f->generation));
    if (f->generation.number == 0)
        return fail(STATUS_NOT_FOUND, "%s: nothing is published yet, finish the build first", f->dir);
    int format;
    TRY(record_get_identity(f->t, f->catalog, &f->fingerprint, &format, &f->landmarks));
    f->report->generation = (uint64_t)f->generation.number;
    f->report->chunks = f->generation.chunks;
    f->report->documents = f->generation.documents;
    return record_list_shards(f->t, f->catalog, &f->shards, f->generation.shards);
}

static enum status freeze_all(struct freeze *f, const char *to) {
    size_t n = strlen(to);
    while (n > 1 && to[n - 1] == '/')
        n--;
    if (snprintf(f->to, sizeof f->to, "%.*s", (int)n, to) >= FILE_PATH_MAX ||
        snprintf(f->work, sizeof f->work, "%.*s.partial", (int)n, to) >= FILE_PATH_MAX)
        return fail(STATUS_INVALID, "%.100s...: path is too long", to);
    TRY(freeze_read(f));
    TRY(freeze_existing(f));
    if (f->report->already_frozen) return STATUS_OK;
    TRY(freeze_begin(f));
    TRY(freeze_shards(f));
    TRY(freeze_index(f));
    TRY(freeze_lexical(f));
    TRY(freeze_keys(f));
    catalog_abort(f->t); /* a reader does not block a commit, but the copy makes its own snapshot */
    f->t = NULL;
    TRY(freeze_catalog(f));
    return freeze_publish(f);
}

enum status store_freeze(struct store_freeze_report *out, const char *dir, const char *to,
                         const struct store_freeze *how) {
    *out = (struct store_freeze_report){0};
    struct freeze f = {.dir = dir, .how = how, .report = out, .copy = how->copy, .lock = -1};
    enum status s = freeze_all(&f, to);
    if (s == STATUS_INTERRUPTED && freeze_clean(&f) != STATUS_OK) progress_note(how->progress, "%s", status_message());
    catalog_abort(f.t);
    catalog_close(f.catalog);
    if (f.lock >= 0) close(f.lock);
    memory_free(f.shards);
    return s;
}
