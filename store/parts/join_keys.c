/* join_keys.c -- see join_keys_internal.h. Keys of a chunk depend only on the text of its document, and a document is
 * in one part. So they are also those of the joined store. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/keys/keys_file_internal.h"
#include "store/keys/keys_layout_internal.h"
#include "store/parts/join_keys_internal.h"
#include "store/verify_internal.h"
#include "store/view_internal.h"
#include <stdio.h>
#include <string.h>

struct joining {
    const struct keys_join *how;
    struct store_writer *w;
    struct store_keys_spec spec; /* of the first part that has chunks */
    bool known;                  /* whether `spec` is set */
    int64_t files;
    char why[600]; /* why the joined store gets no keys; "": it gets them */
};

/* Why the joined store gets no keys, after a failure: its message without the remedy, which is another one here. */
static void set_reason(struct joining *j) {
    snprintf(j->why, sizeof j->why, "%s", status_message());
    char *remedy = message_remedy(j->why);
    if (remedy) *remedy = 0;
}

/* Opens a part and calls `each` with its view. */
static enum status part_open(struct joining *j, const struct keys_part *p,
                             enum status (*each)(struct joining *j, const struct keys_part *p, struct store_view *v)) {
    struct store *store;
    struct store_view *view = NULL;
    TRY(store_open(&store, p->dir));
    enum status s = store_view_open(&view, store);
    if (s == STATUS_OK) s = each(j, p, view);
    store_view_close(view);
    store_close(store);
    return s;
}

static enum status part_check(struct joining *j, const struct keys_part *p, struct store_view *view) {
    struct store_keys_state state;
    TRY(store_keys_state(&state, view));
    if (j->why[0]) return STATUS_OK;
    if (state.chunks == 0)
        snprintf(j->why, sizeof j->why, "%.400s has none", p->dir);
    else if (state.chunks < state.all)
        snprintf(j->why, sizeof j->why, "%.400s has those of %lld of %lld chunks", p->dir, (long long)state.chunks,
                 (long long)state.all);
    else if (j->known && memcmp(&state.spec, &j->spec, sizeof state.spec) != 0)
        snprintf(j->why, sizeof j->why,
                 "those of %.400s are of another model, layer, size, step or rounding than those before", p->dir);
    j->spec = state.spec;
    j->known = true;
    return STATUS_OK;
}

/* ---- files ---- */

/* Whether `to` is the same file, or a copy that an earlier call made. */
static bool taken_before(const char *to, const struct keys_file *from) {
    struct keys_file there;
    if (keys_file_open(&there, to, NULL, NULL) != STATUS_OK) return false;
    const struct stored_file a = keys_file_recorded(from), b = keys_file_recorded(&there);
    const bool same =
        a.bytes == b.bytes && a.crc == b.crc && memcmp(from->map.data, there.map.data, KEYS_HEADER_BYTES) == 0;
    keys_file_close(&there);
    return same;
}

static enum status file_join_keys(struct joining *j, const char *dir, int64_t number) {
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
    struct keys_file file;
    TRY(keys_path(from, dir, number));
    TRY(keys_path(to, j->w->dir, j->files));
    TRY(keys_file_open(&file, from, NULL, NULL));
    const struct stored_file recorded = keys_file_recorded(&file);
    const bool before = taken_before(to, &file);
    keys_file_close(&file);
    j->files++;
    if (before) return STATUS_OK;
    TRY(file_remove(to));
    return file_take(to, from, recorded, &j->how->taking);
}

static enum status part_take(struct joining *j, const struct keys_part *p, struct store_view *view) {
    struct keys_layout layout;
    TRY(keys_layout_open(&layout, view));
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < layout.files && s == STATUS_OK; i++) {
        s = file_join_keys(j, p->dir, i);
        if (s == STATUS_OK) s = fault_point("store:join:keys-taken");
        if (s == STATUS_OK && progress_stop_requested(j->how->taking.progress))
            s = fail(STATUS_INTERRUPTED, "%s: stopped: run the same command again to continue", j->w->dir);
    }
    keys_layout_free(&layout);
    return s;
}

/* Records where the files of each part begin. */
static enum status sections_record(const struct joining *j) {
    int64_t *first, n = 0, sum = 0;
    TRY(memory_allocate(&first, (size_t)j->how->n_parts));
    for (int i = 0; i < j->how->n_parts; i++) {
        if (j->how->parts[i].chunks > 0) first[n++] = sum;
        sum += j->how->parts[i].chunks;
    }
    struct catalog_txn *t;
    enum status s = catalog_begin(&t, j->w->catalog, true);
    if (s == STATUS_OK) {
        s = record_put_sections(t, first, n);
        if (s == STATUS_OK) s = fault_point("store:join:keys-before-commit");
        if (s == STATUS_OK)
            s = catalog_commit(t);
        else
            catalog_abort(t);
    }
    memory_free(first);
    return s;
}

/* ---- all of it ---- */

/* Most stores have no keys. Then no part is opened. */
static enum status any_has_files(bool *yes, const struct keys_join *how) {
    *yes = false;
    for (int i = 0; i < how->n_parts && !*yes; i++) {
        struct store_keys_usage usage;
        TRY(store_keys_usage(&usage, how->parts[i].dir));
        *yes = usage.files > 0;
    }
    return STATUS_OK;
}

static enum status each_part(struct joining *j,
                             enum status (*each)(struct joining *j, const struct keys_part *p, struct store_view *v)) {
    for (int i = 0; i < j->how->n_parts; i++)
        if (j->how->parts[i].chunks > 0) TRY(part_open(j, &j->how->parts[i], each));
    return STATUS_OK;
}

static enum status take_all(struct joining *j) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, j->w->dir, "keys"));
    TRY(file_make_directory(path));
    TRY(each_part(j, part_take));
    TRY(file_sync_directory(path));
    TRY(file_sync_directory(j->w->dir));
    return sections_record(j);
}

enum status keys_join(int64_t *files, struct store_writer *w, const struct keys_join *how) {
    struct joining j = {.how = how, .w = w};
    int64_t removed;
    bool any;
    *files = 0;
    TRY(any_has_files(&any, how));
    if (!any) return store_keys_remove(&removed, w->dir); /* files of an earlier call that was killed */
    TRY(each_part(&j, part_check));
    enum status s = j.why[0] ? STATUS_OK : take_all(&j);
    if (s == STATUS_CORRUPT) set_reason(&j);
    if (!j.why[0]) {
        *files = s == STATUS_OK ? j.files : 0;
        return s;
    }
    progress_note(how->taking.progress,
                  "%s: has no keys of a token memory, because %s: run drt-index keys --store %s with their model",
                  w->dir, j.why, w->dir);
    return store_keys_remove(&removed, w->dir);
}
