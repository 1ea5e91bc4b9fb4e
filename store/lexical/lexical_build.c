/* lexical_build.c -- see lexical_build.h.
 *
 * Chunks are collected in a block, which the threads divide into buckets of pairs of ids
 * (build/bucket_records_internal.h). At the end they sort the buckets and make their lists (build/sort_internal.h), and
 * write the lists of all buckets to the file (build/join_lists_internal.h). */
#include "store/lexical/lexical_build.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "store/lexical/build/join_lists_internal.h"
#include "store/lexical/build/sort_internal.h"
#include "store/lexical/lexical_format_internal.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    RAM_MIN = 1 << 20,
    PORTION_IDS = 1 << 18,    /* a portion's records are then mostly in a processor's cache */
    BUCKET_IDS_MIN = 1 << 12, /* of a segment of one portion */
    BUFFER_MIN = 1 << 16,
    BUFFER_MAX = 1 << 18,
    WORKERS_MAX = 64,  /* each has four files open */
    RESERVE_BYTES = 3, /* of a token: about what a segment of text has */
    BUFFERS = 64       /* a thread's share of the memory is so many buffers, or more */
};
static const uint64_t max_ram_default = UINT64_C(1) << 30, worker_ram_min = UINT64_C(16) << 20,
                      bucket_ram = UINT64_C(1) << 18;

struct lexical_builder {
    struct file_writer *file;
    struct threads *threads;
    uint64_t max_ram;
    struct lexical_frame frame;
    bool reserve;
    const struct progress *progress;
    int32_t *ids; /* of the chunks in the block */
    size_t ids_capacity, n_ids;
    int32_t *lengths; /* of these chunks */
    size_t lengths_capacity, n_lengths;
    struct portion *portions;
    size_t portions_capacity;
    struct buckets *buckets;
    struct records *records;
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
};

static void folder_of(char out[FILE_PATH_MAX], const char *path) {
    snprintf(out, FILE_PATH_MAX, "%s", path);
    char *slash = strrchr(out, '/');
    if (slash)
        slash[slash == out ? 1 : 0] = 0;
    else
        snprintf(out, FILE_PATH_MAX, ".");
}

enum status lexical_builder_create(struct lexical_builder **out, const char *path, const struct lexical_build *how) {
    if (how->vocab_size < 1 || how->vocab_size > LEXICAL_VOCAB_MAX)
        return fail(STATUS_UNSUPPORTED, "%s: a lexical index has a vocabulary of 1 to %d ids, not %d: build without it",
                    path, LEXICAL_VOCAB_MAX, how->vocab_size);
    struct lexical_builder *b = NULL;
    TRY(memory_allocate_zero(&b, 1));
    uint8_t header[LEXICAL_HEADER_BYTES];
    b->max_ram = how->max_ram == 0 ? max_ram_default : how->max_ram < RAM_MIN ? RAM_MIN : how->max_ram;
    b->threads = how->threads;
    b->frame = (struct lexical_frame){.vocab_size = how->vocab_size, .first_chunk = how->first_chunk};
    b->progress = how->progress;
    b->reserve = how->reserve;
    enum status s;
    TRY_GOTO(s, file_create(&b->file, path), out); /* first, because it refuses a path that is too long */
    snprintf(b->path, sizeof b->path, "%s", path);
    folder_of(b->folder, path);
    lexical_header_make(header, &b->frame);
    TRY_GOTO(s, file_write(b->file, header, sizeof header), out);
    *out = b;
out:
    if (s != STATUS_OK) lexical_builder_discard(b);
    return s;
}

void lexical_builder_discard(struct lexical_builder *b) {
    if (!b) return;
    file_discard(b->file);
    records_free(b->records);
    buckets_free(b->buckets);
    memory_free(b->portions);
    memory_free(b->ids);
    memory_free(b->lengths);
    memory_free(b);
}

int64_t lexical_builder_chunks(const struct lexical_builder *b) {
    return b->frame.chunks;
}

/* ---- portions ---- */

/* How many threads work at a time, and how large portions are, depends on the memory. No byte of the segment does. */
static int workers_most(const struct lexical_builder *b) {
    const uint64_t fit = b->max_ram / worker_ram_min;
    const int count = threads_count(b->threads);
    const int most = count < WORKERS_MAX ? count : WORKERS_MAX;
    return fit < 1 ? 1 : fit < (uint64_t)most ? (int)fit : most;
}

/* Records of a portion take up to 7 bytes each, ids 4; both of all portions, an eighth of the memory at most. */
static size_t portion_ids(const struct lexical_builder *b) {
    const uint64_t fit = b->max_ram / 8 / 16 / (uint64_t)workers_most(b);
    return fit < PORTION_IDS ? (size_t)fit : PORTION_IDS;
}

