/* reader_folders.c -- finds the files of a folder and of the folders in it.
 *
 * Each folder is read once. Links to folders are followed after all real folders are known, and only if they lead to a
 * new one. So links to a parent, and folders that link to each other, cause no endless walk. The names of a folder are
 * read before its subfolders are opened. So a deep walk needs neither many descriptors nor much stack. Its depth is
 * limited only by the length of a path. */
#include "base/memory.h"
#include "data/readers/reader_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct names {
    char **items;
    size_t count, capacity;
};
/* Folders that were seen: open addressing, at most half full. */
struct seen_folder {
    dev_t device;
    ino_t inode;
    bool taken;
};
struct seen {
    struct seen_folder *slots;
    size_t count, capacity;
};
struct walk {
    struct reader *reader;
    enum reader_format format;
    struct seen seen;
    struct names links; /* links to folders */
    bool following;     /* whether these are followed now */
    char path[FILE_PATH_MAX];
    /* the input folder, and the target of a link, both without links */
    char root[FILE_PATH_MAX], target[FILE_PATH_MAX];
};

static enum status names_add(struct names *n, const char *name) {
    TRY(memory_grow(&n->items, &n->capacity, n->count + 1));
    TRY(memory_copy_string(&n->items[n->count], name));
    n->count++;
    return STATUS_OK;
}

static void names_free(struct names *n) {
    for (size_t i = 0; i < n->count; i++)
        memory_free(n->items[i]);
    memory_free(n->items);
}

static size_t seen_slot(const struct seen *s, dev_t device, ino_t inode) {
    size_t at = ((size_t)inode * 0x9e3779b97f4a7c15u ^ (size_t)device * 0xff51afd7ed558ccdu) >> 20;
    for (;; at++) {
        const struct seen_folder *slot = &s->slots[at %= s->capacity];
        if (!slot->taken || (slot->inode == inode && slot->device == device)) return at;
    }
}

static enum status seen_grow(struct seen *s) {
    struct seen old = *s;
    s->capacity = old.capacity ? 2 * old.capacity : 64;
    TRY(memory_allocate_zero(&s->slots, s->capacity));
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].taken) s->slots[seen_slot(s, old.slots[i].device, old.slots[i].inode)] = old.slots[i];
    memory_free(old.slots);
    return STATUS_OK;
}

static enum status seen_add(struct seen *s, bool *first, const struct stat *folder) {
    if (2 * s->count >= s->capacity) TRY(seen_grow(s));
    size_t at = seen_slot(s, folder->st_dev, folder->st_ino);
    *first = !s->slots[at].taken;
    s->slots[at] = (struct seen_folder){folder->st_dev, folder->st_ino, true};
    s->count += *first;
    return STATUS_OK;
}

/* Whether a file of a folder is read: text, jsonl, parquet and arrow files for auto, otherwise files of the format.
 * Files cache-<hash>.arrow are skipped, because they are copies of a folder's rows that the Python package `datasets`
 * makes. */
static bool reader_folders_wanted(enum reader_format format, enum reader_format of_name, const char *name) {
    if (of_name == READER_AUTO || of_name == READER_U16 || of_name == READER_U32 || of_name == READER_MEGATRON)
        return false;
    if (of_name == READER_ARROW && strncmp(name, "cache-", 6) == 0) return false;
    return format == READER_AUTO || format == of_name;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum status list_folder(struct names *names, const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return fail_errno("%s: cannot read the folder", path);
    enum status status = STATUS_OK;
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(folder));)
        if (entry->d_name[0] != '.') status = names_add(names, entry->d_name);
    closedir(folder);
    if (names->count) qsort(names->items, names->count, sizeof *names->items, compare_names);
    return status;
}

/* Whether the link at w->path leads out of the input folder. */
static bool leads_out(struct walk *w) {
    size_t n = strlen(w->root);
    if (n == 0 || !realpath(w->path, w->target)) return false;
    if (n == 1) return false; /* "/" */
    return strncmp(w->target, w->root, n) != 0 || (w->target[n] != '/' && w->target[n] != '\0');
}

static enum status walk_folder(struct walk *w, size_t length, const struct stat *folder);

/* Determines the type of w->path and adds it. */
static enum status walk_entry(struct walk *w, size_t length, const char *name) {
    struct stat info, itself;
    if (stat(w->path, &info) != 0) { /* a link without a target, or a file that was removed meanwhile */
        if (errno == ENOENT || errno == ELOOP) return STATUS_OK;
        return fail_errno("%s: cannot be examined", w->path);
    }
    bool link = lstat(w->path, &itself) == 0 && S_ISLNK(itself.st_mode);
    bool folder = S_ISDIR(info.st_mode);
    enum reader_format of_name = reader_format_of_name(name);
    if (!folder && (!S_ISREG(info.st_mode) || !reader_folders_wanted(w->format, of_name, name))) return STATUS_OK;
    if (link && w->reader->no_follow) return STATUS_OK;
    if (link && leads_out(w)) w->reader->links_out++;
    if (folder) return link ? names_add(&w->links, w->path) : walk_folder(w, length, &info);
    return reader_add_file(w->reader, w->path, of_name, true, info.st_size);
}

/* Walks over w->path, which has this length. */
static enum status walk_folder(struct walk *w, size_t length, const struct stat *folder) {
    struct names names = {0};
    bool first;
    TRY(seen_add(&w->seen, &first, folder));
    if (!first && w->following)
        return STATUS_OK; /* without links no folder occurs twice, for any inode numbers of the file system */
    enum status status = list_folder(&names, w->path);
    for (size_t i = 0; i < names.count && status == STATUS_OK; i++) {
        size_t n = length + 1 + strlen(names.items[i]);
        if (n < FILE_PATH_MAX) {
            w->path[length] = '/';
            memcpy(w->path + length + 1, names.items[i], n - length);
            status = walk_entry(w, n, names.items[i]);
        } else {
            w->path[length] = '\0';
            status = fail(STATUS_INVALID,
                          "%.100s... (%zu bytes): a name in this folder makes the path longer than %d: "
                          "name a folder further down, or go into one",
                          w->path, length, FILE_PATH_MAX - 1);
        }
        w->path[length] = '\0';
    }
    names_free(&names);
    return status;
}

static enum status walk_from(struct walk *w, const char *path) {
    struct stat info;
    size_t length = strlen(path);
    if (length >= FILE_PATH_MAX) return fail(STATUS_INVALID, "%.100s...: the path is too long", path);
    memcpy(w->path, path, length + 1);
    if (stat(path, &info) != 0) return fail_errno("%s: cannot open", path);
    return walk_folder(w, length, &info);
}

enum status reader_walk(struct reader *r, const char *path, enum reader_format format) {
    struct walk *w;
    TRY(memory_allocate_zero(&w, 1));
    w->reader = r;
    w->format = format;
    if (!realpath(path, w->root)) w->root[0] = '\0';
    enum status status = walk_from(w, path);
    w->following = true;
    for (size_t i = 0; i < w->links.count && status == STATUS_OK; i++) /* afterwards the files of linked folders */
        status = walk_from(w, w->links.items[i]);
    names_free(&w->links);
    memory_free(w->seen.slots);
    memory_free(w);
    return status;
}
