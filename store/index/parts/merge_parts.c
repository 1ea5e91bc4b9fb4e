/* merge_parts.c -- store_index_merge of index_parts.h.
 *
 * The files of all parts are read once and at the same time: for list 0 the codes of the first file, of the second,
 * ..., then their ids; then the same for list 1. Files ascend by their chunks, and so do the ids of the merged list.
 * The result is an inverted file as FAISS writes it. Memory is one number per list, three buffers for each file of
 * a part, and a window of as many lists as fit in the rest, which several threads read and write.
 *
 * Dropped chunks are in no segment, so each range of chunks between them gets a segment. publish_generation makes the
 * new files visible. A kill before that leaves files without a record, which the next writer removes. */
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "store/catalog/frozen_internal.h"
#include "store/index/list_rows_internal.h"
#include "store/index/parts/index_parts_internal.h"
#include "store/index/parts/list_file_internal.h"
#include "store/index/parts/merge_window_internal.h"
#include "store/index/parts/part_files_internal.h"
#include "store/index/segment_check_internal.h"
#include "store/writer_internal.h"
#include <stdio.h>
#include <string.h>

enum { BUFFER_MIN = 4096, BUFFER_MAX = 1 << 20, WINDOW_MIN = 1 << 20, WINDOW_MAX = 1 << 29 };

struct source {
    const struct part_file *file;
    struct list_stream streams[LIST_SECTIONS];
    uint64_t n; /* rows of the current list */
};

struct merging {
    const char *work;
    const struct store_publish *how;
    struct store_index_parts_report *report;
    struct index_parts_plan plan;
    struct store_writer *w;
    struct shard_record *shards;
    struct landmarks landmarks;
    int64_t encoded;
    struct part_files files;
    struct file_map template;
    struct segment_layout layout;
    struct publish_made made;
    struct segment_record *segments;
    size_t segments_capacity;
    bool direct;                     /* rows are assigned here: no part has files */
    int64_t rows;                    /* rows that were written */
    const struct part_file *current; /* the file that is being read, for messages */

    /* the segment that is being written */
    struct source *sources;
    int64_t n_sources;
    uint8_t *buffers;
    size_t buffer;   /* bytes of one buffer */
    uint64_t *sizes; /* [lists] */
    struct merge_window window;
};

static enum status source_path(char out[FILE_PATH_MAX], struct merging *m, const struct source *s) {
    m->current = s->file;
    return part_file_path(out, m->work, m->files.parts, s->file);
}

/* ---- one segment ---- */

static enum status open_sources(struct merging *m, int64_t first, int64_t n) {
    const uint64_t max_ram = store_publish_max_ram(m->how);
    const uint64_t fixed = 16 * m->layout.lists + m->template.size + (4 << 20);
    uint64_t each = max_ram > fixed ? (max_ram - fixed) / (LIST_SECTIONS * (uint64_t)n) / 8 * 8 : 0;
    if (each < BUFFER_MIN)
        return fail(STATUS_INVALID,
                    "%s: merging %lld files of lists takes at least %llu MiB, more than the limit of %llu MiB: raise "
                    "--max-ram",
                    m->work, (long long)n,
                    (unsigned long long)((fixed + (uint64_t)n * LIST_SECTIONS * BUFFER_MIN) >> 20) + 1,
                    (unsigned long long)(max_ram >> 20));
    m->buffer = each < BUFFER_MAX ? (size_t)each : BUFFER_MAX;
    m->n_sources = n;
    TRY(memory_allocate_zero(&m->sources, (size_t)n));
    TRY(memory_allocate(&m->buffers, (size_t)n * LIST_SECTIONS * m->buffer));
    TRY(memory_allocate_zero(&m->sizes, (size_t)m->layout.lists));
    for (int64_t i = 0; i < n; i++)
        m->sources[i].file = &m->files.list[first + i];
    return STATUS_OK;
}

static void close_sources(struct merging *m) {
    memory_free(m->sources);
    memory_free(m->buffers);
    memory_free(m->sizes);
    m->sources = NULL;
    m->buffers = NULL;
    m->sizes = NULL;
}

