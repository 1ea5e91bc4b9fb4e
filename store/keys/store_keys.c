/* store_keys.c -- see store_keys.h. keys_file.c has the format of a file. */
#include "base/memory.h"
#include "base/minmax.h"
#include "base/progress.h"
#include "store/keys/keys_file_internal.h"
#include "store/view_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct store_keys {
    struct store_view *view;
    struct store_keys_spec spec;
    const char *model;
    struct keys_layout layout;
    struct keys_file *files; /* [layout.files] */
    bool in_order;
    int64_t mapped; /* in order: the file that is mapped, or -1 */
};
struct store_keys_file {
    struct store_view *view;
    struct store_keys_spec spec;
    struct keys_range range;
    struct file_writer *file;
    char path[FILE_PATH_MAX];
    int64_t rows, wanted; /* rows so far, and of the whole file */
    float *scales;        /* [wanted]: they follow all codes */
};

const char *store_keys_rounding_name(int32_t rounding) {
    return rounding == STORE_KEYS_BF16 ? "bf16" : "f32";
}

uint64_t store_keys_file_bytes(const struct store_keys_spec *spec, int64_t chunks) {
    return keys_file_bytes(spec, chunks);
}

/* Maps a file of a view's store and checks everything but its checksum. */
static enum status keys_map(struct keys_file *out, struct store_view *view, const struct keys_layout *layout,
                            int64_t file, const struct store_keys_spec *spec, const char *model) {
    const char *store = view->store->dir;
    char path[FILE_PATH_MAX];
    *out = (struct keys_file){0};
    TRY(keys_path(path, store, file));
    enum status s = keys_file_open(out, path, spec, model);
    if (s == STATUS_NOT_FOUND)
        return fail(STATUS_NOT_FOUND, "%s: there is no such file: run drt-index keys --store %s with this model", path,
                    store);
    if (s == STATUS_OK) s = keys_file_fits(out, path, view, keys_layout_range(layout, file));
    if (s != STATUS_OK) keys_file_close(out);
    return s;
}

/* ---- reading ---- */

static enum status keys_touch(struct store_keys *k, int64_t file) {
    struct keys_file *f = &k->files[file];
    if (f->map.data) return STATUS_OK;
    TRY(catalog_check_folder(k->view->store->catalog));
    TRY(keys_map(f, k->view, &k->layout, file, &k->spec, k->model));
    const struct keys_range range = keys_layout_range(&k->layout, file);
    const int64_t have = range.begin + f->head.chunks;
    if (have >= range.end) return STATUS_OK;
    keys_file_close(f);
    return fail(STATUS_NOT_FOUND, "%s: has keys of %lld of %lld chunks: run drt-index keys again", k->view->store->dir,
                (long long)have, (long long)k->layout.chunks);
}

enum status store_keys_open(struct store_keys **out, struct store_view *view, const struct store_keys_spec *spec,
                            const char *model) {
    struct store_keys *k;
    TRY(memory_allocate_zero(&k, 1));
    *k = (struct store_keys){.view = view, .spec = *spec, .model = model, .mapped = -1};
    enum status s = keys_layout_open(&k->layout, view);
    if (s == STATUS_OK) s = memory_allocate_zero(&k->files, (size_t)k->layout.files + 1);
    /* The first and the last file tell most mistakes at once, whatever the number of files. */
    if (s == STATUS_OK && k->layout.files > 0) s = keys_touch(k, 0);
    if (s == STATUS_OK && k->layout.files > 0) s = keys_touch(k, k->layout.files - 1);
    if (s != STATUS_OK) {
        store_keys_close(k);
        return s;
    }
    *out = k;
    return STATUS_OK;
}

static void keys_unmap_all(struct store_keys *k) {
    for (int64_t i = 0; k->files && i < k->layout.files; i++)
        keys_file_close(&k->files[i]);
}

void store_keys_close(struct store_keys *k) {
    if (!k) return;
    keys_unmap_all(k);
    memory_free(k->files);
    keys_layout_free(&k->layout);
    memory_free(k);
}

void store_keys_in_order(struct store_keys *k) {
    keys_unmap_all(k);
    k->in_order = true;
    k->mapped = -1;
}

