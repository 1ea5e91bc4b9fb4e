/* store_keys.c -- see store_keys.h. A file is a header of 128 bytes, the codes of all rows, zeros up to a multiple of
 * 64 bytes, a float32 scale for each row, and a footer of 16 bytes with the CRC32C of all before it. */
#include "store/keys/store_keys.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "base/progress.h"
#include "store/view_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { HEADER_BYTES = 128, FOOTER_BYTES = 16, FILE_VERSION = 1, ALIGN = 64 };
static const char header_magic[8] = "DRTSKEYS", footer_magic[8] = "DRTKYEND";
static const char folder[] = "keys";

struct keys_map {
    struct file_map file; /* data NULL: not mapped yet */
    int64_t chunks;
};
struct store_keys {
    struct store_view *view;
    struct store_keys_spec spec;
    const char *model;
    int64_t chunks, files;
    struct keys_map *maps; /* [files] */
};
struct store_keys_file {
    struct store_keys_spec spec;
    struct file_writer *file;
    char path[FILE_PATH_MAX];
    int64_t rows, wanted; /* rows so far, and of the whole file */
    float *scales;        /* [wanted]: they follow all codes */
};

/* ---- names and sizes ---- */

static enum status keys_path(char out[FILE_PATH_MAX], const char *store, int64_t number) {
    char name[64];
    snprintf(name, sizeof name, "%s/%05lld.keys", folder, (long long)number);
    return file_join(out, store, name);
}
static int64_t keys_chunks(int64_t all, int64_t number) {
    return min_i64(all - number * STORE_KEYS_CHUNKS, STORE_KEYS_CHUNKS);
}
int64_t store_keys_files(int64_t chunks) {
    return (chunks + STORE_KEYS_CHUNKS - 1) / STORE_KEYS_CHUNKS;
}
static uint64_t scales_at(const struct store_keys_spec *s, int64_t chunks) {
    const uint64_t end = HEADER_BYTES + (uint64_t)chunks * (uint64_t)s->chunk_tokens * (uint64_t)s->size;
    return (end + ALIGN - 1) / ALIGN * ALIGN;
}
static uint64_t file_bytes(const struct store_keys_spec *s, int64_t chunks) {
    return scales_at(s, chunks) + (uint64_t)chunks * (uint64_t)s->chunk_tokens * sizeof(float) + FOOTER_BYTES;
}
uint64_t store_keys_bytes(const struct store_keys_spec *spec, int64_t chunks) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < store_keys_files(chunks); i++)
        sum += file_bytes(spec, keys_chunks(chunks, i));
    return sum;
}

/* ---- the header ---- */

/* The content hash of the document of a chunk ties a file to its store. A deleted document counts as 0, and so may
 * differ between the time of writing and of reading. */
static enum status anchor_of(struct store_view *view, uint8_t out[16], int64_t chunk) {
    struct store_chunk c;
    struct store_document d;
    struct store_info info;
    int32_t *ids;
    memset(out, 0, 16);
    store_view_info(view, &info);
    TRY(memory_allocate(&ids, (size_t)info.fingerprint.chunk_tokens));
    enum status s = store_view_chunk(view, &c, ids, chunk);
    memory_free(ids);
    if (s == STATUS_OK) s = store_view_document(view, &d, c.document);
    if (s == STATUS_OK) memcpy(out, d.hash, sizeof d.hash);
    return s == STATUS_NOT_FOUND ? STATUS_OK : s;
}

static void header_make(uint8_t out[HEADER_BYTES], const struct store_keys_spec *s, int64_t number, int64_t chunks,
                        const uint8_t anchor[16]) {
    const int32_t numbers[] = {s->layer, s->size, s->chunk_tokens, s->window, s->step};
    memset(out, 0, HEADER_BYTES);
    memcpy(out, header_magic, 8);
    little_endian_put(out + 8, FILE_VERSION, 4);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        little_endian_put(out + 12 + 4 * i, (uint64_t)numbers[i], 4);
    memcpy(out + 32, s->model, 16);
    little_endian_put(out + 48, (uint64_t)number, 8);
    little_endian_put(out + 56, (uint64_t)chunks, 8);
    memcpy(out + 64, anchor, 16);
}