static void begin_streams(struct merging *m) {
    for (int64_t i = 0; i < m->n_sources; i++)
        for (enum list_section k = LIST_SIZES; k < LIST_SECTIONS; k++)
            list_stream_begin(&m->sources[i].streams[k], &m->sources[i].file->file, k,
                              m->buffers + ((size_t)i * LIST_SECTIONS + k) * m->buffer, m->buffer);
}

/* Reads the size of the next list of one file. */
static enum status next_size(struct merging *m, struct source *s) {
    char path[FILE_PATH_MAX];
    const uint8_t *bytes;
    size_t n;
    TRY(source_path(path, m, s));
    /* the size of the buffer is a multiple of the numbers' size */
    TRY(list_stream_read(&s->streams[LIST_SIZES], &bytes, &n, 8, path));
    s->n = little_endian_get(bytes, 8);
    return s->n <= (uint64_t)s->file->file.head.rows
               ? STATUS_OK
               : fail(STATUS_CORRUPT, "%s: a list has more rows than the file", path);
}

static enum status add_sizes(struct merging *m) {
    begin_streams(m);
    for (int64_t i = 0; i < m->n_sources; i++) {
        char path[FILE_PATH_MAX];
        uint64_t rows = 0;
        TRY(source_path(path, m, &m->sources[i]));
        for (uint64_t l = 0; l < m->layout.lists; l++) {
            TRY(next_size(m, &m->sources[i]));
            m->sizes[l] += m->sources[i].n;
            rows += m->sources[i].n;
        }
        TRY(list_stream_end(&m->sources[i].streams[LIST_SIZES], &m->sources[i].file->file, LIST_SIZES, path));
        if (rows != (uint64_t)m->sources[i].file->file.head.rows)
            return fail(STATUS_CORRUPT, "%s: its lists have other rows together than the file", path);
    }
    return STATUS_OK;
}

static enum status copy_section(struct merging *m, struct file_writer *out, struct source *s,
                                enum list_section section) {
    char path[FILE_PATH_MAX];
    uint64_t left = s->n * (section == LIST_CODES ? m->layout.code_bytes : 8);
    int64_t before = -1;
    if (left == 0) return STATUS_OK;
    TRY(source_path(path, m, s));
    while (left > 0) {
        const uint8_t *bytes;
        size_t n;
        TRY(list_stream_read(&s->streams[section], &bytes, &n, left < m->buffer ? (size_t)left : m->buffer, path));
        if (section == LIST_IDS) TRY(merge_check_ids(&s->file->file.head, path, bytes, n, &before));
        TRY(file_write(out, bytes, n));
        left -= n;
    }
    return STATUS_OK;
}

static enum status copy_list(struct merging *m, struct file_writer *out) {
    for (int64_t i = 0; i < m->n_sources; i++)
        TRY(next_size(m, &m->sources[i]));
    for (enum list_section k = LIST_CODES; k <= LIST_IDS; k++)
        for (int64_t i = 0; i < m->n_sources; i++)
            TRY(copy_section(m, out, &m->sources[i], k));
    return STATUS_OK;
}

/* ---- many lists at a time ---- */

/* Memory for a window: what the limit leaves beside the buffers, at most WINDOW_MAX bytes. Too little: window.memory is
 * NULL, and lists are copied one by one. */
static enum status window_open(struct merging *m) {
    const uint64_t max_ram = store_publish_max_ram(m->how), blocks = (uint64_t)threads_count(m->how->threads) << 20;
    const uint64_t used = 16 * m->layout.lists + m->template.size + (4 << 20) + blocks +
                          (uint64_t)m->n_sources * (LIST_SECTIONS * m->buffer + sizeof *m->window.sources);
    struct merge_window *w = &m->window;
    *w = (struct merge_window){
        .n_sources = m->n_sources, .code_bytes = m->layout.code_bytes, .work = m->work, .parts = m->files.parts};
    uint64_t left = max_ram > used ? (max_ram - used) / 2 : 0;
    if (left > WINDOW_MAX) left = WINDOW_MAX;
    w->lists_max = (int64_t)(left / 4 / 8 / (uint64_t)(m->n_sources + 1)) - 1;
    if (w->lists_max > (int64_t)m->layout.lists) w->lists_max = (int64_t)m->layout.lists;
    if (w->lists_max < 1 || left < WINDOW_MIN) return STATUS_OK;
    w->capacity = left / 4 * 3;
    TRY(memory_allocate_zero(&w->sources, (size_t)m->n_sources));
    TRY(memory_allocate(&w->output, (size_t)w->lists_max + 1));
    for (int64_t i = 0; i < m->n_sources; i++) {
        w->sources[i].file = m->sources[i].file;
        w->sources[i].streams = m->sources[i].streams;
        TRY(memory_allocate(&w->sources[i].begin, (size_t)w->lists_max + 1));
    }
    return memory_allocate(&w->memory, (size_t)w->capacity);
}

