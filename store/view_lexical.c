/* view_lexical.c -- the lexical index of a view. It is derived data that most calls do not need. So a view with a
 * damaged lexical index opens, and only store_view_lexical returns the failure. */
#include "base/memory.h"
#include "store/lexical/lexical.h"
#include "store/view_internal.h"
#include <string.h>

/* Keeps this thread's message in the view, or a constant if there is no memory for it. */
static void keep_problem(struct store_view *v, enum status s) {
    memory_free(v->lexical_problem);
    v->lexical_problem = NULL;
    v->lexical_status = s;
    char *copy = NULL;
    if (s != STATUS_OK && memory_copy_string(&copy, status_message()) == STATUS_OK) v->lexical_problem = copy;
}

enum status view_read_lexical(struct store_view *v) {
    lexical_record_free(&v->lexical_record);
    enum status s = record_get_lexical(v->txn, v->store->catalog, &v->lexical_record);
    if (s != STATUS_OK && s != STATUS_CORRUPT) return s;
    keep_problem(v, s);
    return STATUS_OK;
}

static enum status check_ranges(const struct store_view *v, const struct lexical *x) {
    for (int64_t i = 0; i < v->lexical_record.n; i++) {
        const struct lexical_segment_record *r = &v->lexical_record.list[i];
        const struct lexical_range range = lexical_segment_range(x, i);
        char path[FILE_PATH_MAX];
        if (range.first_chunk == r->first_chunk && range.chunks == r->chunks) continue;
        TRY(lexical_path(path, v->store->dir, r->number));
        return fail(STATUS_CORRUPT, "%s: holds other chunks than are recorded, run drt-index repair", path);
    }
    struct lexical_info info;
    lexical_info(x, &info);
    if (info.segments > 0 && info.vocab_size != v->store->fingerprint.vocab_size)
        return fail(STATUS_CORRUPT, "%s/lexical: is of a vocabulary of %d ids, the store of %d, run drt-index repair",
                    v->store->dir, info.vocab_size, v->store->fingerprint.vocab_size);
    return STATUS_OK;
}

static enum status open_segments(struct store_view *v, char **paths) {
    const struct lexical_record *r = &v->lexical_record;
    /* the lexical index excludes deleted chunks, too */
    const struct store_dropped dropped = landmarks_missing(&v->landmarks);
    if (!lexical_record_covers(r, dropped, v->generation.chunks))
        return fail(STATUS_CORRUPT, "%s/lexical: the lexical index does not cover all chunks, run drt-index repair",
                    v->store->dir);
    for (int64_t i = 0; i < r->n; i++) {
        char path[FILE_PATH_MAX];
        TRY(lexical_path(path, v->store->dir, r->list[i].number));
        TRY(stored_file_check(path, r->list[i].file, "run drt-index repair"));
        TRY(memory_copy_string(&paths[i], path));
    }
    TRY(lexical_open(&v->lexical, (const char *const *)paths, r->n));
    return check_ranges(v, v->lexical);
}

void view_open_lexical(struct store_view *v) {
    char **paths = NULL;
    if (!v->lexical_record.wanted || v->lexical_status != STATUS_OK) return;
    enum status s;
    TRY_GOTO(s, memory_allocate_zero(&paths, (size_t)v->lexical_record.n + 1), out);
    s = open_segments(v, paths);
out:
    for (int64_t i = 0; paths && i < v->lexical_record.n; i++)
        memory_free(paths[i]);
    memory_free(paths);
    if (s == STATUS_OK) return;
    keep_problem(v, s);
    lexical_close(v->lexical);
    v->lexical = NULL;
}

void view_close_lexical(struct store_view *v) {
    lexical_close(v->lexical);
    v->lexical = NULL;
    lexical_record_free(&v->lexical_record);
    memory_free(v->lexical_problem);
    v->lexical_problem = NULL;
    v->lexical_status = STATUS_OK;
}

enum status store_view_lexical(const struct lexical **out, const struct store_view *v) {
    *out = v->lexical;
    if (v->lexical) return STATUS_OK;
    const char *dir = v->store->dir;
    if (v->lexical_status != STATUS_OK)
        return fail(v->lexical_status, "%s", v->lexical_problem ? v->lexical_problem : "the lexical index is damaged");
    return fail(STATUS_UNSUPPORTED, "%s: the store has no lexical index: make it with drt-index lexical --store %s",
                dir, dir);
}
