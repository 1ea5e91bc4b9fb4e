/* ablation_record.c -- the folder of a run: records of finished parts, and files that parts need before they start. */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "tools/ablation/ablation_run.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum status ablation_path(char out[FILE_PATH_MAX], const char *folder, const char *format, ...) {
    char name[FILE_PATH_MAX];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(name, sizeof name, format, list);
    va_end(list);
    if (n >= (int)sizeof name) return fail(STATUS_INVALID, "%s: the path is too long", folder);
    return file_join(out, folder, name);
}

static enum status write_text(const char *path, const char *text) {
    struct file_writer *w;
    TRY(file_create(&w, path));
    enum status s = file_write(w, text, strlen(text));
    if (s != STATUS_OK) {
        file_discard(w);
        return s;
    }
    return file_publish(w);
}

/* ---- records --------------------------------------------------------------------------------------------- */

enum status ablation_record_write(struct ablation_part *part, const char *folder) {
    char path[FILE_PATH_MAX], seconds[32], *text = NULL;
    struct object m = {0};
    TRY(ablation_path(path, folder, "parts/%s.json", part->name));
    snprintf(seconds, sizeof seconds, "%.3f", part->seconds);
    enum status s = object_set_string(&m, "part", part->name);
    if (s == STATUS_OK) s = object_set(&m, "seconds", seconds);
    if (s == STATUS_OK) s = object_set_string(&m, "spec", part->spec);
    if (s == STATUS_OK) s = object_text(&text, &m);
    if (s == STATUS_OK) s = fault_point("ablation:record");
    if (s == STATUS_OK) s = write_text(path, text);
    memory_free(text);
    object_free(&m);
    part->done = s == STATUS_OK;
    return s;
}

/* Models and stores take too long to be replaced without a question. An evaluation is repeated if the rows need
 * more modes of it. */
static enum status record_read(struct ablation_part *part, const char *path, const struct file_map *map) {
    struct object m = {0};
    char *spec = NULL;
    enum status s = object_read(&m, path, (const char *)map->data, map->size);
    const char *of = s == STATUS_OK ? object_get(&m, "spec") : NULL;
    const char *seconds = s == STATUS_OK ? object_get(&m, "seconds") : NULL;
    if (s == STATUS_OK && (!of || !seconds))
        s = fail(STATUS_CORRUPT, "%s: is no record of a part: remove it to make the part again", path);
    if (s == STATUS_OK) s = object_string(&spec, path, "spec", of);
    const bool same = s == STATUS_OK && strcmp(spec, part->spec) == 0;
    if (s == STATUS_OK && !same && part->kind < ABLATION_SCORE)
        s = fail(
            STATUS_MISMATCH,
            "%s: was made with other settings or texts than the config has now: name another --out, or remove this "
            "file and what it made",
            path);
    if (s == STATUS_OK && !same)
        fprintf(stderr, "drt-eval: %s: other modes or positions: it is scored again\n", part->name);
    if (same) part->seconds = strtod(seconds, NULL);
    part->done = same;
    memory_free(spec);
    object_free(&m);
    return s;
}

/* Checks that the config of a training that was begun equals the current one. */
static enum status check_begun(const struct ablation_plan *plan, const struct ablation_part *part, const char *folder) {
    const struct ablation_model *m = &plan->models[part->of];
    char path[FILE_PATH_MAX], run[FILE_PATH_MAX];
    struct file_map map;
    TRY(ablation_path(path, folder, "configs/%s.json", m->name));
    TRY(ablation_path(run, folder, "models/%s", m->name));
    if (!file_exists(path) || !file_exists(run)) return STATUS_OK;
    TRY(file_map(&map, path));
    bool same = map.size == strlen(m->training) && memcmp(map.data, m->training, map.size) == 0;
    file_unmap(&map);
    if (same) return STATUS_OK;
    return fail(STATUS_MISMATCH,
                "%s: this training began with other settings than the config has now: name another --out, or remove "
                "this file and %s",
                path, run);
}

enum status ablation_run_open(int *lock, struct ablation_plan *plan, const char *folder) {
    static const char *const folders[] = {"parts", "configs", "models", "stores", "tokens", "scores", "logs"};
    char path[FILE_PATH_MAX];
    TRY(file_make_directory(folder));
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        TRY(ablation_path(path, folder, "%s", folders[i]));
        TRY(file_make_directory(path));
    }
    TRY(ablation_path(path, folder, "lock"));
    enum status s = file_lock(lock, path);
    if (s == STATUS_BUSY) return fail(s, "%s: another drt-eval ablation works on this run: wait for its end", folder);
    TRY(s);
    for (size_t i = 0; i < plan->n_parts && s == STATUS_OK; i++) {
        struct ablation_part *part = &plan->parts[i];
        struct file_map map;
        s = ablation_path(path, folder, "parts/%s.json", part->name);
        if (s == STATUS_OK && file_exists(path)) {
            s = file_map(&map, path);
            if (s != STATUS_OK) break;
            s = record_read(part, path, &map);
            file_unmap(&map);
        } else if (s == STATUS_OK && part->kind == ABLATION_TRAIN)
            s = check_begun(plan, part, folder);
    }
    if (s != STATUS_OK) close(*lock);
    return s;
}

/* ---- before a part --------------------------------------------------------------------------------------- */

static enum status link_one(const char *target, const char *path) {
    TRY(file_remove(path));
    return symlink(target, path) == 0 ? STATUS_OK : fail_errno("%s", path);
}

/* Makes a folder with another config.json and the same weights. An existing one is made again, because only the record
 * shows that it is complete. */
static enum status make_view(const struct ablation_plan *plan, const struct ablation_model *m, const char *folder) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json"};
    const struct ablation_model *of = &plan->models[m->view_of];
    char path[FILE_PATH_MAX], target[FILE_PATH_MAX];
    TRY(ablation_path(path, folder, "models/%s", m->name));
    TRY(file_make_directory(path));
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        TRY(ablation_path(path, folder, "models/%s/%s", m->name, files[i]));
        TRY(ablation_path(target, of->taken ? of->folder : "../..", of->taken ? "%.0s%s" : "%s/%s", of->folder,
                          files[i]));
        TRY(link_one(target, path));
    }
    TRY(ablation_path(path, folder, "models/%s/config.json", m->name));
    return write_text(path, m->json);
}

enum status ablation_part_prepare(const struct ablation_plan *plan, const struct ablation_part *part,
                                  const char *folder) {
    char path[FILE_PATH_MAX];
    if (part->kind == ABLATION_VIEW) return make_view(plan, &plan->models[part->of], folder);
    if (part->kind != ABLATION_TRAIN) return STATUS_OK;
    TRY(ablation_path(path, folder, "configs/%s.json", plan->models[part->of].name));
    return write_text(path, plan->models[part->of].training);
}