/* Reading in order: unmaps the file before, and checks this one. */
static enum status keys_next_file(struct store_keys *k, int64_t file) {
    char path[FILE_PATH_MAX];
    if (k->mapped == file) return STATUS_OK;
    if (k->mapped >= 0) keys_file_close(&k->files[k->mapped]);
    k->mapped = -1;
    TRY(keys_touch(k, file));
    k->mapped = file;
    TRY(keys_path(path, k->view->store->dir, file));
    return keys_file_verify(&k->files[file], path);
}

enum status store_keys_rows(struct store_keys *k, struct store_key_rows *out, int64_t *n, int64_t chunk) {
    const int64_t file = keys_layout_file(&k->layout, chunk);
    const struct keys_range range = keys_layout_range(&k->layout, file);
    if (k->in_order) TRY(keys_next_file(k, file));
    TRY(keys_touch(k, file));
    *out = keys_file_rows(&k->files[file], chunk - range.begin);
    *n = range.end - chunk;
    return STATUS_OK;
}

enum status store_keys_chunk(struct store_keys *k, struct store_key_rows *out, int64_t chunk) {
    int64_t n;
    return store_keys_rows(k, out, &n, chunk);
}

/* Processes that began to make keys at the same time may have made files of two kinds. */
static enum status keys_uniform(const struct store_keys *k, int64_t file, const char *path) {
    const struct store_keys_spec *first = &k->files[0].head.spec, *this = &k->files[file].head.spec;
    if (this->window == first->window && this->step == first->step && this->rounding == first->rounding)
        return STATUS_OK;
    return fail(STATUS_MISMATCH,
                "%s: its keys have step %d and %s products, those of the first file step %d and %s products: remove it "
                "and run drt-index keys again",
                path, this->step, store_keys_rounding_name(this->rounding), first->step,
                store_keys_rounding_name(first->rounding));
}

enum status store_keys_verify(struct store_keys *k, const struct progress *progress) {
    for (int64_t i = 0; i < k->layout.files; i++) {
        char path[FILE_PATH_MAX];
        TRY(keys_touch(k, i));
        TRY(keys_path(path, k->view->store->dir, i));
        TRY(keys_file_verify(&k->files[i], path));
        TRY(keys_uniform(k, i, path));
        progress_step(progress, "keys", "files", i + 1, k->layout.files);
        if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped while verifying keys");
    }
    return STATUS_OK;
}

static bool is_absent(enum status s) {
    return s == STATUS_NOT_FOUND || s == STATUS_CORRUPT || s == STATUS_MISMATCH || s == STATUS_VERSION;
}

enum status store_keys_state(struct store_keys_state *out, struct store_view *view) {
    struct store_keys_usage usage;
    struct keys_layout layout;
    *out = (struct store_keys_state){.all = view->generation.chunks};
    TRY(store_keys_usage(&usage, view->store->dir));
    out->files = usage.files;
    if (usage.files == 0) return STATUS_OK;
    TRY(keys_layout_open(&layout, view));
    enum status s = STATUS_OK;
    for (int64_t i = 0; i < layout.files && s == STATUS_OK; i++) {
        const struct keys_range range = keys_layout_range(&layout, i);
        struct keys_file f;
        s = keys_map(&f, view, &layout, i, out->chunks > 0 ? &out->spec : NULL, "the first file");
        const bool fits = s == STATUS_OK && f.head.spec.chunk_tokens == view->store->fingerprint.chunk_tokens;
        if (fits) {
            if (out->chunks == 0) out->spec = f.head.spec;
            out->chunks += range.begin + f.head.chunks < range.end ? f.head.chunks : range.end - range.begin;
        }
        keys_file_close(&f);
        if (is_absent(s)) s = STATUS_OK;
    }
    keys_layout_free(&layout);
    return s;
}

/* ---- writing ---- */

enum status store_keys_complete(bool *out, struct store_view *view, const struct keys_layout *layout, int64_t file,
                                const struct store_keys_spec *spec) {
    struct keys_file f;
    const enum status s = keys_map(&f, view, layout, file, spec, "the model");
    const struct keys_range range = keys_layout_range(layout, file);
    *out = s == STATUS_OK && range.begin + f.head.chunks >= range.end;
    keys_file_close(&f);
    return is_absent(s) ? STATUS_OK : s;
}

