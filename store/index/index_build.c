/* index_build.c -- see index_build_internal.h. */
#include "base/memory.h"
#include "base/rng.h"
#include "store/index/index_build_internal.h"
#include "store/index/segment_check_internal.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK_ROWS = 1024, BLOCK_FLOATS = 1 << 21, SAMPLE_STREAM = 0x5a17, RELEASE_ROWS = 1 << 15, SAMPLE_GRAIN = 256 };

enum status stored_file_of(struct stored_file *out, const char *path) {
    TRY(file_size(&out->bytes, path));
    return file_checksum(&out->crc, path);
}

enum status index_build_check_stop(const struct index_build *b) {
    if (!progress_stop_requested(b->how->progress)) return STATUS_OK;
    return fail(STATUS_INTERRUPTED, "%s: stopped while the index was made; %s", b->dir, b->stopped);
}

int64_t index_build_live(const struct index_build *b) {
    return store_dropped_rank(landmarks_dropped(b->landmarks), b->landmarks->chunks);
}

/* ---- the template ---- */

/* Trains the codes by FAISS, and also the centroids if no clustering made them. FAISS reports no progress and
 * cannot be stopped. */
static enum status train_rest(const struct index_build *b, struct vectors *v, const struct index_plan *plan,
                              const float *rows, int64_t n) {
    struct progress_clock *clock;
    char detail[120];
    snprintf(detail, sizeof detail, "%.60s by FAISS, from %lld vectors", plan->factory, (long long)n);
    progress_clock_start(&clock, b->how->progress, "train index codes", detail);
    enum status s = vectors_train(v, rows, n, threads_count(b->how->threads));
    progress_clock_stop(clock);
    return s;
}

struct sampling {
    const struct landmarks *landmarks;
    const int64_t *chunk;
    float *rows;
};

static void sample_range(void *context, int64_t begin, int64_t end, int worker) {
    const struct sampling *s = context;
    const int64_t dim = s->landmarks->dim;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const struct store_rows row = landmarks_rows(s->landmarks, s->chunk[i]);
        store_rows_to_float(s->rows + i * dim, &row, 0, 1);
    }
}

/* Reads the rows of n ascending chunks, a range of RELEASE_ROWS chunks of the store after the other. */
static enum status read_sample(const struct index_build *b, float *rows, const int64_t *chunk, int64_t n) {
    for (int64_t at = 0, some; at < n; at += some) {
        for (some = 1; at + some < n && chunk[at + some] - chunk[at] < RELEASE_ROWS;)
            some++;
        TRY(landmarks_map_some(b->landmarks, &some, chunk + at, some));
        struct sampling s = {b->landmarks, chunk + at, rows + at * b->landmarks->dim};
        threads_for(b->how->threads, some, SAMPLE_GRAIN, sample_range, &s);
        /* Mapped pages are resident memory, too, and max_ram limits it. */
        if (at + some < n) landmarks_release_pages(b->landmarks, chunk[at], chunk[at + some - 1] + 1 - chunk[at]);
    }
    return STATUS_OK;
}

/* Samples one row from each of n equal ranges of the whole store into the first n of `all` rows. The ids ascend. The
 * same seed gives the same ids. */
static enum status sample_rows(const struct index_build *b, float *rows, int64_t n, int64_t all) {
    int64_t chunks = index_build_live(b), *chunk;
    size_t dim = (size_t)b->landmarks->dim;
    struct store_dropped dropped = landmarks_dropped(b->landmarks);
    struct rng rng = rng_make(b->how->seed, SAMPLE_STREAM);
    TRY(memory_allocate(&chunk, (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        int64_t low = (int64_t)((__int128)chunks * i / n), high = (int64_t)((__int128)chunks * (i + 1) / n);
        chunk[i] = store_dropped_nth(dropped, low + (int64_t)rng_below(&rng, (uint64_t)(high - low)));
    }
    const enum status s = read_sample(b, rows, chunk, n);
    memory_free(chunk);
    TRY(s);
    /* With few rows FAISS prints a warning on stderr, where a library must not write. So the rows are repeated. */
    for (int64_t i = n; i < all; i++)
        memcpy(rows + (size_t)i * dim, rows + (size_t)(i - n) * dim, dim * sizeof *rows);
    return STATUS_OK;
}

enum status index_build_train(const struct index_build *b, struct vectors *v, const struct index_plan *plan) {
    int64_t chunks = index_build_live(b), n = plan->sample < chunks ? plan->sample : chunks;
    int64_t all = n < plan->quiet_sample ? plan->quiet_least : plan->quiet_sample;
    if (all < n) all = n; /* the plan counts the rows of dropped shards, too */
    float *rows;
    TRY(memory_allocate_aligned(&rows, (size_t)all * (size_t)b->landmarks->dim));
    enum status s = sample_rows(b, rows, n, all);
    if (s == STATUS_OK && b->how->clustering.fit)
        s = vectors_give_centroids(v, &b->how->clustering, rows, n, all, b->how->threads, b->how->progress);
    if (s == STATUS_INTERRUPTED && progress_stop_requested(b->how->progress)) s = index_build_check_stop(b);
    if (s == STATUS_NO_MEMORY)
        progress_note(b->how->progress, "%s: centroids are left to FAISS: %s", b->dir, status_message());
    if (s == STATUS_NO_MEMORY || s == STATUS_UNSUPPORTED) s = STATUS_OK;
    if (s == STATUS_OK) s = train_rest(b, v, plan, rows, all);
    memory_free(rows);
    return s;
}

enum status index_build_open_template(struct vectors **out, const char *path, struct stored_file recorded, int dim,
                                      const char *remedy) {
    TRY(stored_file_check(path, recorded, remedy));
    uint32_t crc = 0;
    TRY(file_checksum(&crc, path));
    if (crc != recorded.crc) return fail(STATUS_CORRUPT, "%s: the index template is damaged, %s", path, remedy);
    TRY(segment_check_file(path, &(struct segment_shape){.dim = dim}, false, NULL));
    return vectors_open(out, path, dim, 0, 0, false);
}

/* ---- filling ---- */

int64_t index_build_block(int dim) {
    int64_t rows = BLOCK_FLOATS / dim;
    return rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
}

enum status index_build_fill(const struct index_build *b, struct vectors *v, int64_t begin, int64_t end,
                             int64_t total) {
    /* with fewer calls FAISS's threads wait less for each other */
    const int64_t most = BLOCK_FLOATS / b->landmarks->dim;
    const int64_t block = vectors_adds_apart(v) ? most : index_build_block(b->landmarks->dim);
    float *rows;
    TRY(memory_allocate_aligned(&rows, (size_t)block * (size_t)b->landmarks->dim));
    enum status s = STATUS_OK;
    for (int64_t at = begin, n, released = begin; at < end && s == STATUS_OK; at += n) {
        n = (at / block + 1) * block - at;
        if (n > end - at) n = end - at;
        s = landmarks_to_float(rows, b->landmarks, at, n);
        if (s == STATUS_OK) s = vectors_add(v, rows, n, at, threads_count(b->how->threads));
        if (s == STATUS_OK) s = index_build_check_stop(b);
        if (at + n - released < most && at + n < end) continue;
        landmarks_release_pages(b->landmarks, released, at + n - released);
        released = at + n;
        progress_step(b->how->progress, "fill index", "chunks", at + n, total);
    }
    memory_free(rows);
    return s;
}
