/* list_rows.c -- see list_rows_internal.h. */
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "base/system/threads.h"
#include "store/index/list_rows_internal.h"
#include "store/index/segment_check_internal.h"
#include <assert.h>
#include <string.h>

enum {
    CODE_ROWS = 64, /* coded at a time: their float32 numbers stay in the cache of a processor */
    WINDOW_BLOCKS_MIN = 4,
    PORTION_BYTES = 1 << 28, /* written between two reports */
    AHEAD = 8                /* slots whose codes are prefetched */
};

bool list_rows_supported(const struct index_build *b, const struct vectors *v) {
    return b->how->assignment.open && vectors_centroids(v);
}

/* ---- filling ---- */

struct list_filling {
    struct list_rows *rows;
    const struct index_build *build;
    const struct vectors *v;
    void *assigner;
    struct store_range window; /* mapped */
    int64_t *wide;             /* [threads, CODE_ROWS] */
    float *numbers;            /* [threads, CODE_ROWS, dim] */
    struct threads_failure failure;
};

static void read_rows(void *context, void *out, bool half, int64_t first, int64_t n) {
    const struct list_filling *f = context;
    const struct landmarks *l = f->build->landmarks;
    const size_t dim = (size_t)l->dim;
    assert(first >= f->window.begin && first + n <= f->window.end);
    for (int64_t done = 0, some; done < n; done += some) {
        const struct store_rows rows = landmarks_rows(l, first + done);
        some = rows.n < n - done ? rows.n : n - done;
        if (half)
            store_rows_to_half((uint16_t *)out + (size_t)done * dim, &rows, 0, some);
        else
            store_rows_to_float((float *)out + (size_t)done * dim, &rows, 0, some);
    }
}

static enum status fill_codes(struct list_filling *f, int64_t first, int64_t n, int worker) {
    struct list_rows *r = f->rows;
    float *numbers = f->numbers + (size_t)worker * CODE_ROWS * (size_t)f->build->landmarks->dim;
    int64_t *wide = f->wide + (size_t)worker * CODE_ROWS;
    for (int64_t at = first; at < first + n; at += CODE_ROWS) {
        const int64_t some = first + n - at < CODE_ROWS ? first + n - at : CODE_ROWS;
        const int32_t *list = r->list + (at - r->first);
        for (int64_t i = 0; i < some; i++) {
            if (list[i] < 0 || list[i] >= r->lists)
                return fail(STATUS_INVALID, "chunk %lld was assigned to list %d of %lld", (long long)(at + i), list[i],
                            (long long)r->lists);
            wide[i] = list[i];
        }
        read_rows(f, numbers, false, at, some);
        TRY(vectors_encode(f->v, r->codes + (size_t)(at - r->first) * r->code_bytes, numbers, wide, some));
    }
    return STATUS_OK;
}

/* Blocks begin .. end-1 of the window, counted from the block of its first chunk. */
static void fill_blocks(void *context, int64_t begin, int64_t end, int worker) {
    struct list_filling *f = context;
    const struct store_assignment *a = &f->build->how->assignment;
    const int64_t base = f->window.begin / STORE_ASSIGN_BLOCK;
    for (int64_t i = begin; i < end && !threads_any_failed(&f->failure); i++) {
        int64_t first = (base + i) * STORE_ASSIGN_BLOCK, last = first + STORE_ASSIGN_BLOCK;
        if (first < f->window.begin) first = f->window.begin;
        if (last > f->window.end) last = f->window.end;
        enum status s = a->assign(f->assigner, f->rows->list + (first - f->rows->first),
                                  (struct store_assign_rows){read_rows, f}, first, last - first);
        if (s == STATUS_OK) s = fill_codes(f, first, last - first, worker);
        threads_failed(&f->failure, s);
    }
}

/* Maps files of as many chunks as an eighth of the memory limit contains, so that the pages that threads read at the
 * same time are limited, too. */
static enum status next_window(struct list_filling *f, int64_t at, int64_t end) {
    const uint64_t row = 2 * (uint64_t)f->build->landmarks->dim;
    const int64_t block = STORE_ASSIGN_BLOCK;
    int64_t blocks = (int64_t)(store_publish_max_ram(f->build->how) / 8 / row) / block, n;
    if (blocks < WINDOW_BLOCKS_MIN) blocks = WINDOW_BLOCKS_MIN;
    int64_t wanted = (at / block + blocks) * block - at;
    if (wanted > end - at) wanted = end - at;
    TRY(landmarks_map(f->build->landmarks, &n, at, wanted));
    f->window = (struct store_range){at, at + n};
    return STATUS_OK;
}