static void window_close(struct merge_window *w) {
    for (int64_t i = 0; w->sources && i < w->n_sources; i++)
        memory_free(w->sources[i].begin);
    memory_free(w->sources);
    memory_free(w->output);
    memory_free(w->memory);
    *w = (struct merge_window){0};
}

/* The number of lists from `first` that fit in the window; 0: not even one. */
static int64_t window_lists(const struct merging *m, uint64_t first) {
    const struct merge_window *w = &m->window;
    uint64_t bytes = 0;
    int64_t n = 0;
    for (uint64_t l = first; w->memory && n < w->lists_max && l < m->layout.lists; l++, n++) {
        bytes += m->sizes[l] * (w->code_bytes + 8);
        if (bytes > w->capacity) break;
    }
    return n;
}

static enum status copy_window(struct merging *m, struct file_writer *out, int64_t lists) {
    struct merge_window *w = &m->window;
    uint64_t rows = 0;
    w->lists = lists;
    for (int64_t i = 0; i < m->n_sources; i++) {
        uint64_t *begin = w->sources[i].begin;
        begin[0] = 0;
        for (int64_t l = 0; l < lists; l++) {
            TRY(next_size(m, &m->sources[i]));
            begin[l + 1] = begin[l] + m->sources[i].n;
            rows += m->sources[i].n;
            if (rows * (w->code_bytes + 8) > w->capacity)
                return fail(STATUS_CORRUPT, "%s: the sizes of lists changed while they were read", m->work);
        }
    }
    const enum status s = merge_window_read(w, m->how->threads);
    if (s != STATUS_OK) m->current = w->failed->file;
    TRY(s);
    return file_write_blocks(out, w->output[lists], m->how->threads, merge_window_fill, w, NULL);
}

static enum status copy_lists(struct merging *m, struct file_writer *out) {
    begin_streams(m);
    for (uint64_t l = 0; l < m->layout.lists;) {
        const int64_t lists = window_lists(m, l), n = lists > 0 ? lists : 1;
        if (lists > 0)
            TRY(copy_window(m, out, lists));
        else
            TRY(copy_list(m, out));
        for (int64_t i = 0; i < n; i++)
            m->rows += (int64_t)m->sizes[l++];
        progress_step(m->how->progress, "merge index", "chunks", m->rows, m->files.rows);
        if (progress_stop_requested(m->how->progress))
            return fail(STATUS_INTERRUPTED, "%s: stopped; the store is as it was: run the same command again",
                        m->w->dir);
    }
    for (int64_t i = 0; i < m->n_sources; i++)
        for (enum list_section k = LIST_SIZES; k < LIST_SECTIONS; k++) {
            char path[FILE_PATH_MAX];
            TRY(source_path(path, m, &m->sources[i]));
            TRY(list_stream_end(&m->sources[i].streams[k], &m->sources[i].file->file, k, path));
        }
    return STATUS_OK;
}

static enum status write_segment(struct merging *m, struct segment_record *r, struct file_writer *out) {
    uint8_t *head = NULL;
    size_t bytes;
    TRY(add_sizes(m));
    TRY(segment_head(&head, &bytes, m->template.data, &m->layout, m->sizes, r->chunks));
    r->head = (struct stored_file){bytes, crc32c(0, head, bytes)};
    enum status s = file_write(out, head, bytes);
    memory_free(head);
    if (s == STATUS_OK) s = copy_lists(m, out);
    if (s == STATUS_OK) s = fault_point("store:parts:segment-copied");
    r->file = (struct stored_file){file_written(out), file_crc32c(out)};
    return s;
}

