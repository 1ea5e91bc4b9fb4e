/* train.c -- store_index_train of index_parts.h: a template and the plan in a work folder. */
#include "base/system/fault.h"
#include "store/index/list_rows_internal.h"
#include "store/index/parts/index_parts_internal.h"
#include "store/index/segment_check_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Selects the type before any work, so that a type that cannot be filled in parts is refused at once. */
static enum status make_plan(struct index_plan *out, struct index_parts_store *s, const struct store_publish *how) {
    struct index_record old;
    TRY(record_get_index(s->t, s->catalog, &old));
    TRY(index_plan_make(out, how->index, &old, s->generation.chunks, s->fingerprint.dim, s->type,
                        store_publish_max_ram(how)));
    if (strcmp(out->factory, "exact") == 0)
        return fail(STATUS_INVALID,
                    "%s: index %s is no index here (%s): to have one name its type, for example --index "
                    "IVF4096_HNSW32,SQ8",
                    s->dir, how->index ? how->index : "auto",
                    out->reason[0] ? out->reason : "few chunks, which are scanned fast");
    if (out->lists > 0 && out->code_bytes > 0) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED,
                "index %s: only inverted files of flat, scalar or product codes (IVF..,SQ8 or OPQ..,IVF..,PQ..np) are "
                "filled in parts; drt-index repair --index makes others",
                out->factory);
}

/* Checks that FAISS wrote a layout that merging can write, too. */
static enum status check_template(const char *path, int dim) {
    struct segment_layout layout;
    struct file_map map;
    TRY(file_map(&map, path));
    enum status s = segment_layout(&layout, path, &(struct segment_shape){.dim = dim}, map.data, map.size);
    file_unmap(&map);
    return s;
}

static enum status make_template(struct index_parts_plan *p, struct index_parts_store *s, const char *work,
                                 const struct index_plan *plan, const struct store_publish *how) {
    char path[FILE_PATH_MAX];
    struct vectors *v;
    const struct index_build build = {
        .dir = s->dir, .stopped = "run the same command again", .landmarks = &s->landmarks, .how = how};
    TRY(index_plan_enough(plan, index_build_live(&build)));
    TRY(index_parts_template_path(path, work));
    TRY(vectors_make(&v, plan->factory, s->fingerprint.dim));
    enum status status = index_build_train(&build, v, plan);
    p->method = list_rows_supported(&build, v) ? how->assignment.method : STORE_ASSIGN_FAISS;
    if (status == STATUS_OK) status = vectors_write(v, path);
    vectors_free(v);
    if (status == STATUS_OK) status = check_template(path, s->fingerprint.dim);
    if (status == STATUS_OK) status = stored_file_of(&p->template_file, path);
    return status;
}

/* Whether the folder has the plan of this index and store already. Fails if it has another plan. */
static enum status train_existing(struct index_parts_plan *p, struct index_parts_store *s, const char *work,
                                  const struct store_publish *how, bool *there) {
    char path[FILE_PATH_MAX];
    enum status status = index_parts_plan_read(p, work);
    *there = status == STATUS_OK;
    if (status == STATUS_NOT_FOUND) return STATUS_OK;
    TRY(status);
    TRY(index_parts_check_store(p, work, s->dir, s->t, s->catalog, &s->fingerprint, &s->generation));
    if (how->index && strcmp(how->index, "auto") != 0 && strcmp(how->index, p->factory) != 0)
        return fail(STATUS_MISMATCH, "%s: is the work of an index %s, not %s: name another --work, or remove this one",
                    work, p->factory, how->index);
    TRY(index_parts_template_path(path, work));
    return stored_file_check(path, p->template_file, "remove this folder, and train again");
}

/* Refuses a folder with other files, because merging or a user might confuse them with files of the index. */
static enum status check_folder(const char *work) {
    DIR *folder = opendir(work);
    if (!folder) return errno == ENOENT ? STATUS_OK : fail_errno("%s", work);
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        bool ours = name[0] == '.' || strncmp(name, "template.faiss", 14) == 0 || strncmp(name, "plan", 4) == 0 ||
                    (strncmp(name, "part-", 5) == 0 && (strstr(name, ".lists") || strstr(name, ".lock")));
        if (!ours)
            s = fail(STATUS_INVALID, "%s: is no work folder of an index and not empty (%s is there): name another",
                     work, name);
    }
    closedir(folder);
    return s;
}

static enum status train_template(struct index_parts_plan *p, struct index_parts_store *s, const char *work,
                                  const struct store_publish *how) {
    struct index_plan plan;
    TRY(make_plan(&plan, s, how));
    TRY(check_folder(work));
    TRY(file_make_directory(work));
    *p = (struct index_parts_plan){.fingerprint = s->fingerprint,
                                   .generation = (uint64_t)s->generation.number,
                                   .chunks = s->generation.chunks,
                                   .documents = s->generation.documents,
                                   .chosen = plan.chosen};
    memcpy(p->factory, plan.factory, sizeof p->factory);
    TRY(index_parts_documents(&p->documents_crc, s->t, s->catalog, p->documents));
    catalog_pause(s->t); /* a writer may reuse pages while this process trains */
    TRY(make_template(p, s, work, &plan, how));
    return index_parts_plan_write(p, work);
}

enum status store_index_train(struct store_index_parts_report *out, const char *dir, const char *work,
                              const struct store_publish *how) {
    struct index_parts_store s;
    struct index_parts_plan p;
    *out = (struct store_index_parts_report){0};
    TRY(index_parts_store_open(&s, dir));
    enum status status = train_existing(&p, &s, work, how, &out->already);
    if (status == STATUS_OK && !out->already) status = train_template(&p, &s, work, how);
    if (status == STATUS_OK) {
        snprintf(out->index, sizeof out->index, "%s", p.factory);
        out->chunks = p.chunks;
        out->generation = p.generation;
        out->lists = vectors_plan(p.factory, s.fingerprint.dim).lists;
    }
    index_parts_store_close(&s);
    return status;
}
