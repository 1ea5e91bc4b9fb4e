/* checkpoint.c -- see checkpoint.h. */
#include "train/run/checkpoint.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const moment_names[] = {"optimizer.m", "optimizer.v"};
static const char weights_name[] = "optimizer.weights", index_name[] = "corpus.weights";
static const char version[] = "1";

static enum status checkpoint_folder(char out[FILE_PATH_MAX], const char *run) {
    return file_join(out, run, "checkpoints");
}

enum status checkpoint_path(char out[FILE_PATH_MAX], const char *run, int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%" PRId64, step);
    return file_join(out, run, name);
}

/* The number in "step-<digits>"; -1: another name. */
static int64_t checkpoint_step_number(const char *name) {
    static const char prefix[] = "step-";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
    const char *digits = name + sizeof prefix - 1;
    size_t n = strspn(digits, "0123456789");
    return n == 0 || n > 18 || digits[n] ? -1 : strtoll(digits, NULL, 10);
}

static bool checkpoint_is_orphan(const char *name) {
    size_t n = strlen(name);
    return strncmp(name, "step-", 5) == 0 && n > 4 && strcmp(name + n - 4, ".tmp") == 0;
}

/* ---- removing -----------------------------------------------------------------------------------------------------
 */

/* Removes only the files of a checkpoint (and their .tmp files): a folder with other files stays. */
static enum status checkpoint_remove_folder(const char *path) {
    static const char *const files[] = {"config.json",        "model.safetensors",    "tokenizer.json",
                                        "state.safetensors",  "config.json.tmp",      "model.safetensors.tmp",
                                        "tokenizer.json.tmp", "state.safetensors.tmp"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char file[FILE_PATH_MAX];
        TRY(file_join(file, path, files[i]));
        TRY(file_remove(file));
    }
    if (rmdir(path) != 0 && errno != ENOENT && errno != ENOTEMPTY) return fail_errno("%s: cannot be removed", path);
    return STATUS_OK;
}

/* Calls `visit` for every entry of RUN/checkpoints. */
static enum status checkpoint_for_each(const char *run,
                                       enum status (*visit)(void *context, const char *folder, const char *name),
                                       void *context) {
    char folder[FILE_PATH_MAX];
    TRY(checkpoint_folder(folder, run));
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT) return STATUS_OK;
    if (!d) return fail_errno("%s: cannot be read", folder);
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(d));)
        s = visit(context, folder, entry->d_name);
    closedir(d);
    return s;
}

static enum status checkpoint_remove_orphan(void *context, const char *folder, const char *name) {
    char path[FILE_PATH_MAX];
    (void)context;
    if (!checkpoint_is_orphan(name)) return STATUS_OK;
    TRY(file_join(path, folder, name));
    return checkpoint_remove_folder(path);
}

enum status checkpoint_prepare(const char *run) {
    char folder[FILE_PATH_MAX];
    TRY(checkpoint_folder(folder, run));
    TRY(file_make_directory(folder));
    return checkpoint_for_each(run, checkpoint_remove_orphan, NULL);
}

struct checkpoint_steps {
    int64_t *steps;
    size_t count, capacity;
};

static enum status checkpoint_note_step(void *context, const char *folder, const char *name) {
    struct checkpoint_steps *f = context;
    (void)folder;
    int64_t step = checkpoint_step_number(name);
    if (step < 0) return STATUS_OK;
    TRY(memory_grow(&f->steps, &f->capacity, f->count + 1));
    f->steps[f->count++] = step;
    return STATUS_OK;
}

static int checkpoint_descending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

enum status checkpoint_latest(int64_t *step, const char *run) {
    struct checkpoint_steps f = {0};
    enum status s = checkpoint_for_each(run, checkpoint_note_step, &f);
    *step = -1;
    for (size_t i = 0; i < f.count; i++)
        if (f.steps[i] > *step) *step = f.steps[i];
    memory_free(f.steps);
    return s;
}

