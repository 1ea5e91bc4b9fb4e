/* merge_window.c -- see merge_window_internal.h. */
#include "base/system/threads.h"
#include "store/index/parts/merge_window_internal.h"
#include <stdio.h>
#include <string.h>

enum status merge_check_ids(const struct list_file_head *h, const char *path, const uint8_t *bytes, size_t n,
                            int64_t *before) {
    for (size_t i = 0; i < n; i += 8) {
        int64_t id;
        memcpy(&id, bytes + i, sizeof id);
        if (id <= *before || id < h->first_chunk || id >= h->first_chunk + h->rows)
            return fail(STATUS_CORRUPT, "%s: id %lld is not one of its chunks, or out of order", path, (long long)id);
        *before = id;
    }
    return STATUS_OK;
}

static enum status read_source(const struct merge_window *w, const struct merge_window_source *s) {
    char path[FILE_PATH_MAX];
    const uint64_t rows = s->begin[w->lists];
    TRY(part_file_path(path, w->work, w->parts, s->file));
    TRY(list_stream_take(&s->streams[LIST_CODES], s->codes, rows * w->code_bytes, path));
    TRY(list_stream_take(&s->streams[LIST_IDS], s->ids, rows * 8, path));
    for (int64_t l = 0; l < w->lists; l++) {
        int64_t before = -1;
        TRY(merge_check_ids(&s->file->file.head, path, s->ids + 8 * s->begin[l],
                            (size_t)(8 * (s->begin[l + 1] - s->begin[l])), &before));
    }
    return STATUS_OK;
}

static void read_sources(void *context, int64_t begin, int64_t end, int worker) {
    struct merge_window *w = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        struct merge_window_source *s = &w->sources[i];
        s->status = read_source(w, s);
        if (s->status != STATUS_OK) snprintf(s->message, sizeof s->message, "%s", status_message());
    }
}

enum status merge_window_read(struct merge_window *w, struct threads *threads) {
    uint8_t *at = w->memory;
    for (int64_t l = 0; l <= w->lists; l++)
        w->output[l] = 0;
    for (int64_t i = 0; i < w->n_sources; i++) {
        struct merge_window_source *s = &w->sources[i];
        s->codes = at;
        s->ids = at + s->begin[w->lists] * w->code_bytes;
        at = s->ids + s->begin[w->lists] * 8;
        for (int64_t l = 0; l <= w->lists; l++)
            w->output[l] += s->begin[l] * (w->code_bytes + 8);
    }
    threads_for(threads, w->n_sources, 1, read_sources, w);
    for (int64_t i = 0; i < w->n_sources; i++) {
        w->failed = &w->sources[i];
        if (w->failed->status != STATUS_OK) return fail(w->failed->status, "%s", w->failed->message);
    }
    w->failed = NULL;
    return STATUS_OK;
}

/* Copies bytes `skip` and following of a piece of `size` bytes, at most n. Returns how many. */
static size_t put_piece(uint8_t *out, const uint8_t *piece, uint64_t size, uint64_t *skip, size_t n) {
    if (*skip >= size) {
        *skip -= size;
        return 0;
    }
    const size_t some = size - *skip < n ? (size_t)(size - *skip) : n;
    memcpy(out, piece + *skip, some);
    *skip = 0;
    return some;
}

void merge_window_fill(void *window, uint8_t *out, uint64_t at, size_t n) {
    const struct merge_window *w = window;
    int64_t low = 0, high = w->lists; /* the last list that begins at or before `at` */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (w->output[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    uint64_t skip = at - w->output[low];
    for (size_t done = 0; done < n; low++)
        for (int ids = 0; ids < 2; ids++)
            for (int64_t i = 0; i < w->n_sources && done < n; i++) {
                const struct merge_window_source *s = &w->sources[i];
                const uint64_t size = ids ? 8 : w->code_bytes, rows = s->begin[low + 1] - s->begin[low];
                done += put_piece(out + done, (ids ? s->ids : s->codes) + s->begin[low] * size, rows * size, &skip,
                                  n - done);
            }
}
