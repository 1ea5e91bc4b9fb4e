/* part_files.c -- see part_files_internal.h. Also store_index_parts_remove of index_parts.h. */
#include "base/memory.h"
#include "store/index/parts/part_files_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum status part_file_path(char out[FILE_PATH_MAX], const char *work, int parts, const struct part_file *file) {
    return list_file_path(out, work, file->part, parts, file->run);
}

enum status part_files_remedy(enum status s, const struct part_files_of *of, int part, int parts) {
    char why[1024];
    snprintf(why, sizeof why, "%s", status_message());
    return fail(s, "%s: run drt-index index fill --store %s --work %s --part %d/%d", why, of->dir, of->work, part,
                parts);
}

/* Finds the number of parts, which must be the same in the names of all files of lists in the folder. */
static enum status find_parts(struct part_files *f, const struct part_files_of *of) {
    DIR *folder = opendir(of->work);
    if (!folder) return fail_errno("%s", of->work);
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(folder));) {
        int part, parts;
        int64_t run;
        if (!list_file_name(entry->d_name, &part, &parts, &run)) continue;
        if (f->parts != 0 && f->parts != parts)
            s = fail(STATUS_MISMATCH,
                     "%s: has files of %d parts and of %d: remove those of one division (part-*-of-%d.*)", of->work,
                     f->parts, parts, parts);
        f->parts = parts;
    }
    closedir(folder);
    if (s == STATUS_OK && f->parts == 0)
        s = fail(STATUS_NOT_FOUND,
                 "%s: no part is filled: run drt-index index fill --store %s --work %s --part i/N for each i from 1 "
                 "to N",
                 of->work, of->dir, of->work);
    return s;
}

/* `there`: the chunks with which the part continues, up to the next dropped one. */
static enum status check_head(const struct list_file_head *h, const struct part_files_of *of, const char *path,
                              const struct part_file *file, int parts, struct store_range there) {
    const struct store_range rows = {h->first_chunk, h->first_chunk + h->rows};
    if (h->plan != of->plan->id)
        return fail(STATUS_MISMATCH, "%s: was filled with another template than %s has", path, of->work);
    if (h->part != file->part || h->parts != parts)
        return fail(STATUS_MISMATCH, "%s: is of part %d of %d, not of what its name states", path, h->part, h->parts);
    uint32_t crc = 0;
    if (rows.begin >= there.begin && rows.end <= there.end) TRY(index_parts_rows_crc(&crc, &of->rows, rows));
    if (rows.begin != there.begin || rows.end > there.end || crc != h->rows_crc)
        return fail(STATUS_MISMATCH,
                    "%s: was filled from other rows than the store has now (shards were dropped or encoded again, a "
                    "file of this part was filled anew, or it is another store's)",
                    path);
    return STATUS_OK;
}

/* Adds the file that continues a part at chunk `begin`. */
static enum status add_file(struct part_files *f, const struct part_files_of *of, struct part_file *file,
                            struct store_range there) {
    char path[FILE_PATH_MAX];
    const struct list_file_head *h = &file->file.head;
    TRY(part_file_path(path, of->work, f->parts, file));
    if (!file_exists(path))
        return fail(STATUS_NOT_FOUND, "%s: is missing: part %d of %d is not filled%s", path, file->part, f->parts,
                    file->run > 1 ? " to its end" : "");
    TRY(list_file_open(&file->file, path));
    TRY(check_head(h, of, path, file, f->parts, there));
    TRY(memory_grow(&f->list, &f->capacity, (size_t)f->n + 1));
    f->list[f->n++] = *file;
    f->rows += h->rows;
    return STATUS_OK;
}

static enum status add_part(struct part_files *f, const struct part_files_of *of, int part) {
    const struct store_range range = index_parts_range(of->plan, part, f->parts);
    struct part_file file = {.part = part};
    for (int64_t at = range.begin; at < range.end;) {
        const struct store_range there = store_dropped_span(of->dropped, at, range.end);
        if (there.begin == there.end) break;
        file.run++;
        enum status s = add_file(f, of, &file, there);
        if (s == STATUS_NOT_FOUND || s == STATUS_CORRUPT || s == STATUS_MISMATCH)
            return part_files_remedy(s, of, part, f->parts);
        TRY(s);
        at = there.begin + file.file.head.rows;
    }
    return STATUS_OK;
}

enum status part_files_find(struct part_files *out, const struct part_files_of *of) {
    TRY(find_parts(out, of));
    for (int part = 1; part <= out->parts; part++)
        TRY(add_part(out, of, part));
    return STATUS_OK;
}

void part_files_free(struct part_files *f) {
    memory_free(f->list);
    *f = (struct part_files){0};
}

enum status part_files_check_lists(const struct part_files *f, const struct part_files_of *of, int64_t lists,
                                   int64_t code_bytes) {
    for (int64_t i = 0; i < f->n; i++) {
        char path[FILE_PATH_MAX];
        const struct list_file_head *h = &f->list[i].file.head;
        if (h->lists == lists && h->code_bytes == code_bytes) continue;
        TRY(part_file_path(path, of->work, f->parts, &f->list[i]));
        return part_files_remedy(
            fail(STATUS_MISMATCH, "%s: has %lld lists of codes of %lld bytes, the template %lld of %lld", path,
                 (long long)h->lists, (long long)h->code_bytes, (long long)lists, (long long)code_bytes),
            of, f->list[i].part, f->parts);
    }
    return STATUS_OK;
}

/* ---- removing ---- */

static bool is_work_file(const char *name) {
    int part, parts;
    int64_t run;
    char end;
    size_t n = strlen(name);
    char base[256];
    if (n >= sizeof base) return false;
    snprintf(base, sizeof base, "%s", name);
    if (n > 4 && strcmp(base + n - 4, ".tmp") == 0) base[n - 4] = 0;
    return strcmp(base, "plan") == 0 || strcmp(base, "template.faiss") == 0 ||
           list_file_name(base, &part, &parts, &run) ||
           (sscanf(base, "part-%d-of-%d.loc%c", &part, &parts, &end) == 3 && end == 'k');
}

enum status store_index_parts_remove(const char *work, const char *index) {
    char path[FILE_PATH_MAX];
    struct index_parts_plan plan;
    enum status s = index_parts_plan_read(&plan, work);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(s);
    if (strcmp(plan.factory, index) != 0) return STATUS_OK;
    DIR *folder = opendir(work);
    if (!folder) return fail_errno("%s", work);
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(folder));) {
        if (!is_work_file(entry->d_name) || strcmp(entry->d_name, "plan") == 0) continue;
        s = file_join(path, work, entry->d_name);
        if (s == STATUS_OK) s = file_remove(path);
    }
    closedir(folder);
    if (s == STATUS_OK) s = file_join(path, work, "plan"); /* last, so that a killed call can be repeated */
    if (s == STATUS_OK) s = file_remove(path);
    if (s == STATUS_OK) (void)rmdir(work); /* the folder stays if the user has other files in it */
    return s;
}