enum status store_keys_begin(struct store_keys_file **out, struct store_view *view, const struct keys_layout *layout,
                             int64_t file, const struct store_keys_spec *spec) {
    const char *store = view->store->dir;
    struct store_keys_file *f;
    uint8_t header[KEYS_HEADER_BYTES];
    char path[FILE_PATH_MAX];
    const struct keys_range range = keys_layout_range(layout, file);
    struct keys_head head = {.spec = *spec, .number = range.number, .chunks = range.end - range.begin};
    TRY(file_join(path, store, "keys"));
    TRY(file_make_directory(path));
    TRY(keys_anchor(head.anchor, view, range.begin));
    keys_header_make(header, &head);
    TRY(memory_allocate_zero(&f, 1));
    *f = (struct store_keys_file){
        .view = view, .spec = *spec, .range = range, .wanted = head.chunks * spec->chunk_tokens};
    enum status s = STATUS_OK;
    TRY_GOTO(s, memory_allocate(&f->scales, (size_t)f->wanted), failed);
    TRY_GOTO(s, keys_path(f->path, store, file), failed);
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

enum status store_keys_append_earlier(struct store_keys_file *f, int64_t *chunks) {
    struct keys_file earlier;
    *chunks = 0;
    enum status s = keys_file_open(&earlier, f->path, &f->spec, "the model");
    if (s == STATUS_OK) s = keys_file_fits(&earlier, f->path, f->view, f->range);
    if (s == STATUS_OK) s = keys_file_verify(&earlier, f->path);
    if (s == STATUS_OK) {
        *chunks = min_i64(earlier.head.chunks, f->range.end - f->range.begin);
        s = store_keys_append(f, keys_file_rows(&earlier, 0), *chunks);
    } else if (is_absent(s))
        s = STATUS_OK;
    keys_file_close(&earlier);
    return s;
}

/* Whether another process has meanwhile published the file for a later generation. Its rows are those of `f` and more.
 */
static bool is_outdated(const struct store_keys_file *f) {
    struct keys_file there;
    if (keys_file_open(&there, f->path, &f->spec, "the model") != STATUS_OK) return false;
    const bool more = there.head.chunks > f->range.end - f->range.begin &&
                      keys_file_fits(&there, f->path, f->view, f->range) == STATUS_OK &&
                      keys_file_verify(&there, f->path) == STATUS_OK;
    keys_file_close(&there);
    return more;
}

/* Renames the new file. Two additions at the same time write one file, each with the chunks of its own generation. The
 * lock of the folder is held while the files are compared, so that the longer one stays. A file system without such
 * locks has a short gap between both. */
static enum status keys_replace(struct store_keys_file *f) {
    char folder[FILE_PATH_MAX];
    TRY(file_join(folder, f->view->store->dir, "keys"));
    const int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (lock >= 0 && flock(lock, LOCK_EX) != 0 && errno == EINTR) {
    }
    enum status s = STATUS_OK;
    if (!is_outdated(f)) {
        s = file_publish(f->file);
        f->file = NULL;
    }
    if (lock >= 0) close(lock);
    return s;
}

enum status store_keys_publish(struct store_keys_file *f) {
    static const uint8_t zeros[KEYS_ALIGN];
    uint8_t footer[KEYS_FOOTER_BYTES];
    enum status s = STATUS_OK;
    if (f->rows != f->wanted) s = fail(STATUS_INVALID, "%s: fewer rows than its chunks have", f->path);
    if (s == STATUS_OK) s = file_write(f->file, zeros, (size_t)(-file_written(f->file) % KEYS_ALIGN));
    if (s == STATUS_OK) s = file_write(f->file, f->scales, (size_t)f->rows * sizeof *f->scales);
    if (s == STATUS_OK) {
        keys_footer_make(footer, file_crc32c(f->file));
        s = file_write(f->file, footer, sizeof footer);
    }
    if (s == STATUS_OK) s = keys_replace(f);
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
    TRY(file_join(path, store, "keys"));
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