static enum status fill_windows(struct list_filling *f, struct store_range range, int64_t total) {
    const int64_t block = STORE_ASSIGN_BLOCK;
    for (int64_t at = range.begin; at < range.end; at = f->window.end) {
        TRY(next_window(f, at, range.end));
        threads_for(f->build->how->threads, (f->window.end - 1) / block - at / block + 1, 1, fill_blocks, f);
        TRY(threads_failure(&f->failure));
        TRY(index_build_check_stop(f->build));
        landmarks_release_pages(f->build->landmarks, at, f->window.end - at);
        progress_step(f->build->how->progress, "fill index", "chunks", f->window.end, total);
    }
    return STATUS_OK;
}

/* Sorts the rows by their lists. */
static enum status order_rows(struct list_rows *r) {
    TRY(memory_allocate_zero(&r->begin, (size_t)r->lists + 1));
    TRY(memory_allocate(&r->order, (size_t)r->n));
    for (int64_t i = 0; i < r->n; i++)
        r->begin[r->list[i]]++;
    for (int64_t l = 0, at = 0; l <= r->lists; l++) {
        const int64_t size = r->begin[l];
        r->begin[l] = at;
        at += size;
    }
    for (int64_t i = 0; i < r->n; i++)
        r->order[r->begin[r->list[i]]++] = (int32_t)i;
    for (int64_t l = r->lists; l > 0; l--) /* each `begin` is now that of the next list */
        r->begin[l] = r->begin[l - 1];
    r->begin[0] = 0;
    memory_free(r->list);
    r->list = NULL;
    return STATUS_OK;
}

enum status list_rows_fill(struct list_rows *out, const struct index_build *b, const struct vectors *v,
                           struct store_range range, int64_t total) {
    const struct store_assignment *a = &b->how->assignment;
    const size_t threads = (size_t)threads_count(b->how->threads), dim = (size_t)b->landmarks->dim;
    struct list_rows r = {.first = range.begin,
                          .n = range.end - range.begin,
                          .lists = vectors_lists(v),
                          .code_bytes = (size_t)vectors_code_bytes(v)};
    struct list_filling f = {.rows = &r, .build = b, .v = v, .failure = THREADS_FAILURE_NONE};
    enum status s;
    assert(r.n > 0 && r.n < INT32_MAX && list_rows_supported(b, v));
    TRY_GOTO(s, memory_allocate(&r.list, (size_t)r.n), out);
    TRY_GOTO(s, memory_allocate(&r.codes, (size_t)r.n * r.code_bytes), out);
    TRY_GOTO(s, memory_allocate(&f.wide, threads * CODE_ROWS), out);
    TRY_GOTO(s, memory_allocate_aligned(&f.numbers, threads * CODE_ROWS * dim), out);
    TRY_GOTO(s, a->open(a->context, &f.assigner, vectors_centroids(v), r.lists, (int)dim), out);
    s = fill_windows(&f, range, total);
    a->close(f.assigner);
    if (s == STATUS_OK) s = order_rows(&r);
out:
    memory_free(f.wide);
    memory_free(f.numbers);
    if (s == STATUS_OK)
        *out = r;
    else
        list_rows_free(&r);
    return s;
}

void list_rows_free(struct list_rows *r) {
    memory_free(r->codes);
    memory_free(r->list);
    memory_free(r->begin);
    memory_free(r->order);
    *r = (struct list_rows){0};
}

/* ---- writing ---- */

/* Bytes at .. at + n - 1 of the codes of all slots. */
static void put_codes(const struct list_rows *r, uint8_t *out, uint64_t at, size_t n) {
    const size_t size = r->code_bytes;
    int64_t slot = (int64_t)(at / size);
    for (size_t skip = (size_t)(at % size), done = 0, some; done < n; done += some, slot++, skip = 0) {
        some = size - skip < n - done ? size - skip : n - done;
        if (slot + AHEAD < r->n) __builtin_prefetch(r->codes + (size_t)r->order[slot + AHEAD] * size);
        memcpy(out + done, r->codes + (size_t)r->order[slot] * size + skip, some);
    }
}

static void put_ids(const struct list_rows *r, uint8_t *out, uint64_t at, size_t n) {
    int64_t slot = (int64_t)(at / 8);
    for (size_t skip = (size_t)(at % 8), done = 0, some; done < n; done += some, slot++, skip = 0) {
        const int64_t id = r->first + r->order[slot];
        some = 8 - skip < n - done ? 8 - skip : n - done;
        memcpy(out + done, (const uint8_t *)&id + skip, some);
    }
}

/* Bytes of the lists of a segment: each has its codes, then its ids. */
static void put_lists(const struct list_rows *r, uint8_t *out, uint64_t at, size_t n) {
    const uint64_t row = r->code_bytes + 8;
    int64_t low = 0, high = r->lists; /* the last list that begins at or before `at` */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if ((uint64_t)r->begin[middle] * row <= at)
            low = middle;
        else
            high = middle;
    }
    for (size_t done = 0; done < n; low++) {
        const uint64_t begin = (uint64_t)r->begin[low], rows = (uint64_t)r->begin[low + 1] - begin;
        const uint64_t ids = begin * row + rows * r->code_bytes, end = begin * row + rows * row;
        while (done < n && at + done < end) {
            const uint64_t here = at + done, left = (here < ids ? ids : end) - here;
            const size_t some = left < n - done ? (size_t)left : n - done;
            if (here < ids)
                put_codes(r, out + done, begin * r->code_bytes + (here - begin * row), some);
            else
                put_ids(r, out + done, 8 * begin + (here - ids), some);
            done += some;
        }
    }
}

