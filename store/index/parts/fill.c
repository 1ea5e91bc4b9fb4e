/* fill.c -- store_index_fill of index_parts.h: the lists of one part, in files of which each fits in memory.
 *
 * A file contains a range of chunks without dropped ones, called a run. Runs are numbered in order. So the runs of an
 * earlier, killed call are found by their numbers, and the next run begins at the end of the last valid one. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/index/list_rows_internal.h"
#include "store/index/parts/index_parts_internal.h"
#include "store/index/parts/list_file_internal.h"
#include <stdio.h>
#include <unistd.h>

struct filling {
    const char *work;
    const struct store_publish *how;
    struct store_index_parts_report *report;
    struct index_parts_plan plan;
    struct index_parts_store store;
    int part, parts;
    struct store_range range;
    int64_t most; /* the most rows of a file */
    int64_t run;  /* number of the next file */
};

static struct index_build build_of(struct filling *f) {
    return (struct index_build){.dir = f->store.dir,
                                .stopped = "run the same command again to continue",
                                .landmarks = &f->store.landmarks,
                                .how = f->how};
}

static struct index_parts_rows rows_of(struct filling *f) {
    struct index_parts_store *s = &f->store;
    return (struct index_parts_rows){s->shards, s->generation.shards, &s->landmarks, s->encoded};
}

static struct list_file_head head_of(const struct filling *f, struct store_range rows, const struct vectors *v) {
    return (struct list_file_head){
        .lists = vectors_lists(v),
        .code_bytes = vectors_code_bytes(v),
        .plan = f->plan.id,
        .part = f->part,
        .parts = f->parts,
        .first_chunk = rows.begin,
        .rows = rows.end - rows.begin,
    };
}

/* Whether the file contains what this call would write. If not, *current is false and the message states why. */
static enum status check_run(struct filling *f, const struct list_file_head *h, struct store_range there,
                             const char *path, bool *current) {
    const struct store_range rows = {h->first_chunk, h->first_chunk + h->rows};
    const struct index_parts_rows of = rows_of(f);
    uint32_t crc = 0;
    *current = h->plan == f->plan.id && h->part == f->part && h->parts == f->parts && rows.begin == there.begin &&
               rows.end <= there.end;
    if (*current) TRY(index_parts_rows_crc(&crc, &of, rows));
    *current = *current && crc == h->rows_crc;
    if (!*current)
        progress_note(f->how->progress,
                      "%s: is of another template, or of other rows than the store has now: it is made again", path);
    return STATUS_OK;
}

/* Whether an earlier call left a valid file whose rows begin at `there.begin`. *end: the end of its rows. */
static enum status find_run(struct filling *f, struct store_range there, int64_t *end, bool *found) {
    char path[FILE_PATH_MAX];
    struct list_file file;
    *found = false;
    TRY(list_file_path(path, f->work, f->part, f->parts, f->run));
    if (!file_exists(path)) return STATUS_OK;
    enum status s = list_file_open(&file, path);
    if (s == STATUS_OK) TRY(check_run(f, &file.head, there, path, found));
    if (s == STATUS_OK && *found) s = list_file_verify(&file, path);
    if (s == STATUS_CORRUPT) progress_note(f->how->progress, "%s: it is made again", status_message());
    if (s != STATUS_OK) *found = false;
    if (*found) *end = file.head.first_chunk + file.head.rows;
    return s == STATUS_CORRUPT ? STATUS_OK : s;
}

static enum status make_run(struct filling *f, struct store_range rows) {
    char path[FILE_PATH_MAX];
    struct vectors *v;
    const struct index_build build = build_of(f);
    TRY(list_file_path(path, f->work, f->part, f->parts, f->run));
    char template[FILE_PATH_MAX];
    TRY(index_parts_template_path(template, f->work));
    TRY(index_build_open_template(&v, template, f->plan.template_file, f->store.fingerprint.dim,
                                  "remove this folder, and train again"));
    const bool own = f->plan.method != STORE_ASSIGN_FAISS;
    struct list_rows lists = {0};
    enum status s = own ? list_rows_fill(&lists, &build, v, rows, f->range.end)
                        : index_build_fill(&build, v, rows.begin, rows.end, f->range.end);
    struct list_file_head head = head_of(f, rows, v);
    const struct index_parts_rows of = rows_of(f);
    if (s == STATUS_OK) s = index_parts_rows_crc(&head.rows_crc, &of, rows);
    if (s == STATUS_OK && own) s = list_file_write_rows(path, &head, &lists, f->how->threads);
    if (s == STATUS_OK && !own) s = list_file_write(path, &head, v);
    list_rows_free(&lists);
    vectors_free(v);
    if (s == STATUS_OK) s = fault_point("store:parts:run-written");
    return s;
}