/* Merges files first .. first+n-1, which contain one range of chunks without dropped ones. */
static enum status merge_files(struct merging *m, int64_t first, int64_t n, struct store_range chunks) {
    char path[FILE_PATH_MAX];
    struct file_writer *out;
    struct segment_record r = {
        .number = m->made.index.next_number++, .first_chunk = chunks.begin, .chunks = chunks.end - chunks.begin};
    TRY(memory_grow(&m->segments, &m->segments_capacity, (size_t)m->made.n + 1));
    TRY(index_path(path, m->w->dir, r.number));
    TRY(file_create(&out, path));
    enum status s = open_sources(m, first, n);
    if (s == STATUS_OK) s = window_open(m);
    if (s == STATUS_OK) s = write_segment(m, &r, out);
    window_close(&m->window);
    close_sources(m);
    if (s != STATUS_OK) {
        file_discard(out);
        return s;
    }
    m->current = NULL;
    TRY(file_publish(out));
    /* the assembled file must pass the check that runs before FAISS reads a segment */
    TRY(segment_check_file(path, &(struct segment_shape){m->plan.fingerprint.dim, r.chunks, r.first_chunk}, false,
                           NULL));
    m->segments[m->made.n++] = r;
    m->report->bytes += r.file.bytes;
    return fault_point("store:parts:segment-written");
}

/* ---- without files of parts ---- */

static struct index_build build_of(struct merging *m) {
    return (struct index_build){.dir = m->w->dir,
                                .stopped = "the store is as it was: run the same command again",
                                .landmarks = &m->landmarks,
                                .how = m->how};
}

/* The most rows of a range of chunks without dropped ones; *all: of all ranges. */
static int64_t longest_range(const struct merging *m, int64_t *all) {
    const struct store_dropped dropped = landmarks_dropped(&m->landmarks);
    int64_t longest = 0;
    *all = 0;
    for (struct store_range there = {0}; there.end < m->plan.chunks;) {
        there = store_dropped_span(dropped, there.end, m->plan.chunks);
        const int64_t rows = there.end - there.begin;
        if (rows == 0) break;
        longest = rows > longest ? rows : longest;
        *all += rows;
    }
    return longest;
}

/* Whether rows can be assigned by the plan's method, and fit in memory. */
static enum status check_direct(struct merging *m) {
    const struct store_assignment *here = &m->how->assignment;
    int64_t most, all;
    TRY(index_plan_rows(&most, m->plan.factory, m->plan.fingerprint.dim, store_publish_max_ram(m->how)));
    const int64_t longest = longest_range(m, &all);
    m->direct = m->plan.method != STORE_ASSIGN_FAISS && here->open && here->method == m->plan.method &&
                longest <= most && longest < INT32_MAX;
    return STATUS_OK;
}

static enum status make_range(struct merging *m, const struct vectors *v, struct store_range chunks) {
    char path[FILE_PATH_MAX], template[FILE_PATH_MAX];
    struct segment_record r = {
        .number = m->made.index.next_number++, .first_chunk = chunks.begin, .chunks = chunks.end - chunks.begin};
    const struct index_build build = build_of(m);
    TRY(memory_grow(&m->segments, &m->segments_capacity, (size_t)m->made.n + 1));
    TRY(index_path(path, m->w->dir, r.number));
    TRY(index_parts_template_path(template, m->work));
    TRY(list_rows_make_segment(&build, v, &r, template, path, m->plan.chunks));
    m->segments[m->made.n++] = r;
    m->report->bytes += r.file.bytes;
    return fault_point("store:parts:segment-written");
}