typedef void list_put(const struct list_rows *r, uint8_t *out, uint64_t at, size_t n);
struct list_portion {
    const struct list_rows *rows;
    list_put *put;
    uint64_t at;
};

static void put_portion(void *context, uint8_t *out, uint64_t at, size_t n) {
    const struct list_portion *p = context;
    p->put(p->rows, out, p->at + at, n);
}

/* b NULL: nothing is reported. */
static enum status write_portions(const struct list_rows *r, list_put *put, uint64_t bytes, struct file_writer *w,
                                  struct threads *pool, const struct index_build *b, uint32_t *crc) {
    struct list_portion p = {r, put, 0};
    *crc = 0;
    for (; p.at < bytes; p.at += PORTION_BYTES) {
        const uint64_t some = bytes - p.at < PORTION_BYTES ? bytes - p.at : PORTION_BYTES;
        uint32_t here;
        TRY(file_write_blocks(w, some, pool, put_portion, &p, &here));
        *crc = crc32c_join(*crc, here, some);
        if (b) TRY(index_build_check_stop(b));
        if (b)
            progress_step(b->how->progress, "write index", "chunks", (int64_t)((p.at + some) / (r->code_bytes + 8)),
                          r->n);
    }
    return STATUS_OK;
}

enum status list_rows_write_codes(const struct list_rows *r, struct file_writer *w, struct threads *pool,
                                  uint32_t *crc) {
    return write_portions(r, put_codes, (uint64_t)r->n * r->code_bytes, w, pool, NULL, crc);
}

enum status list_rows_write_ids(const struct list_rows *r, struct file_writer *w, struct threads *pool, uint32_t *crc) {
    return write_portions(r, put_ids, 8 * (uint64_t)r->n, w, pool, NULL, crc);
}

static enum status write_segment(const struct list_rows *r, const struct index_build *b, struct file_writer *w,
                                 const struct file_map *template, const struct segment_layout *layout,
                                 struct stored_file *head) {
    uint64_t *sizes;
    uint8_t *bytes = NULL;
    size_t n = 0;
    uint32_t crc;
    assert((int64_t)layout->lists == r->lists && layout->code_bytes == r->code_bytes);
    TRY(memory_allocate(&sizes, (size_t)r->lists));
    for (int64_t l = 0; l < r->lists; l++)
        sizes[l] = (uint64_t)(r->begin[l + 1] - r->begin[l]);
    enum status s = segment_head(&bytes, &n, template->data, layout, sizes, r->n);
    if (s == STATUS_OK) s = file_write(w, bytes, n);
    if (s == STATUS_OK) *head = (struct stored_file){n, crc32c(0, bytes, n)};
    memory_free(sizes);
    memory_free(bytes);
    if (s == STATUS_OK)
        s = write_portions(r, put_lists, (uint64_t)r->n * (r->code_bytes + 8), w, b->how->threads, b, &crc);
    return s == STATUS_OK ? fault_point("store:segment:written") : s;
}

static enum status make_file(const struct list_rows *rows, const struct index_build *b, struct segment_record *r,
                             const char *template, const char *path) {
    struct segment_layout layout;
    struct file_writer *w;
    struct file_map map;
    TRY(file_map(&map, template));
    enum status s =
        segment_layout(&layout, template, &(struct segment_shape){.dim = b->landmarks->dim}, map.data, map.size);
    if (s == STATUS_OK) s = file_create(&w, path);
    if (s == STATUS_OK) {
        s = write_segment(rows, b, w, &map, &layout, &r->head);
        r->file = (struct stored_file){file_written(w), file_crc32c(w)};
        if (s == STATUS_OK)
            s = file_publish(w);
        else
            file_discard(w);
    }
    file_unmap(&map);
    return s;
}

enum status list_rows_make_segment(const struct index_build *b, const struct vectors *v, struct segment_record *r,
                                   const char *template, const char *path, int64_t total) {
    struct list_rows rows;
    TRY(list_rows_fill(&rows, b, v, (struct store_range){r->first_chunk, r->first_chunk + r->chunks}, total));
    const enum status s = make_file(&rows, b, r, template, path);
    list_rows_free(&rows);
    TRY(s);
    /* it must pass the check that runs before FAISS reads a segment */
    return segment_check_file(path, &(struct segment_shape){b->landmarks->dim, r->chunks, r->first_chunk}, false, NULL);
}
