/* verify_keys.c -- checks the files of keys of a store, whatever the model of the keys. */
#include "store/keys/keys_file_internal.h"
#include "store/keys/keys_layout_internal.h"
#include "store/verify_internal.h"

static const char *const remedy_keys = "run drt-index keys again with the model of the keys, or with --remove";

static enum status check(const char *path, struct keys_range range, const struct store_fingerprint *store, bool deep) {
    struct keys_file f;
    enum status s = keys_file_open(&f, path, NULL, NULL);
    if (s == STATUS_NOT_FOUND) return STATUS_OK;
    if (s == STATUS_OK) s = keys_file_in(&f, path, range);
    if (s == STATUS_OK && f.head.spec.chunk_tokens != store->chunk_tokens)
        s = fail(STATUS_CORRUPT, "%s: is of chunks of %d tokens, the store's have %d", path, f.head.spec.chunk_tokens,
                 store->chunk_tokens);
    if (s == STATUS_OK && deep) s = keys_file_verify(&f, path);
    keys_file_close(&f);
    return s;
}

enum status keys_verify(struct findings *f, struct catalog_txn *t, const struct catalog *c, const char *dir,
                        int64_t chunks, bool deep, const struct progress *progress) {
    struct store_fingerprint store;
    struct keys_layout layout;
    char path[FILE_PATH_MAX];
    int format;
    TRY(record_get_fingerprint(t, c, &store, &format));
    enum status s = keys_layout_read(&layout, t, c, chunks);
    if (s != STATUS_OK) return finding(f, s, catalog_path(c), remedy_repair);
    for (int64_t i = 0; i < layout.files && s == STATUS_OK; i++) {
        s = keys_path(path, dir, i);
        if (s == STATUS_OK) s = finding(f, check(path, keys_layout_range(&layout, i), &store, deep), path, remedy_keys);
        if (deep) progress_step(progress, "verify keys", "files", i + 1, layout.files);
        if (s == STATUS_OK && progress_stop_requested(progress))
            s = fail(STATUS_INTERRUPTED, "%s: stopped while its keys were verified", dir);
    }
    keys_layout_free(&layout);
    return s;
}