static enum status make_all(struct merging *m) {
    char template[FILE_PATH_MAX];
    struct vectors *v;
    TRY(index_parts_template_path(template, m->work));
    TRY(index_build_open_template(&v, template, m->plan.template_file, m->plan.fingerprint.dim,
                                  "remove the work folder, and train again"));
    enum status s = STATUS_OK;
    for (struct store_range there = {0}; s == STATUS_OK && there.end < m->plan.chunks;) {
        there = store_dropped_span(landmarks_dropped(&m->landmarks), there.end, m->plan.chunks);
        if (there.begin == there.end) break;
        s = make_range(m, v, there);
    }
    vectors_free(v);
    return s;
}

static enum status merge_all(struct merging *m) {
    int64_t n = 0;
    for (int64_t i = 0; i < m->files.n; i += n) {
        const struct list_file_head *first = &m->files.list[i].file.head;
        struct store_range chunks = {first->first_chunk, first->first_chunk + first->rows};
        for (n = 1; i + n < m->files.n && m->files.list[i + n].file.head.first_chunk == chunks.end; n++)
            chunks.end += m->files.list[i + n].file.head.rows;
        TRY(merge_files(m, i, n, chunks));
    }
    return STATUS_OK;
}

/* ---- all of it ---- */

/* Copies the template into the store, because later segments are filled from it. */
static enum status take_template(struct merging *m) {
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
    struct segment_shape shape = {.dim = m->plan.fingerprint.dim};
    TRY(index_parts_template_path(from, m->work));
    TRY(stored_file_check(from, m->plan.template_file, "remove the work folder, and train again"));
    TRY(file_map(&m->template, from));
    if (crc32c(0, m->template.data, m->template.size) != m->plan.template_file.crc)
        return fail(STATUS_CORRUPT, "%s: its bytes changed: remove the work folder, and train again", from);
    TRY(segment_layout(&m->layout, from, &shape, m->template.data, m->template.size));
    struct index_record *index = &m->made.index;
    index->template_number = index->next_number++;
    index->template_file = m->plan.template_file;
    index->trained_chunks = m->plan.chunks;
    index->chosen = m->plan.chosen;
    memcpy(index->factory, m->plan.factory, sizeof index->factory);
    m->made.indexed = (struct indexed_record){index->template_number, m->plan.id};
    TRY(index_path(to, m->w->dir, index->template_number));
    TRY(file_save(to, m->template.data, m->template.size));
    return fault_point("store:parts:template-taken");
}

/* Checks the free space before anything is written, because a disk that is too small would fail after hours. */
static enum status check_space(const struct merging *m) {
    char folder[FILE_PATH_MAX];
    int64_t rows = m->files.rows;
    if (m->direct) (void)longest_range(m, &rows);
    uint64_t left, wanted = (uint64_t)rows * (m->layout.code_bytes + 8) + 2 * m->template.size;
    TRY(file_join(folder, m->w->dir, "index"));
    TRY(file_free_space(&left, folder));
    if (left >= wanted) return STATUS_OK;
    return fail(STATUS_NO_SPACE,
                "%s: the merged index takes %llu MiB, and %llu MiB are free: free disk space and run the command again",
                folder, (unsigned long long)(wanted >> 20) + 1, (unsigned long long)(left >> 20));
}

/* *already: whether the store has this plan's index. */
static enum status read_store(struct merging *m, bool *already) {
    struct store_writer *w = m->w;
    struct indexed_record before;
    struct catalog_txn *t;
    TRY(catalog_begin(&t, w->catalog, false));
    enum status s = index_parts_check_store(&m->plan, m->work, w->dir, t, w->catalog, &w->fingerprint, &w->published);
    if (s == STATUS_OK) s = record_get_index(t, w->catalog, &m->made.index);
    if (s == STATUS_OK) s = record_get_indexed(t, w->catalog, &before);
    if (s == STATUS_OK) s = record_get_encoded(t, w->catalog, &m->encoded);
    if (s == STATUS_OK) s = record_list_shards(t, w->catalog, &m->shards, w->published.shards);
    catalog_abort(t);
    TRY(s);
    *already = before.template_number > 0 && before.template_number == m->made.index.template_number &&
               before.plan == m->plan.id;
    return landmarks_open(&m->landmarks, w->dir, &w->fingerprint,
                          (struct landmarks_list){w->landmark_type, m->shards, w->published.shards},
                          w->published.chunks, (struct store_ranges){0});
}

