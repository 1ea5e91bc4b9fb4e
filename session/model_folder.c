/* model_folder.c -- see model_folder.h. */
#include "session/model_folder.h"
#include "base/formats/safetensors.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder that an installed program was configured with: -DDRT_MODEL_DIR="...". */
#ifndef DRT_MODEL_DIR
#define DRT_MODEL_DIR ""
#endif

/* The folders in the sources, and where programs and library are installed (share/ beside bin/ and lib/). */
static const char *const bundled[] = {"data/models/drt-28m", "share/drt/models/drt-28m"};
enum {
    LEVELS = 4
}; /* number of parent folders in which the model is searched; <prefix>/lib/<machine>/libdrt.so needs the most */

/* Searches the folder of a file, and the folders above it. */
static bool model_folder_near(char out[FILE_PATH_MAX], const char *file) {
    char folder[FILE_PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s", file) >= (int)sizeof folder) return false;
    for (int level = 0; level < LEVELS; level++) {
        char *slash = strrchr(folder, '/');
        if (!slash) return false;
        *slash = 0;
        for (size_t i = 0; i < ARRAY_LEN(bundled); i++)
            if (file_join(out, folder, bundled[i]) == STATUS_OK && file_is_directory(out)) return true;
    }
    return false;
}

enum status model_folder_default(char out[FILE_PATH_MAX]) {
    char exe[FILE_PATH_MAX], file[PATH_MAX];
    Dl_info here; /* the file that contains this code: a program, or the library */
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    /* The loader's name of the file may contain links: if /lib is a link to /usr/lib, share/ is not beside /lib. */
    if (dladdr((const void *)bundled, &here) && realpath(here.dli_fname, file) && model_folder_near(out, file))
        return STATUS_OK;
    if (n > 0) {
        exe[n] = 0;
        if (model_folder_near(out, exe)) return STATUS_OK;
    }
    if (DRT_MODEL_DIR[0] && file_is_directory(DRT_MODEL_DIR)) {
        snprintf(out, FILE_PATH_MAX, "%s", DRT_MODEL_DIR);
        return STATUS_OK;
    }
    return fail(STATUS_NOT_FOUND, "the bundled model (%s) is not near this program: name a model folder with --model",
                bundled[0]);
}

static enum status load_params(struct model_folder *m) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, m->path, "model.safetensors"));
    struct safetensors *file;
    TRY(safetensors_open(&file, path));
    enum status s = params_load(&m->params, &m->config, file);
    safetensors_close(file);
    return s;
}

static enum status load_tokenizer(struct model_folder *m) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, m->path, "tokenizer.json"));
    TRY(tokenizer_open(&m->tokenizer, path));
    int have = tokenizer_vocab_size(m->tokenizer);
    if (have > m->config.vocab_size)
        return fail(
            STATUS_MISMATCH,
            "%s: the tokenizer has ids up to %d, but the model's vocab_size is %d: this is another model's tokenizer",
            path, have - 1, m->config.vocab_size);
    return STATUS_OK;
}

enum status model_folder_check(const char *folder, bool tokenizer) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json"};
    char path[FILE_PATH_MAX];
    if (!file_is_directory(folder))
        return fail(STATUS_NOT_FOUND,
                    "%s: no such folder; a model folder holds config.json, model.safetensors and tokenizer.json",
                    folder);
    for (size_t i = 0; i < ARRAY_LEN(files) - !tokenizer; i++) {
        TRY(file_join(path, folder, files[i]));
        if (file_exists(path)) continue;
        TRY(safetensors_check_folder(folder));
        return fail(STATUS_NOT_FOUND,
                    "%s: has no %s; a model folder holds config.json, model.safetensors and tokenizer.json", folder,
                    files[i]);
    }
    return STATUS_OK;
}

enum status model_folder_open(struct model_folder *out, const char *path) {
    memset(out, 0, sizeof *out);
    if (path && strlen(path) >= sizeof out->path) return fail(STATUS_INVALID, "%.60s...: the path is too long", path);
    if (path)
        snprintf(out->path, sizeof out->path, "%s", path);
    else
        TRY(model_folder_default(out->path));
    TRY(model_folder_check(out->path, true));
    enum status s;
    TRY_GOTO(s, model_config_load(&out->config, out->path), out);
    TRY_GOTO(s, load_params(out), out);
    TRY_GOTO(s, load_tokenizer(out), out);
out:
    if (s != STATUS_OK) model_folder_close(out);
    return s;
}

void model_folder_close(struct model_folder *m) {
    params_free(m->params);
    tokenizer_free(m->tokenizer);
    m->params = NULL;
    m->tokenizer = NULL;
}
