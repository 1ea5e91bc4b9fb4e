/* orphan_files.c -- finds files of a store that no record names. Only files whose names have a form that this program
 * writes are found, so other files stay. */
#include "base/memory.h"
#include "store/catalog/record_format_internal.h"
#include "store/catalog/record_lexical_internal.h"
#include "store/writer_internal.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

struct kind {
    const char *folder, *suffix;
};
static const struct kind kinds[] = {
    {"tokens", ".tok"}, {"landmarks", ".f16"}, {"landmarks", ".i8"}, {"index", ".faiss"}, {"lexical", ".lex"}};
enum { KIND_F16 = 1, KIND_I8, KIND_INDEX, KIND_LEXICAL };

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

/* Returns false if the name has none of these forms. */
static bool parse_name(const char *name, const char *suffix, struct file_numbers *out) {
    size_t n = strlen(suffix);
    const char *p = parse_number(name, &out->first);
    out->last = out->first;
    if (p && *p == '-') p = parse_number(p + 1, &out->last);
    if (!p || strncmp(p, suffix, n) != 0) return false;
    out->temporary = strcmp(p + n, ".tmp") == 0;
    return out->temporary || p[n] == 0;
}

struct orphan_files {
    const char *dir;
    const struct catalog *c;
    struct catalog_txn *t;
    enum store_landmarks landmarks;
    struct index_record index;
    struct lexical_record lexical;
    orphan_files_found *found;
    void *context;
};

static enum status is_recorded(const struct orphan_files *r, size_t kind, struct file_numbers f, bool *yes) {
    *yes = kind == KIND_INDEX && f.first == r->index.template_number && !f.temporary;
    if (*yes || f.temporary) return STATUS_OK;
    enum status s = STATUS_OK;
    if (kind == KIND_INDEX) {
        struct catalog_key key = catalog_key((uint64_t)f.first);
        struct bytes value;
        s = catalog_get(r->t, &value, TABLE_SEGMENTS, key.bytes, sizeof key.bytes);
        *yes = s == STATUS_OK;
    } else if (kind == KIND_LEXICAL) {
        for (int64_t i = 0; i < r->lexical.n; i++)
            *yes = *yes || r->lexical.list[i].number == f.first;
    } else if (kind != (r->landmarks == STORE_LANDMARKS_I8 ? KIND_F16 : KIND_I8))
        s = record_names_shard_file(r->t, r->c, f.first, f.last, yes);
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

static enum status each_in_folder(const struct orphan_files *r, size_t kind) {
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    TRY(file_join(folder, r->dir, kinds[kind].folder));
    DIR *open = opendir(folder);
    if (!open) return STATUS_OK; /* a missing folder has no orphan files; verify reports the files that it lacks */
    enum status s = STATUS_OK;
    for (struct dirent *entry; s == STATUS_OK && (entry = readdir(open));) {
        struct file_numbers numbers;
        bool recorded = true;
        if (parse_name(entry->d_name, kinds[kind].suffix, &numbers)) s = is_recorded(r, kind, numbers, &recorded);
        if (s == STATUS_OK && !recorded) s = file_join(path, folder, entry->d_name);
        if (s == STATUS_OK && !recorded) s = r->found(r->context, path);
    }
    closedir(open);
    return s;
}

static enum status read_type(struct orphan_files *r) {
    struct store_fingerprint fingerprint;
    int format;
    return record_get_identity(r->t, r->c, &fingerprint, &format, &r->landmarks);
}

enum status orphan_files_each(const char *dir, struct catalog *c, orphan_files_found *found, void *context) {
    struct orphan_files r = {.dir = dir, .c = c, .found = found, .context = context};
    TRY(catalog_begin(&r.t, c, false));
    enum status s = read_type(&r);
    if (s != STATUS_OK) {
        catalog_abort(r.t);
        return s;
    }
    s = record_get_index(r.t, c, &r.index);
    /* If a record cannot be read, it may name any file of its folder. So no file is removed there until repair has
     * written the record again. */
    bool readable[ARRAY_LEN(kinds)] = {true, true, true, s != STATUS_CORRUPT, true};
    if (s == STATUS_OK || s == STATUS_CORRUPT) s = record_get_lexical(r.t, c, &r.lexical);
    readable[KIND_LEXICAL] = s != STATUS_CORRUPT;
    if (s == STATUS_CORRUPT) s = STATUS_OK;
    for (size_t k = 0; k < ARRAY_LEN(kinds) && s == STATUS_OK; k++)
        if (readable[k]) s = each_in_folder(&r, k);
    lexical_record_free(&r.lexical);
    catalog_abort(r.t);
    return s;
}
