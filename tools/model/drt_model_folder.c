/* drt_model_folder.c -- makes a new model folder under a temporary name, and then renames it.
 *
 * If the file system can, an existing folder is replaced by exchanging two names in one step (RENAME_EXCHANGE). The old
 * folder is then removed file by file. Only files that a model folder has are removed, so that `--out ~ --force` does
 * not delete other files. */
#include "base/file.h"
#include "data/tokenizer/tokenizer.h"
#include "tools/model/drt_model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char *const MODEL_FILES[] = {"config.json", "model.safetensors", "tokenizer.json",
                                          "memory.json", "memory-cpu.json",   "source.safetensors"};

static bool is_model_file(const char *name) {
    size_t length = strlen(name);
    if (length > 4 && strcmp(name + length - 4, ".tmp") == 0) length -= 4; /* temporary file of a killed writer */
    for (size_t i = 0; i < ARRAY_LEN(MODEL_FILES); i++)
        if (strlen(MODEL_FILES[i]) == length && memcmp(MODEL_FILES[i], name, length) == 0) return true;
    return false;
}

/* Checks that every entry is a file of a model; `removing` also removes them. */
static enum status model_folder_sweep(const char *path, bool removing) {
    DIR *folder = opendir(path);
    if (!folder) return fail_errno("%s: cannot be read", path);
    enum status status = STATUS_OK;
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!is_model_file(entry->d_name))
            status = fail(STATUS_INVALID,
                          "%s: holds '%s', which is not a file of a model: --force replaces model folders only", path,
                          entry->d_name);
        else if (removing && unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            status = fail_errno("%s/%s: cannot be removed", path, entry->d_name);
    }
    closedir(folder);
    return status;
}

static enum status remove_folder(const char *path) {
    TRY(model_folder_sweep(path, true));
    return rmdir(path) == 0 ? STATUS_OK : fail_errno("%s: cannot be removed", path);
}

/* Removes the temporary folder of a killed process, but not that of a running one. */
static enum status take_temporary(struct new_folder *f) {
    TRY(file_make_directory(f->temporary));
    int fd = open(f->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s: cannot be read", f->temporary);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return fail(STATUS_BUSY, "%s: another process is making this model", f->path);
    }
    f->lock = fd;
    return model_folder_sweep(f->temporary, true);
}

enum status new_folder_begin(struct new_folder *f, const char *path, bool force) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || length + 5 > sizeof f->path) return fail(STATUS_INVALID, "--out: not a usable folder name");
    snprintf(f->path, sizeof f->path, "%.*s", (int)length, path);
    snprintf(f->temporary, sizeof f->temporary, "%.*s.tmp", (int)length, path);
    f->replace = file_exists(f->path) || file_is_directory(f->path);
    if (f->replace && !force)
        return fail(STATUS_INVALID, "%s: exists already: name another folder, or replace it with --force", f->path);
    if (f->replace) TRY(model_folder_sweep(f->path, false));
    return take_temporary(f);
}

enum status new_folder_write(const struct new_folder *f, const char *name, const void *data, size_t bytes) {
    char path[FILE_PATH_MAX];
    TRY(file_join(path, f->temporary, name));
    return file_save(path, data, bytes);
}

enum status new_folder_tokenizer(const struct new_folder *f, const char *path, const struct model_config *config) {
    if (!path) {
        fprintf(stderr,
                "drt-model: note: no --tokenizer given; put a tokenizer.json into %s before using the model "
                "with text\n",
                f->path);
        return STATUS_OK;
    }
    struct tokenizer *tokenizer = NULL;
    TRY(tokenizer_open(&tokenizer, path));
    int ids = tokenizer_vocab_size(tokenizer);
    tokenizer_free(tokenizer);
    if (ids > config->vocab_size)
        return fail(STATUS_MISMATCH,
                    "%s: the tokenizer has ids up to %d, but the model's vocab_size is %d: this is another "
                    "model's tokenizer",
                    path, ids - 1, config->vocab_size);
    struct file_map map = {0};
    TRY(file_map(&map, path));
    enum status status = new_folder_write(f, "tokenizer.json", map.data, map.size);
    file_unmap(&map);
    return status;
}

enum status new_folder_publish(struct new_folder *f) {
    TRY(file_sync_directory(f->temporary));
    if (!f->replace) {
        if (rename(f->temporary, f->path) != 0) return fail_errno("%s: cannot be renamed to %s", f->temporary, f->path);
    } else if (renameat2(AT_FDCWD, f->temporary, AT_FDCWD, f->path, RENAME_EXCHANGE) == 0) {
        TRY(remove_folder(f->temporary));
    } else {
        TRY(remove_folder(f->path));
        if (rename(f->temporary, f->path) != 0) return fail_errno("%s: cannot be renamed to %s", f->temporary, f->path);
    }
    char parent[FILE_PATH_MAX];
    memcpy(parent, f->path, sizeof parent);
    char *slash = strrchr(parent, '/');
    if (!slash) return file_sync_directory(".");
    slash[slash == parent] = 0;
    return file_sync_directory(parent);
}

void new_folder_discard(struct new_folder *f) {
    /* An error message here would replace the first one. The next run removes what remains. */
    if (f->lock && remove_folder(f->temporary) != STATUS_OK) return;
}