/* Compares a file's header with what this view and spec want. *chunks: what the file has. Messages end with the
 * remedy. */
static enum status header_check(struct store_view *view, int64_t *chunks, const uint8_t *header, const char *path,
                                int64_t number, const struct store_keys_spec *spec, const char *model) {
    static const uint8_t none[16];
    uint8_t want[HEADER_BYTES], anchor[16];
    memcpy(anchor, header + 64, 16);
    *chunks = (int64_t)little_endian_get(header + 56, 8);
    if (memcmp(header, header_magic, 8) != 0)
        return fail(STATUS_CORRUPT, "%s: is not a file of keys: remove it and run drt-index keys again", path);
    if (little_endian_get(header + 8, 4) != FILE_VERSION)
        return fail(STATUS_VERSION, "%s: version %u, this program reads %d: run drt-index keys again", path,
                    (unsigned)little_endian_get(header + 8, 4), FILE_VERSION);
    header_make(want, spec, number, *chunks, anchor);
    if (spec->step == 0) memcpy(want + 24, header + 24, 8); /* any window and step */
    if (memcmp(header + 12, want + 12, 36) != 0)
        return fail(STATUS_MISMATCH,
                    "%s: its keys were computed with other weights, layer or size than those of %s: run drt-index keys "
                    "again with this model",
                    path, model);
    if (memcmp(header, want, HEADER_BYTES) != 0 || *chunks < 1 || *chunks > STORE_KEYS_CHUNKS)
        return fail(STATUS_CORRUPT, "%s: header is damaged: run drt-index keys again", path);
    TRY(anchor_of(view, anchor, number * STORE_KEYS_CHUNKS));
    if (memcmp(anchor, header + 64, 16) != 0 && memcmp(anchor, none, 16) != 0 && memcmp(header + 64, none, 16) != 0)
        return fail(STATUS_CORRUPT, "%s: is of another store: remove it and run drt-index keys again", path);
    return STATUS_OK;
}

static void footer_make(uint8_t out[FOOTER_BYTES], uint32_t crc) {
    memset(out, 0, FOOTER_BYTES);
    memcpy(out, footer_magic, 8);
    little_endian_put(out + 8, crc, 4);
}

/* Maps a file and checks everything but its checksum. */
static enum status keys_map(struct keys_map *out, struct store_view *view, int64_t number,
                            const struct store_keys_spec *spec, const char *model) {
    const char *store = view->store->dir;
    struct keys_map m = {0};
    char path[FILE_PATH_MAX];
    TRY(keys_path(path, store, number));
    if (!file_exists(path))
        return fail(STATUS_NOT_FOUND, "%s: there is no such file: run drt-index keys --store %s with this model", path,
                    store);
    TRY(file_map(&m.file, path));
    enum status s = m.file.size < HEADER_BYTES
                        ? fail(STATUS_CORRUPT, "%s: %llu bytes, shorter than its header: run drt-index keys again",
                               path, (unsigned long long)m.file.size)
                        : header_check(view, &m.chunks, m.file.data, path, number, spec, model);
    if (s == STATUS_OK && m.file.size != file_bytes(spec, m.chunks))
        s = fail(STATUS_CORRUPT, "%s: %llu bytes, but %lld chunks need %llu: run drt-index keys again", path,
                 (unsigned long long)m.file.size, (long long)m.chunks, (unsigned long long)file_bytes(spec, m.chunks));
    if (s == STATUS_OK && memcmp(m.file.data + m.file.size - FOOTER_BYTES, footer_magic, 8) != 0)
        s = fail(STATUS_CORRUPT, "%s: footer is damaged: run drt-index keys again", path);
    if (s != STATUS_OK) {
        file_unmap(&m.file);
        return s;
    }
    *out = m;
    return STATUS_OK;
}

/* ---- reading ---- */

static enum status keys_touch(struct store_keys *k, int64_t number) {
    struct keys_map *m = &k->maps[number];
    if (m->file.data) return STATUS_OK;
    TRY(keys_map(m, k->view, number, &k->spec, k->model));
    if (m->chunks >= keys_chunks(k->chunks, number)) return STATUS_OK;
    const int64_t have = number * STORE_KEYS_CHUNKS + m->chunks;
    file_unmap(&m->file);
    *m = (struct keys_map){0};
    return fail(STATUS_NOT_FOUND, "%s: has keys of %lld of %lld chunks: run drt-index keys again", k->view->store->dir,
                (long long)have, (long long)k->chunks);
}

