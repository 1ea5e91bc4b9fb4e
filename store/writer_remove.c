/* writer_remove.c -- removes a store that a failed writer created and that has nothing. The writer still holds the
 * lock, whose file is removed after the catalog. A kill meanwhile leaves an empty store, which the next writer opens.
 */
#include "store/writer_internal.h"
#include <dirent.h>
#include <unistd.h>

bool writer_folder_has_files(const char *folder) {
    DIR *open = opendir(folder);
    bool any = false;
    for (struct dirent *entry; open && !any && (entry = readdir(open));)
        any = entry->d_name[0] != '.';
    if (open) closedir(open);
    return any;
}

/* Data files may be links of a join that continues. */
static bool is_empty(const char *dir) {
    for (size_t i = 0; i < WRITER_FOLDERS; i++) {
        char path[FILE_PATH_MAX];
        if (file_join(path, dir, writer_folders[i]) != STATUS_OK || writer_folder_has_files(path)) return false;
    }
    return true;
}

/* Failures are ignored: what cannot be removed stays, and is an empty store. */
static void remove_in(const char *folder, const char *const *files, size_t n) {
    char path[FILE_PATH_MAX];
    for (size_t i = 0; i < n; i++)
        if (file_join(path, folder, files[i]) == STATUS_OK) (void)unlink(path);
}

void writer_remove_made(const struct store_writer *w) {
    static const char *const of_catalog[] = {"data.mdb", "lock.mdb", "commit"}, *const of_store[] = {"lock"};
    char path[FILE_PATH_MAX];
    if (w->lock >= 0 && (!w->made.catalog || !is_empty(w->dir))) return;
    if (w->made.catalog && file_join(path, w->dir, "catalog") == STATUS_OK) {
        remove_in(path, of_catalog, ARRAY_LEN(of_catalog));
        (void)rmdir(path);
    }
    for (size_t i = 0; i < WRITER_FOLDERS; i++)
        if (w->made.folders[i] && file_join(path, w->dir, writer_folders[i]) == STATUS_OK) (void)rmdir(path);
    if (w->made.lock) remove_in(w->dir, of_store, ARRAY_LEN(of_store));
    if (w->made.store) (void)rmdir(w->dir); /* fails if another program has put something there */
}