enum status checkpoint_trim(const char *run, int64_t keep) {
    struct checkpoint_steps f = {0};
    enum status s = checkpoint_for_each(run, checkpoint_note_step, &f);
    if (f.count) qsort(f.steps, f.count, sizeof *f.steps, checkpoint_descending);
    for (size_t i = (size_t)keep; i < f.count && s == STATUS_OK; i++) {
        char path[FILE_PATH_MAX], going[FILE_PATH_MAX + 8];
        TRY_GOTO(s, checkpoint_path(path, run, f.steps[i]), out);
        snprintf(going, sizeof going, "%s.tmp", path);
        /* The folder is renamed first, so that a partly removed checkpoint does not look complete. */
        if (rename(path, going) != 0) {
            s = fail_errno("%s: cannot be removed", path);
            goto out;
        }
        s = checkpoint_remove_folder(going);
    }
out:
    memory_free(f.steps);
    return s;
}

/* ---- saving -------------------------------------------------------------------------------------------------------
 */

static enum status checkpoint_write_file(const char *folder, const char *name, const void *data, size_t bytes) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, folder, name));
    return file_save(path, data, bytes);
}

static enum status checkpoint_copy_file(const char *folder, const char *name, const char *from) {
    struct file_map map;
    TRY(file_map(&map, from));
    enum status s = checkpoint_write_file(folder, name, map.data, map.size);
    file_unmap(&map);
    return s;
}

static struct tensor_view checkpoint_row(const char *name, const float *data, int64_t n) {
    struct tensor_view v = {.name = name, .dtype = SAFETENSORS_F32, .dims = 1, .data = data, .count = n};
    v.shape[0] = n;
    return v;
}

static enum status checkpoint_write_state(const struct checkpoint *c, const struct checkpoint_kind *kind,
                                          const char *folder) {
    char path[FILE_PATH_MAX], metadata[256];
    int64_t n = params_elements(c->params);
    int count = 2;
    struct tensor_view views[4] = {checkpoint_row(moment_names[0], c->moments[0], n),
                                   checkpoint_row(moment_names[1], c->moments[1], n)};
    if (kind->type != SAFETENSORS_F32) views[count++] = checkpoint_row(weights_name, params_at(c->params, 0)->data, n);
    if (c->index_weights) views[count++] = checkpoint_row(index_name, c->index_weights, n);
    snprintf(metadata, sizeof metadata,
             "{\"version\":\"%s\",\"step\":\"%" PRId64 "\",\"tokens\":\"%" PRId64 "\",\"skipped\":\"%" PRId64
             "\",\"data\":\"%016" PRIx64 "\"}",
             version, c->step, c->tokens, c->skipped, c->data);
    TRY(file_join(path, folder, "state.safetensors"));
    return safetensors_write(path, views, count, metadata);
}

static enum status checkpoint_write_all(const struct checkpoint *c, const struct checkpoint_kind *kind,
                                        const char *folder) {
    char path[FILE_PATH_MAX];
    TRY(file_make_directory(folder));
    TRY(checkpoint_write_file(folder, "config.json", kind->model_json, strlen(kind->model_json)));
    TRY(checkpoint_copy_file(folder, "tokenizer.json", kind->tokenizer));
    TRY(file_join(path, folder, "model.safetensors"));
    TRY(params_save(c->params, path, kind->type, "{\"format\":\"pt\"}"));
    TRY(checkpoint_write_state(c, kind, folder));
    TRY(file_sync_directory(folder));
    return fault_point("checkpoint:before-rename");
}

enum status checkpoint_save(const struct checkpoint *c, const struct checkpoint_kind *kind) {
    char path[FILE_PATH_MAX], making[FILE_PATH_MAX + 8], parent[FILE_PATH_MAX];
    TRY(checkpoint_folder(parent, kind->run));
    TRY(checkpoint_path(path, kind->run, c->step));
    /* the checkpoint exists already: the same step of the same run has the same bytes */
    if (file_is_directory(path)) return STATUS_OK;
    snprintf(making, sizeof making, "%s.tmp", path);
    TRY(checkpoint_remove_folder(making));
    enum status s = checkpoint_write_all(c, kind, making);
    if (s == STATUS_OK && rename(making, path) != 0) s = fail_errno("%s: cannot be renamed to %s", making, path);
    if (s == STATUS_OK) return file_sync_directory(parent);
    /* The first error is reported. A checkpoint that cannot be removed now is removed by the next run. */
    s = fail_context(s, "checkpoint of step %" PRId64, c->step);
    char message[1024];
    snprintf(message, sizeof message, "%s", status_message());
    if (checkpoint_remove_folder(making) != STATUS_OK) return fail(s, "%s", message);
    return s;
}