static enum status begin_records(struct lexical_builder *b) {
    const uint64_t by_memory = b->max_ram / bucket_ram, by_ids = b->n_ids / BUCKET_IDS_MIN;
    const bool all = b->n_ids < portion_ids(b); /* this is the whole segment, most likely */
    uint64_t wanted = all && by_ids < by_memory ? by_ids : by_memory;
    if (wanted < 2) wanted = 2;
    if (wanted > BUCKETS_MAX) wanted = BUCKETS_MAX;
    TRY(buckets_create(&b->buckets, b->frame.vocab_size, b->ids, b->n_ids, (int)wanted));
    return records_create(&b->records, b->folder, b->buckets, b->max_ram / 2);
}

/* Divides the block of chunks into portions, which become records. */
static enum status flush_block(struct lexical_builder *b) {
    if (!b->records) TRY(begin_records(b));
    const size_t most = portion_ids(b);
    size_t n = 0, id = 0, first = 0;
    uint32_t chunk = (uint32_t)(b->frame.chunks - (int64_t)b->n_lengths);
    for (size_t i = 0; i < b->n_lengths; n++) {
        TRY(memory_grow(&b->portions, &b->portions_capacity, n + 1));
        const size_t begin = id;
        for (first = i; i < b->n_lengths && i - first < (size_t)1 << BUCKETS_CHUNK_BITS; i++) {
            if (i > first && id - begin + (size_t)b->lengths[i] > most) break;
            id += (size_t)b->lengths[i];
        }
        b->portions[n] = (struct portion){.ids = b->ids + begin,
                                          .lengths = b->lengths + first,
                                          .n_ids = (int64_t)(id - begin),
                                          .n_chunks = (int64_t)(i - first),
                                          .first_chunk = chunk + (uint32_t)first};
    }
    if (n > 0) TRY(records_add(b->records, b->portions, (int)n, b->threads));
    if (b->reserve) file_reserve(b->file, (uint64_t)b->frame.tokens * RESERVE_BYTES);
    b->n_ids = b->n_lengths = 0;
    return STATUS_OK;
}

static enum status check_ids(const struct lexical_builder *b, const int32_t *ids, int64_t n) {
    const int64_t vocab = b->frame.vocab_size;
    uint32_t greatest = 0; /* without an early exit, which would keep the loop from being vector code */
    for (int64_t i = 0; i < n; i++)
        greatest = (uint32_t)ids[i] > greatest ? (uint32_t)ids[i] : greatest;
    for (int64_t i = 0; i < n && greatest >= vocab; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return fail(STATUS_INVALID, "%s: token id %d is outside the vocabulary of %lld", b->path, ids[i],
                        (long long)vocab);
    return STATUS_OK;
}

enum status lexical_builder_add_chunks(struct lexical_builder *b, const int32_t *ids, int64_t n, int chunk) {
    assert(n > 0 && chunk > 0);
    const int64_t most = (int64_t)portion_ids(b) * workers_most(b);
    TRY(check_ids(b, ids, n));
    for (int64_t some; n > 0; n -= some, ids += some) {
        if (b->n_ids > 0 && (int64_t)b->n_ids + (n < chunk ? n : chunk) > most) TRY(flush_block(b));
        const int64_t space = most - (int64_t)b->n_ids, fit = space < chunk ? chunk : space / chunk * chunk;
        some = n < fit ? n : fit;
        const int64_t chunks = (some + chunk - 1) / chunk;
        if (b->frame.chunks + chunks > LEXICAL_CHUNKS_MAX)
            return fail(STATUS_INVALID, "%s: a lexical segment has at most %d chunks", b->path, LEXICAL_CHUNKS_MAX);
        TRY(memory_grow(&b->ids, &b->ids_capacity, b->n_ids + (size_t)some));
        TRY(memory_grow(&b->lengths, &b->lengths_capacity, b->n_lengths + (size_t)chunks));
        memcpy(b->ids + b->n_ids, ids, (size_t)some * sizeof *ids);
        for (int64_t i = 0; i < chunks; i++)
            b->lengths[b->n_lengths++] = (int32_t)(some - i * chunk < chunk ? some - i * chunk : chunk);
        b->n_ids += (size_t)some;
        b->frame.chunks += chunks;
        b->frame.tokens += some;
    }
    return STATUS_OK;
}

enum status lexical_builder_add(struct lexical_builder *b, const int32_t *ids, int n) {
    return lexical_builder_add_chunks(b, ids, n, n);
}

/* ---- lists ---- */

/* The threads that sort. Each takes the next bucket. */
struct sorting {
    struct lexical_builder *b;
    struct sorter_config config;
    struct sorter **sorters; /* [n] */
    int n;
    struct lists_piece *pieces; /* [2 * buckets]: of the tokens of each bucket, then of the pairs */
    atomic_int next;
    struct threads_failure failure;
};

static enum status check_stop(const struct lexical_builder *b) {
    progress_step(b->progress, "write lexical index", "keys", 0, -1);
    if (!progress_stop_requested(b->progress)) return STATUS_OK;
    return fail(STATUS_INTERRUPTED, "%s: stopped while the lexical index was written", b->path);
}

static enum status sort_buckets(struct sorting *x, int number) {
    struct sorter_config config = x->config;
    struct sorter *s = NULL;
    config.number = number;
    TRY(sorter_create(&s, &config));
    x->sorters[number] = s;
    for (int i; (i = atomic_fetch_add(&x->next, 1)) < x->b->buckets->n;) {
        struct lists_piece pieces[LISTS_PARTS];
        TRY(sorter_bucket(s, i, pieces));
        for (int part = 0; part < LISTS_PARTS; part++)
            x->pieces[part * x->b->buckets->n + i] = pieces[part];
    }
    return sorter_finish(s);
}

static void sort_buckets_of(void *context, int64_t begin, int64_t end, int worker) {
    struct sorting *x = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        threads_failed(&x->failure, sort_buckets(x, (int)i));
    }
}

