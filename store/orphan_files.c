/* orphan_files.c -- files of a store that no record names. Only names of the forms that this program
 * writes count, so other files in the folders stay. */
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

/* The numbers in a name: "NNNNN", or "NNNNN-NNNNN" for shards that share a file. */
struct file_numbers {
    int64_t first, last;
    bool temporary;
};

static const char *parse_number(const char *p, int64_t *out) {
    const char *begin = p;
    *out = 0;
    for (; *p >= '0' && *p <= '9' && *out < (int64_t)1 << 50; p++)
        *out = *out * 10 + (*p - '0');
    return p - begin < 5 ? NULL : p;
}

/* False: not a name of ours. */
static bool parse_name(const char *name, const char *suffix, struct file_numbers *out) {
    size_t n = strlen(suffix);
    const char *p = parse_number(name, &out->first);
    out->last = out->first;
    if (p && *p == '-') p = parse_number(p + 1, &out->last);
    if (!p || strncmp(p, suffix, n) != 0) return false;
    out->temporary = strcmp(p + n, ".tmp") == 0;
    return out->temporary || p[n] == 0;
}

static enum status is_recorded(struct catalog_txn *t, const struct catalog *c, const struct index_record *index,
                               size_t kind, struct file_numbers f, bool *yes) {
    *yes = kind == KIND_INDEX && f.first == index->template_number && !f.temporary;
    if (*yes || f.temporary) return STATUS_OK;
    enum status s;
    if (kind == KIND_INDEX) {
        struct catalog_key key = catalog_key((uint64_t)f.first);
        struct bytes value;
        s = catalog_get(t, &value, TABLE_SEGMENTS, key.bytes, sizeof key.bytes);
        *yes = s == STATUS_OK;
    } else
        s = record_names_shard_file(t, c, f.first, f.last, yes);
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

struct orphan_files {
    const char *dir;
    const struct catalog *c;
    struct catalog_txn *t;
    struct index_record index;
    orphan_files_found *found;
    void *context;
};

static enum status each_in_folder(const struct orphan_files *r, size_t kind) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    TRY(file_join(folder, r->dir, kinds[kind].folder));
    DIR *open = opendir(folder);
    if (!open) return STATUS_OK; /* a missing folder has no orphan files; verify reports its missing files */
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(open));) {
        struct file_numbers numbers;
        bool recorded = true;
        if (parse_name(entry->d_name, kinds[kind].suffix, &numbers))
            s = is_recorded(r->t, r->c, &r->index, kind, numbers, &recorded);
        if (s == STATUS_OK && !recorded) s = file_join(path, folder, entry->d_name);
        if (s == STATUS_OK && !recorded) s = r->found(r->context, path);
    }
    closedir(open);
    return s;
}

enum status orphan_files_each(const char *dir, struct catalog *c, orphan_files_found *found, void *context) {
    struct orphan_files r = {.dir = dir, .c = c, .found = found, .context = context};
    TRY(catalog_begin(&r.t, c, false));
    enum status s = record_get_index(r.t, c, &r.index);
    bool readable = s != STATUS_CORRUPT; /* else it may name any file of the index; repair writes it anew */
    if (!readable) s = STATUS_OK;
    for (size_t k = 0; k < ARRAY_LEN(kinds) && s == STATUS_OK; k++)
        if (k != KIND_INDEX || readable) s = each_in_folder(&r, k);
    catalog_abort(r.t);
    return s;
}