/* Ends a file at the end of a block, so that a block is added as a whole. */
static struct store_range next_rows(const struct filling *f, struct store_range there) {
    if (there.end - there.begin <= f->most) return there;
    const int64_t block = index_build_block(f->store.fingerprint.dim);
    const int64_t cut = (there.begin + f->most) / block * block;
    return (struct store_range){there.begin, cut > there.begin ? cut : there.begin + f->most};
}

/* Removes the files after the last one of this call, which an earlier call with less memory made. */
static enum status remove_later(const struct filling *f) {
    char path[FILE_PATH_MAX];
    for (int64_t run = f->run;; run++) {
        TRY(list_file_path(path, f->work, f->part, f->parts, run));
        if (!file_exists(path)) return STATUS_OK;
        TRY(file_remove(path));
    }
}

static enum status fill_runs(struct filling *f) {
    const struct store_dropped dropped = landmarks_dropped(&f->store.landmarks);
    f->run = 1;
    for (int64_t at = f->range.begin; at < f->range.end;) {
        struct store_range rows = store_dropped_span(dropped, at, f->range.end);
        bool found;
        int64_t end;
        if (rows.begin == rows.end) break;
        TRY(find_run(f, rows, &end, &found));
        if (found)
            rows.end = end;
        else
            rows = next_rows(f, rows);
        if (!found) TRY(make_run(f, rows));
        f->report->rows += rows.end - rows.begin;
        f->report->files++;
        f->report->kept += found;
        f->run++;
        at = rows.end;
    }
    f->report->already = f->report->files == f->report->kept;
    return remove_later(f);
}

/* All parts are assigned by the method of the plan. */
static enum status check_method(const struct filling *f) {
    const struct store_assignment *here = &f->how->assignment;
    if (f->plan.method == STORE_ASSIGN_FAISS || (here->open && here->method == f->plan.method)) return STATUS_OK;
    return fail(STATUS_MISMATCH,
                "%s: the training chose that chunks are assigned to lists %s, which this process cannot do: fill all "
                "parts on such devices, or remove this folder and train with --assign cpu",
                f->work, f->plan.method == STORE_ASSIGN_F16 ? "on GPUs" : "in float32");
}

static enum status check_plan(struct filling *f) {
    struct index_parts_store *s = &f->store;
    char path[FILE_PATH_MAX];
    TRY(index_parts_plan_read(&f->plan, f->work));
    TRY(index_parts_check_store(&f->plan, f->work, s->dir, s->t, s->catalog, &s->fingerprint, &s->generation));
    TRY(check_method(f));
    catalog_pause(s->t); /* a writer may reuse pages while this process works for hours */
    TRY(index_parts_template_path(path, f->work));
    TRY(stored_file_check(path, f->plan.template_file, "remove this folder, and train again"));
    TRY(index_plan_rows(&f->most, f->plan.factory, s->fingerprint.dim, store_publish_max_ram(f->how)));
    f->range = index_parts_range(&f->plan, f->part, f->parts);
    return STATUS_OK;
}

/* Two processes that fill one part would write files of the same names, so a lock excludes the second. The lock file is
 * not removed: otherwise a third process could lock a new file of the same name. */
static enum status fill_locked(struct filling *f) {
    char path[FILE_PATH_MAX], name[64];
    int lock;
    snprintf(name, sizeof name, "part-%d-of-%d.lock", f->part, f->parts);
    TRY(file_join(path, f->work, name));
    enum status s = file_lock(&lock, path);
    if (s == STATUS_BUSY)
        return fail(s, "%s: another process fills part %d of %d: wait until it ends", f->work, f->part, f->parts);
    TRY(s);
    s = fill_runs(f);
    close(lock);
    return s;
}

enum status store_index_assigned(enum store_assign_method *out, const char *work) {
    struct index_parts_plan plan;
    TRY(index_parts_plan_read(&plan, work));
    *out = plan.method;
    return STATUS_OK;
}

enum status store_index_fill(struct store_index_parts_report *out, const char *dir, const char *work, int part,
                             int parts, const struct store_publish *how) {
    struct filling f = {.work = work, .how = how, .report = out, .part = part, .parts = parts};
    *out = (struct store_index_parts_report){.parts = parts};
    TRY(index_parts_store_open(&f.store, dir));
    enum status s = check_plan(&f);
    if (s == STATUS_OK) s = fill_locked(&f);
    if (s == STATUS_OK) {
        snprintf(out->index, sizeof out->index, "%s", f.plan.factory);
        out->chunks = f.plan.chunks;
        out->begin = f.range.begin;
        out->end = f.range.end;
    }
    index_parts_store_close(&f.store);
    return s;
}