static void free_sorters(void *context, int64_t begin, int64_t end, int worker) {
    struct sorting *x = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        sorter_free(x->sorters[i]);
}

static void free_block(struct lexical_builder *b) {
    memory_free(b->ids);
    memory_free(b->lengths);
    memory_free(b->portions);
    b->ids = b->lengths = NULL;
    b->portions = NULL;
    b->ids_capacity = b->lengths_capacity = b->portions_capacity = 0;
}

static enum status sort_and_join(struct sorting *x) {
    struct lexical_builder *b = x->b;
    const int n = b->buckets->n;
    struct lists_writer *writers[WORKERS_MAX];
    TRY(memory_allocate_zero(&x->sorters, (size_t)x->n));
    TRY(memory_allocate_zero(&x->pieces, LISTS_PARTS * (size_t)n));
    threads_for(b->threads, x->n, 1, sort_buckets_of, x);
    TRY(threads_failure(&x->failure));
    records_free(b->records);
    b->records = NULL;
    for (int i = 0; i < x->n; i++)
        writers[i] = sorter_lists(x->sorters[i]);
    const struct join_input input = {.pieces = x->pieces,
                                     .n = LISTS_PARTS * (int64_t)n,
                                     .writers = writers,
                                     .tokens_end = n,
                                     .folder = b->folder,
                                     .buffer = x->config.buffer,
                                     .threads = b->threads,
                                     .progress = b->progress,
                                     .path = b->path};
    return join_write(b->file, &b->frame, &input);
}

static enum status write_lists(struct lexical_builder *b) {
    TRY(flush_block(b));
    TRY(check_stop(b));
    free_block(b);
    TRY(records_finish(b->records, b->threads));
    struct sorting x = {.b = b, .n = workers_most(b), .failure = THREADS_FAILURE_NONE};
    const uint64_t held = records_memory(b->records), each = b->max_ram / (uint64_t)x.n,
                   left = b->max_ram > held ? (b->max_ram - held) / (uint64_t)x.n : 0;
    x.config = (struct sorter_config){.records = b->records,
                                      .buckets = b->buckets,
                                      .folder = b->folder,
                                      .chunks = b->frame.chunks,
                                      .max_ram = left / 4 * 3,
                                      .buffer = each / BUFFERS < BUFFER_MIN   ? BUFFER_MIN
                                                : each / BUFFERS > BUFFER_MAX ? BUFFER_MAX
                                                                              : (size_t)(each / BUFFERS)};
    enum status s = sort_and_join(&x);
    if (x.sorters) threads_for(b->threads, x.n, 1, free_sorters, &x); /* the system frees the pages of their files */
    memory_free(x.sorters);
    memory_free(x.pieces);
    TRY(s);
    uint8_t footer[LEXICAL_FOOTER_BYTES];
    lexical_footer_make(footer, &b->frame);
    return file_write(b->file, footer, sizeof footer);
}

enum status lexical_builder_publish(struct lexical_builder *b, uint64_t *bytes, uint32_t *crc) {
    enum status s = write_lists(b);
    if (s == STATUS_OK) {
        *bytes = file_written(b->file);
        *crc = file_crc32c(b->file);
        s = file_publish(b->file);
        b->file = NULL;
    }
    lexical_builder_discard(b);
    return s;
}