static enum status merge_parts_publish(struct merging *m) {
    struct store_publish how = *m->how;
    how.index = m->plan.factory;
    m->made.end = m->plan.chunks;
    m->made.segments = m->segments;
    const struct publish_change change = {.rebuild = true, .made = &m->made};
    TRY(publish_generation(m->w, &m->w->published, &how, &change));
    return fault_point("store:parts:published");
}

static enum status write_files(struct merging *m, const struct part_files_of *of) {
    TRY(take_template(m));
    if (m->direct) {
        TRY(check_space(m));
        return make_all(m);
    }
    TRY(part_files_check_lists(&m->files, of, (int64_t)m->layout.lists, (int64_t)m->layout.code_bytes));
    TRY(check_space(m));
    enum status s = merge_all(m);
    return s == STATUS_CORRUPT && m->current ? part_files_remedy(s, of, m->current->part, m->files.parts) : s;
}

/* Removes what was written before a failure. The next writer would remove it, too, but until then it uses space. */
static void remove_files(const struct merging *m, int64_t first) {
    char path[FILE_PATH_MAX];
    for (int64_t i = first; i < m->made.index.next_number; i++)
        if (index_path(path, m->w->dir, i) == STATUS_OK) (void)remove(path);
}

/* m->direct: without files of parts; false afterwards, and nothing is done: that is impossible. */
static enum status merge_parts_merge(struct merging *m, const char *dir) {
    const bool wanted = m->direct;
    TRY(index_parts_plan_read(&m->plan, m->work));
    TRY(writer_open(&m->w, dir, NULL, false));
    TRY(read_store(m, &m->report->already));
    m->report->added = m->w->published.chunks - m->plan.chunks;
    if (m->report->already) return STATUS_OK;
    const struct part_files_of of = {.plan = &m->plan,
                                     .dir = dir,
                                     .work = m->work,
                                     .rows = {m->shards, m->w->published.shards, &m->landmarks, m->encoded},
                                     .dropped = landmarks_dropped(&m->landmarks)};
    if (m->direct) TRY(check_direct(m));
    if (wanted && !m->direct) return STATUS_OK;
    if (!m->direct) TRY(part_files_find(&m->files, &of));
    m->report->parts = m->direct ? 1 : m->files.parts;
    const int64_t first = m->made.index.next_number;
    enum status s = write_files(m, &of);
    if (s != STATUS_OK) remove_files(m, first);
    TRY(s);
    return merge_parts_publish(m);
}

enum status store_index_check_writable(const char *dir) {
    return frozen_refuse(dir);
}

static enum status merge_or_make(struct store_index_parts_report *out, const char *dir, const char *work,
                                 const struct store_publish *how, bool *direct) {
    struct merging m = {.work = work, .how = how, .report = out, .direct = *direct};
    *out = (struct store_index_parts_report){0};
    enum status s = merge_parts_merge(&m, dir);
    if (s == STATUS_OK) {
        snprintf(out->index, sizeof out->index, "%s", m.plan.factory);
        out->chunks = m.plan.chunks;
        out->lists = vectors_plan(m.plan.factory, m.plan.fingerprint.dim).lists;
        out->segments = m.made.n;
        out->generation = (uint64_t)m.w->published.number;
    }
    *direct = m.direct;
    file_unmap(&m.template);
    part_files_free(&m.files);
    landmarks_close(&m.landmarks);
    memory_free(m.shards);
    memory_free(m.segments);
    store_writer_close(m.w);
    return s;
}

enum status store_index_merge(struct store_index_parts_report *out, const char *dir, const char *work,
                              const struct store_publish *how) {
    bool direct = false;
    return merge_or_make(out, dir, work, how, &direct);
}

enum status store_index_make(struct store_index_parts_report *out, const char *dir, const char *work,
                             const struct store_publish *how) {
    bool direct = true;
    TRY(merge_or_make(out, dir, work, how, &direct));
    if (direct || out->already) return STATUS_OK;
    TRY(store_index_fill(out, dir, work, 1, 1, how));
    return store_index_merge(out, dir, work, how);
}
