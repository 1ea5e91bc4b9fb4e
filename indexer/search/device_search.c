/* device_search.c -- see device_search.h. */
#include "indexer/search/device_search.h"
#include "base/memory.h"
#include "store/shards/landmark_file.h"

enum { UPLOAD_ROWS = 1024 };
#define ROWS_MAX (INT64_C(1) << 30) /* ops count rows with 32 bits */

/* Uploads rows as fp16, block by block if they must be converted. Each number of a stored row is an fp16 number, so
 * none is rounded. */
static enum status landmark_source_upload(struct device *dev, struct mat to, const struct store_rows *rows) {
    uint16_t *block;
    if (rows->half) {
        device_upload(dev, to.data, rows->half, (size_t)(to.rows * to.cols) * sizeof *rows->half);
        return STATUS_OK;
    }
    TRY(memory_allocate(&block, UPLOAD_ROWS * (size_t)to.cols));
    for (int64_t at = 0, n; at < to.rows; at += n) {
        n = to.rows - at < UPLOAD_ROWS ? to.rows - at : UPLOAD_ROWS;
        store_rows_to_half(block, rows, at, n);
        device_upload(dev, mat_rows(to, at, n).data, block, (size_t)(n * to.cols) * sizeof *block);
    }
    memory_free(block);
    return STATUS_OK;
}

static enum status landmark_source_read(void *context, struct device *dev, struct mat to, int64_t first) {
    struct store_dropped dropped = store_view_dropped(context);
    struct store_rows stored;
    for (int64_t at = 0; at < to.rows; at += stored.n) {
        TRY(store_view_landmark_rows(context, &stored, store_dropped_nth(dropped, first + at)));
        if (stored.n > to.rows - at) stored.n = to.rows - at;
        struct mat piece = mat_rows(to, at, stored.n);
        if (to.type == DTYPE_F16)
            TRY(landmark_source_upload(dev, piece, &stored));
        else
            store_rows_to_float(piece.data, &stored, 0, stored.n);
    }
    return STATUS_OK;
}

/* A view is for one thread at a time, and its maps end at its next call. So a thread maps the file again for itself. */
static enum status landmark_source_copy(void *context, pthread_mutex_t *lock, struct mat to, int64_t first) {
    struct store_dropped dropped = store_view_dropped(context);
    for (int64_t at = 0, n; at < to.rows; at += n) {
        struct landmark_file *file;
        pthread_mutex_lock(lock);
        const enum status s = landmark_file_open(&file, context, store_dropped_nth(dropped, first + at));
        pthread_mutex_unlock(lock);
        TRY(s);
        const struct store_rows stored = landmark_file_rows(file).rows;
        const struct mat piece = mat_rows(to, at, to.rows - at);
        n = stored.n < piece.rows ? stored.n : piece.rows;
        if (to.type == DTYPE_F16)
            store_rows_to_half(piece.data, &stored, 0, n);
        else
            store_rows_to_float(piece.data, &stored, 0, n);
        landmark_file_close(file);
    }
    return STATUS_OK;
}

struct landmark_source landmark_source_of(struct store_view *view) {
    struct store_info info;
    store_view_info(view, &info);
    return (struct landmark_source){.rows = info.chunks - info.dropped_chunks,
                                    .dim = info.fingerprint.dim,
                                    .read = landmark_source_read,
                                    .copy = landmark_source_copy,
                                    .context = view,
                                    .dropped = store_view_dropped(view)};
}

struct landmark_source landmark_source_slice(const struct landmark_source *s, int i, int n) {
    struct landmark_source out = *s;
    const int64_t begin = (int64_t)((__int128)s->rows * i / n), end = (int64_t)((__int128)s->rows * (i + 1) / n);
    out.first = s->first + begin;
    out.rows = end - begin;
    return out;
}

enum status landmark_source_allocate(struct mat *out, const struct landmark_source *s, struct device *dev,
                                     uint64_t reserve) {
    void *rows, *spare = NULL;
    if (s->rows > ROWS_MAX)
        return fail(STATUS_NO_MEMORY, "%lld landmarks are more than a device searches at once", (long long)s->rows);
    TRY(device_allocate(dev, &rows, landmark_source_bytes(s, dev)));
    /* Allocated and released at once: a later failure to allocate this memory would have no remedy. */
    enum status status = reserve ? device_allocate(dev, &spare, reserve) : STATUS_OK;
    device_release(dev, spare);
    if (status != STATUS_OK) {
        device_release(dev, rows);
        return status;
    }
    *out = mat_dense(rows, landmark_source_type(dev), s->rows, s->dim);
    return STATUS_OK;
}

enum status landmark_rows_of(struct device *dev, int32_t **row_of, const int32_t *chunk_of, int64_t rows,
                             int64_t chunks) {
    const size_t count = (size_t)chunks;
    int32_t *row_of_host, *out;
    TRY(memory_allocate(&row_of_host, count));
    const enum status s = device_allocate(dev, &out, count);
    for (int64_t c = 0; c < chunks; c++)
        row_of_host[c] = -1;
    for (int64_t r = 0; r < rows; r++)
        row_of_host[chunk_of[r]] = (int32_t)r;
    if (s == STATUS_OK) {
        device_upload(dev, out, row_of_host, count * sizeof *out);
        *row_of = out;
    }
    memory_free(row_of_host);
    return s;
}

enum status hit_buffer_reserve(struct hit_buffer *b, struct device *dev, int64_t count) {
    if (count <= b->capacity) return STATUS_OK;
    hit_buffer_release(b, dev);
    TRY(device_pair_allocate(dev, &b->pair, hit_list_bytes(count)));
    b->mapped = device_reach(dev, b->pair.host);
    b->capacity = count;
    return STATUS_OK;
}

void hit_buffer_release(struct hit_buffer *b, struct device *dev) {
    device_pair_release(dev, &b->pair);
    *b = (struct hit_buffer){0};
}
