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

/* A shard's record that cannot be read names its files all the same: they are not removed. */
static enum status is_recorded(struct catalog_txn *t, const struct catalog *c, const struct index_record *index,
                               size_t kind, int64_t number, bool *yes) {
    *yes = kind == KIND_INDEX && number == index->template_number;
    if (*yes || number == INT64_MAX) return STATUS_OK;
    struct catalog_key key = catalog_key((uint64_t)number);
    struct bytes value;
    enum status s =
        catalog_get(t, &value, kind == KIND_INDEX ? TABLE_SEGMENTS : TABLE_SHARDS, key.bytes, sizeof key.bytes);
    *yes = s == STATUS_OK;
    if (s == STATUS_NOT_FOUND || kind == KIND_INDEX) return s == STATUS_NOT_FOUND ? STATUS_OK : s;
    TRY(s);
    struct shard_record r;
    if (record_decode_shard((struct bytes){key.bytes, sizeof key.bytes}, value, c, &r) == STATUS_OK)
        *yes = !shard_is_dropped(&r);
    return STATUS_OK;
}

struct search {
    const char *dir;
    struct catalog_txn *t;
    const struct catalog *c;
    struct index_record index;
    rubbish_found *found;
    void *context;
};

static enum status each_in_folder(const struct search *x, size_t kind) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    TRY(file_join(folder, x->dir, kinds[kind].folder));
    DIR *open = opendir(folder);
    if (!open) return STATUS_OK; /* a missing folder has no rubbish; missing files in it are found elsewhere */
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(open));) {
        int64_t number = parse_name(entry->d_name, kinds[kind].suffix);
        bool recorded = true;
        if (number >= 0) s = is_recorded(x->t, x->c, &x->index, kind, number, &recorded);
        if (s == STATUS_OK && !recorded) s = file_join(path, folder, entry->d_name);
        if (s == STATUS_OK && !recorded) s = x->found(x->context, path);
    }
    closedir(open);
    return s;
}

enum status rubbish_each(const char *dir, struct catalog *c, rubbish_found *found, void *context) {
    struct search x = {.dir = dir, .c = c, .found = found, .context = context};
    TRY(catalog_begin(&x.t, c, false));
    enum status s = record_get_index(x.t, c, &x.index);
    bool readable = s != STATUS_CORRUPT; /* else it may name any file of the index; repair writes it anew */
    if (!readable) s = STATUS_OK;
    for (size_t k = 0; k < ARRAY_LEN(kinds) && s == STATUS_OK; k++)
        if (k != KIND_INDEX || readable) s = each_in_folder(&x, k);
    catalog_abort(x.t);
    return s;
}