/* ---- loading ------------------------------------------------------------------------------------------------------
 */

static enum status checkpoint_read_number(int64_t *out, const struct safetensors *file, const char *key, int base) {
    const char *text = safetensors_metadata(file, key);
    char *end;
    if (!text || !*text) return fail(STATUS_CORRUPT, "%s: its metadata lacks \"%s\"", safetensors_path(file), key);
    errno = 0;
    *out = (int64_t)strtoull(text, &end, base);
    if (*end || errno || text[0] == '-')
        return fail(STATUS_CORRUPT, "%s: its \"%s\" is \"%.40s\"", safetensors_path(file), key, text);
    return STATUS_OK;
}

static enum status checkpoint_read_row(float *out, const struct safetensors *file, const char *name, int64_t n) {
    const struct tensor_view *v = safetensors_find(file, name);
    if (!v) return fail(STATUS_CORRUPT, "%s: lacks %s", safetensors_path(file), name);
    if (v->count != n || v->dtype != SAFETENSORS_F32)
        return fail(STATUS_MISMATCH, "%s: %s has %lld numbers of type %s, the model %lld of F32",
                    safetensors_path(file), name, (long long)v->count, safetensors_dtype_name(v->dtype), (long long)n);
    return safetensors_to_f32(out, v);
}

static enum status checkpoint_load_state(struct checkpoint *c, const struct safetensors *file) {
    int64_t n = params_elements(c->params), data, step;
    const char *written = safetensors_metadata(file, "version");
    if (!written || strcmp(written, version) != 0)
        return fail(STATUS_VERSION, "%s: state of version %.20s: this program knows %s", safetensors_path(file),
                    written ? written : "(none)", version);
    TRY(checkpoint_read_number(&step, file, "step", 10));
    c->tokens = -1;
    if (safetensors_metadata(file, "tokens")) TRY(checkpoint_read_number(&c->tokens, file, "tokens", 10));
    TRY(checkpoint_read_number(&c->skipped, file, "skipped", 10));
    TRY(checkpoint_read_number(&data, file, "data", 16));
    c->data = (uint64_t)data;
    if (step != c->step)
        return fail(STATUS_CORRUPT, "%s: is the state of step %lld, in the folder of step %lld", safetensors_path(file),
                    (long long)step, (long long)c->step);
    for (int i = 0; i < 2; i++) {
        TRY(memory_allocate_aligned(&c->moments[i], (size_t)n));
        TRY(checkpoint_read_row(c->moments[i], file, moment_names[i], n));
    }
    if (safetensors_find(file, index_name)) {
        TRY(memory_allocate_aligned(&c->index_weights, (size_t)n));
        TRY(checkpoint_read_row(c->index_weights, file, index_name, n));
    }
    if (safetensors_find(file, weights_name))
        TRY(checkpoint_read_row((float *)params_at(c->params, 0)->data, file, weights_name,
                                n)); /* params_load allocated it */
    return STATUS_OK;
}

static enum status checkpoint_load_folder(struct checkpoint *c, const char *folder, const struct model_config *model) {
    char path[FILE_PATH_MAX];
    struct safetensors *weights = NULL, *state = NULL;
    enum status s;
    TRY_GOTO(s, file_join(path, folder, "model.safetensors"), out);
    TRY_GOTO(s, safetensors_open(&weights, path), out);
    TRY_GOTO(s, params_load(&c->params, model, weights), out);
    TRY_GOTO(s, file_join(path, folder, "state.safetensors"), out);
    TRY_GOTO(s, safetensors_open(&state, path), out);
    s = checkpoint_load_state(c, state);
out:
    safetensors_close(state);
    safetensors_close(weights);
    return s;
}

enum status checkpoint_load(struct checkpoint *out, const char *run, int64_t step, const struct model_config *model) {
    char folder[FILE_PATH_MAX];
    *out = (struct checkpoint){.step = step};
    TRY(checkpoint_path(folder, run, step));
    enum status s = checkpoint_load_folder(out, folder, model);
    if (s != STATUS_OK) checkpoint_free(out);
    return s;
}

void checkpoint_free(struct checkpoint *c) {
    params_free(c->params);
    memory_free(c->moments[0]);
    memory_free(c->moments[1]);
    memory_free(c->index_weights);
    *c = (struct checkpoint){0};
}
