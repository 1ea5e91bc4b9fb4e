/* rubbish.c -- files in a store's folders that no record names. Only names that we would give are looked at, so
 * that a note somebody put into the folder stays. */
#include "base/memory.h"
#include "store/writer_internal.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

struct kind {
    const char *folder, *suffix;
};
static const struct kind kinds[] = {{"tokens", ".tok"}, {"landmarks", ".f16"}, {"index", ".faiss"}};
enum { KIND_INDEX = 2 };

/* -1: not a name of ours; a temporary name gives INT64_MAX, which is never recorded. */
static int64_t parse_name(const char *name, const char *suffix) {
    int64_t number = 0;
    const char *p = name;
    for (; *p >= '0' && *p <= '9' && number < (int64_t)1 << 50; p++)
        number = number * 10 + (*p - '0');
    size_t n = strlen(suffix);
    if (p - name < 5 || strncmp(p, suffix, n) != 0) return -1;
    if (strcmp(p + n, ".tmp") == 0) return INT64_MAX;
    return p[n] == 0 ? number : -1;
}

static enum status is_recorded(struct catalog_txn *t, const struct index_record *index, size_t kind, int64_t number,
                               bool *yes) {
    *yes = kind == KIND_INDEX && number == index->template_number;
    if (*yes || number == INT64_MAX) return STATUS_OK;
    struct catalog_key key = catalog_key((uint64_t)number);
    struct bytes value;
    enum status s =
        catalog_get(t, &value, kind == KIND_INDEX ? TABLE_SEGMENTS : TABLE_SHARDS, key.bytes, sizeof key.bytes);
    *yes = s == STATUS_OK;
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

static enum status each_in_folder(const char *dir, struct catalog_txn *t, const struct index_record *index, size_t kind,
                                  rubbish_found *found, void *context) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    TRY(file_join(folder, dir, kinds[kind].folder));
    DIR *open = opendir(folder);
    if (!open) return STATUS_OK; /* a missing folder has no rubbish; missing files in it are found elsewhere */
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(open));) {
        int64_t number = parse_name(entry->d_name, kinds[kind].suffix);
        bool recorded = true;
        if (number >= 0) s = is_recorded(t, index, kind, number, &recorded);
        if (s == STATUS_OK && !recorded) s = file_join(path, folder, entry->d_name);
        if (s == STATUS_OK && !recorded) s = found(context, path);
    }
    closedir(open);
    return s;
}

enum status rubbish_each(const char *dir, struct catalog *c, rubbish_found *found, void *context) {
    struct catalog_txn *t;
    TRY(catalog_begin(&t, c, false));
    struct index_record index;
    enum status s = record_get_index(t, c, &index);
    for (size_t k = 0; k < ARRAY_LEN(kinds) && s == STATUS_OK; k++)
        s = each_in_folder(dir, t, &index, k, found, context);
    catalog_abort(t);
    return s;
}