enum status store_keys_open(struct store_keys **out, struct store_view *view, const struct store_keys_spec *spec,
                            const char *model) {
    struct store_keys *k;
    struct store_info info;
    store_view_info(view, &info);
    TRY(memory_allocate_zero(&k, 1));
    *k = (struct store_keys){.view = view, .spec = *spec, .model = model, .chunks = info.chunks};
    k->files = store_keys_files(info.chunks);
    enum status s = memory_allocate_zero(&k->maps, (size_t)k->files + 1);
    /* The first and the last file tell most mistakes at once, whatever the number of files. */
    if (s == STATUS_OK && k->files > 0) s = keys_touch(k, 0);
    if (s == STATUS_OK && k->files > 0) s = keys_touch(k, k->files - 1);
    if (s != STATUS_OK) {
        store_keys_close(k);
        return s;
    }
    *out = k;
    return STATUS_OK;
}

void store_keys_close(struct store_keys *k) {
    if (!k) return;
    for (int64_t i = 0; k->maps && i < k->files; i++)
        file_unmap(&k->maps[i].file);
    memory_free(k->maps);
    memory_free(k);
}

enum status store_keys_chunk(struct store_keys *k, struct store_key_rows *out, int64_t chunk) {
    const int64_t number = chunk / STORE_KEYS_CHUNKS, at = chunk % STORE_KEYS_CHUNKS * k->spec.chunk_tokens;
    TRY(keys_touch(k, number));
    const struct keys_map *m = &k->maps[number];
    out->code = (const int8_t *)m->file.data + HEADER_BYTES + at * k->spec.size;
    out->scale = (const float *)(const void *)(m->file.data + scales_at(&k->spec, m->chunks)) + at;
    return STATUS_OK;
}

enum status store_keys_verify(struct store_keys *k, const struct progress *progress) {
    for (int64_t i = 0; i < k->files; i++) {
        uint8_t footer[FOOTER_BYTES];
        char path[FILE_PATH_MAX];
        TRY(keys_touch(k, i));
        const struct file_map *f = &k->maps[i].file;
        footer_make(footer, crc32c(0, f->data, f->size - FOOTER_BYTES));
        TRY(keys_path(path, k->view->store->dir, i));
        if (memcmp(footer, f->data + f->size - FOOTER_BYTES, FOOTER_BYTES) != 0)
            return fail(STATUS_CORRUPT, "%s: its checksum is wrong: remove it and run drt-index keys again", path);
        file_release_pages(f);
        progress_step(progress, "keys", "files", i + 1, k->files);
        if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped while verifying keys");
    }
    return STATUS_OK;
}

/* ---- writing ---- */

enum status store_keys_complete(bool *out, struct store_view *view, int64_t number,
                                const struct store_keys_spec *spec) {
    struct keys_map m = {0};
    struct store_info info;
    store_view_info(view, &info);
    const enum status s = keys_map(&m, view, number, spec, "the model");
    *out = s == STATUS_OK && m.chunks >= keys_chunks(info.chunks, number);
    file_unmap(&m.file);
    return s == STATUS_NO_MEMORY || s == STATUS_IO ? s : STATUS_OK;
}

enum status store_keys_begin(struct store_keys_file **out, struct store_view *view, int64_t number,
                             const struct store_keys_spec *spec) {
    const char *store = view->store->dir;
    struct store_keys_file *f;
    struct store_info info;
    uint8_t header[HEADER_BYTES], anchor[16];
    char path[FILE_PATH_MAX];
    store_view_info(view, &info);
    const int64_t chunks = keys_chunks(info.chunks, number);
    TRY(file_join(path, store, folder));
    TRY(file_make_directory(path));
    TRY(anchor_of(view, anchor, number * STORE_KEYS_CHUNKS));
    header_make(header, spec, number, chunks, anchor);
    TRY(memory_allocate_zero(&f, 1));
    f->spec = *spec;
    f->wanted = chunks * spec->chunk_tokens;
    enum status s = STATUS_OK;
    TRY_GOTO(s, memory_allocate(&f->scales, (size_t)f->wanted), failed);
    TRY_GOTO(s, keys_path(f->path, store, number), failed);
    TRY_GOTO(s, file_create(&f->file, f->path), failed);
    TRY_GOTO(s, file_write(f->file, header, sizeof header), failed);
    *out = f;
    return STATUS_OK;
failed:
    store_keys_discard(f);
    return s;
}

enum status store_keys_append(struct store_keys_file *f, struct store_key_rows rows, int64_t chunks) {
    static const uint8_t zeros[4096];
    const int64_t n = chunks * f->spec.chunk_tokens;
    size_t bytes = (size_t)n * (size_t)f->spec.size;
    if (f->rows + n > f->wanted) return fail(STATUS_INVALID, "%s: more rows than its chunks have", f->path);
    if (rows.code) {
        memcpy(f->scales + f->rows, rows.scale, (size_t)n * sizeof *f->scales);
        TRY(file_write(f->file, rows.code, bytes));
    } else
        memset(f->scales + f->rows, 0, (size_t)n * sizeof *f->scales);
    for (size_t part; !rows.code && bytes > 0; bytes -= part) {
        part = bytes < sizeof zeros ? bytes : sizeof zeros;
        TRY(file_write(f->file, zeros, part));
    }
    f->rows += n;
    return STATUS_OK;
}

enum status store_keys_publish(struct store_keys_file *f) {
    static const uint8_t zeros[ALIGN];
    uint8_t footer[FOOTER_BYTES];
    enum status s = STATUS_OK;
    if (f->rows != f->wanted) s = fail(STATUS_INVALID, "%s: fewer rows than its chunks have", f->path);
    if (s == STATUS_OK) s = file_write(f->file, zeros, (size_t)(-file_written(f->file) % ALIGN));
    if (s == STATUS_OK) s = file_write(f->file, f->scales, (size_t)f->rows * sizeof *f->scales);
    if (s == STATUS_OK) {
        footer_make(footer, file_crc32c(f->file));
        s = file_write(f->file, footer, sizeof footer);
    }
    if (s == STATUS_OK) {
        s = file_publish(f->file);
        f->file = NULL;
    }
    store_keys_discard(f);
    return s;
}

void store_keys_discard(struct store_keys_file *f) {
    if (!f) return;
    file_discard(f->file);
    memory_free(f->scales);
    memory_free(f);
}

/* ---- all files ---- */

typedef enum status keys_visit(void *context, const char *path);

/* Calls `visit` for each file of keys. A store without the folder has none. */
static enum status keys_each(const char *store, keys_visit *visit, void *context) {
    char path[FILE_PATH_MAX], name[FILE_PATH_MAX];
    TRY(file_join(path, store, folder));
    if (!file_is_directory(path)) return STATUS_OK;
    DIR *d = opendir(path);
    if (!d) return fail(STATUS_IO, "%s: %s", path, strerror(errno));
    enum status s = STATUS_OK;
    for (struct dirent *e; s == STATUS_OK && (e = readdir(d));) {
        const size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".keys") != 0) continue;
        s = file_join(name, path, e->d_name);
        if (s == STATUS_OK) s = visit(context, name);
    }
    closedir(d);
    return s;
}

static enum status keys_count(void *context, const char *path) {
    struct store_keys_usage *u = context;
    uint64_t bytes;
    const enum status s = file_size(&bytes, path);
    if (s == STATUS_NOT_FOUND) return STATUS_OK; /* it was replaced or removed just now */
    TRY(s);
    u->files++;
    u->bytes += bytes;
    return STATUS_OK;
}

enum status store_keys_usage(struct store_keys_usage *out, const char *store) {
    *out = (struct store_keys_usage){0};
    return keys_each(store, keys_count, out);
}

static enum status keys_remove(void *context, const char *path) {
    int64_t *removed = context;
    TRY(file_remove(path));
    ++*removed;
    return STATUS_OK;
}

enum status store_keys_remove(int64_t *removed, const char *store) {
    *removed = 0;
    return keys_each(store, keys_remove, removed);
}
