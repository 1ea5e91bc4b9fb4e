/* lexical_follow.c -- see lexical_follow_internal.h. */
#include "base/memory.h"
#include "base/system/threads.h"
#include "store/lexical/lexical_build.h"
#include "store/lexical/lexical_follow_internal.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_MAX = 1024, BLOCK_IDS = 1 << 19, BLOCK_PIECES = BLOCK_IDS / 8, POLL_NANOSECONDS = 50000000 };
/* So many that the caller fills others while the builder divides its own into buckets. */
enum { BLOCKS = 8 };
enum { YIELDING = 5 /* steps of `nice` */ };

/* Documents in order. One that does not fit is in pieces of whole chunks. */
struct follow_block {
    int32_t *ids;    /* [BLOCK_IDS] */
    int32_t *pieces; /* [BLOCK_PIECES]: their numbers of ids */
    size_t n_ids, n_pieces;
};
struct lexical_follower {
    struct store_writer *w;
    struct threads *threads;
    struct lexical_builder *builder;
    struct lexical_segment_record segment;
    struct progress progress; /* of the builder */
    struct run_record *runs;  /* of the current shard */
    size_t runs_capacity;
    int64_t n_runs, recorded; /* shards that were recorded before */
    int32_t *ids;             /* of one chunk */
    pthread_t thread;
    int n_threads;
    bool yielding;
    bool started, written; /* written: the file is there, and lexical_follower_finish did not return it */
    struct follow_block blocks[BLOCKS];

    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    int64_t filled, taken; /* blocks: given to the thread, added by it; the caller fills block filled % BLOCKS */
    bool ended, closing;
    bool made;          /* the thread has ended */
    int64_t keys;       /* that are written, for progress */
    enum status status; /* the first failure */
    char message[MESSAGE_MAX];
};

/* The transaction ends before the tokens are read, because the catalog may have to grow meanwhile. */
static enum status read_runs(struct lexical_follower *f, struct catalog_txn *t, struct shard_record *shard,
                             int64_t number) {
    struct catalog *c = f->w->catalog;
    TRY(record_get_shard(t, c, shard, number));
    f->n_runs = 0;
    for (int64_t chunk = shard->first_chunk; chunk < shard->first_chunk + shard->chunks;) {
        int64_t first;
        TRY(memory_grow(&f->runs, &f->runs_capacity, (size_t)f->n_runs + 1));
        struct run_record *run = &f->runs[f->n_runs++];
        TRY(record_find_run(t, c, &first, run, chunk));
        if (first != chunk || run->shard != number || run->chunks < 1)
            return fail(STATUS_CORRUPT, "%s: the runs of shard %lld are damaged, run drt-index repair", catalog_path(c),
                        (long long)number);
        chunk += run->chunks;
    }
    return STATUS_OK;
}

static enum status add_tokens(struct lexical_follower *f, const struct shard_record *shard,
                              const struct shard_map *map) {
    for (int64_t i = 0; i < f->n_runs; i++)
        for (int64_t j = 0; j < f->runs[i].chunks; j++)
            TRY(lexical_add_chunk(f->builder, f->w, &(struct lexical_chunk){shard, map, &f->runs[i], j}, f->ids));
    return STATUS_OK;
}

static enum status check_chunks(const struct lexical_follower *f, int64_t more) {
    if (lexical_builder_chunks(f->builder) + more <= LEXICAL_CHUNKS_MAX) return STATUS_OK;
    return fail(STATUS_UNSUPPORTED, "more chunks than a lexical segment has");
}

static enum status add_shard(struct lexical_follower *f, int64_t number) {
    struct catalog_txn *t;
    struct shard_record shard;
    struct shard_map map = {0};
    TRY(catalog_begin(&t, f->w->catalog, false));
    enum status s = read_runs(f, t, &shard, number);
    catalog_abort(t);
    TRY(s);
    TRY(check_chunks(f, shard.chunks));
    TRY(shard_open(&map, f->w->dir, SHARD_TOKENS, &shard, &f->w->fingerprint));
    s = add_tokens(f, &shard, &map);
    shard_close(&map);
    return s;
}

static enum status add_block(struct lexical_follower *f, const struct follow_block *b) {
    const int chunk_tokens = f->w->fingerprint.chunk_tokens;
    const int32_t *ids = b->ids;
    for (size_t i = 0; i < b->n_pieces; i++) {
        const int64_t chunks = (b->pieces[i] + chunk_tokens - 1) / chunk_tokens;
        TRY(check_chunks(f, chunks));
        TRY(lexical_builder_add_chunks(f->builder, ids, b->pieces[i], chunk_tokens));
        ids += b->pieces[i];
    }
    return STATUS_OK;
}

static bool is_closing(void *context) {
    struct lexical_follower *f = context;
    pthread_mutex_lock(&f->lock);
    const bool closing = f->closing;
    pthread_mutex_unlock(&f->lock);
    return closing;
}

static void note_keys(void *context, const struct progress_event *event) {
    struct lexical_follower *f = context;
    pthread_mutex_lock(&f->lock);
    f->keys = event->done;
    pthread_mutex_unlock(&f->lock);
}

/* Waits for a block. Returns NULL after the last one, or when the follower is freed. */
static const struct follow_block *lexical_follow_take(struct lexical_follower *f) {
    pthread_mutex_lock(&f->lock);
    while (f->taken == f->filled && !f->ended && !f->closing)
        pthread_cond_wait(&f->changed, &f->lock);
    const struct follow_block *b = f->taken < f->filled && !f->closing ? &f->blocks[f->taken % BLOCKS] : NULL;
    pthread_mutex_unlock(&f->lock);
    return b;
}

static enum status lexical_follow_all(struct lexical_follower *f) {
    for (int64_t number = 0; number < f->recorded && !is_closing(f); number++)
        TRY(add_shard(f, number));
    for (const struct follow_block *b; (b = lexical_follow_take(f));) {
        TRY(add_block(f, b));
        pthread_mutex_lock(&f->lock);
        f->taken++;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
    }
    f->segment.chunks = lexical_builder_chunks(f->builder);
    if (is_closing(f) || f->segment.chunks == 0) return STATUS_OK;
    struct lexical_builder *b = f->builder;
    f->builder = NULL; /* lexical_builder_publish frees it */
    TRY(lexical_builder_publish(b, &f->segment.file.bytes, &f->segment.file.crc));
    f->written = true;
    return STATUS_OK;
}

/* The calling thread gets a third of the time of others that compete with it for a processor. */
static void lexical_follow_yield(void) {
#if defined(__linux__)
    const id_t thread = (id_t)gettid();
    (void)setpriority(PRIO_PROCESS, thread, getpriority(PRIO_PROCESS, thread) + YIELDING);
#endif
}

static void *lexical_follow_run(void *context) {
    struct lexical_follower *f = context;
    if (f->yielding) lexical_follow_yield();
    const enum status s = lexical_follow_all(f);
    pthread_mutex_lock(&f->lock);
    f->made = true;
    if (s != STATUS_OK && f->status == STATUS_OK) {
        f->status = s;
        snprintf(f->message, sizeof f->message, "%s", status_message());
    }
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* On Linux a thread has a priority of its own, which the threads that it starts inherit. */
static void *make_threads(void *context) {
    struct lexical_follower *f = context;
    if (f->yielding) lexical_follow_yield();
    f->status = threads_create(&f->threads, f->n_threads);
    return NULL;
}

static enum status create_threads(struct lexical_follower *f) {
    pthread_t thread;
    if (threads_start(&thread, make_threads, f)) {
        pthread_join(thread, NULL);
        if (f->status == STATUS_OK) return STATUS_OK;
    }
    return fail(STATUS_NO_MEMORY, "cannot start %d threads that make the lexical index", f->n_threads);
}

static enum status create_builder(struct lexical_follower *f, int64_t number, uint64_t max_ram) {
    char path[FILE_PATH_MAX];
    const struct store_fingerprint *fingerprint = &f->w->fingerprint;
    const struct lexical_build how = {.vocab_size = fingerprint->vocab_size,
                                      .max_ram = max_ram,
                                      .progress = &f->progress,
                                      .reserve = true,
                                      .threads = f->threads};
    f->segment.number = number;
    for (int i = 0; i < BLOCKS; i++) {
        TRY(memory_allocate(&f->blocks[i].ids, BLOCK_IDS));
        TRY(memory_allocate(&f->blocks[i].pieces, BLOCK_PIECES));
    }
    TRY(memory_allocate(&f->ids, (size_t)fingerprint->chunk_tokens));
    TRY(lexical_path(path, f->w->dir, number));
    TRY(lexical_builder_create(&f->builder, path, &how));
    f->started = threads_start(&f->thread, lexical_follow_run, f);
    return f->started ? STATUS_OK : fail(STATUS_NO_MEMORY, "cannot start a thread that makes the lexical index");
}

enum status lexical_follower_create(struct lexical_follower **out, struct store_writer *w, uint64_t max_ram,
                                    int threads, bool yielding) {
    struct lexical_follower *f;
    struct lexical_record record;
    struct catalog_txn *t;
    *out = NULL;
    if (w->published.number > 0 || w->fingerprint.vocab_size > LEXICAL_VOCAB_MAX) return STATUS_OK;
    TRY(catalog_begin(&t, w->catalog, false));
    enum status s = record_get_lexical(t, w->catalog, &record);
    catalog_abort(t);
    TRY(s);
    const int64_t number = record.next_number;
    lexical_record_free(&record);
    TRY(memory_allocate_zero(&f, 1));
    f->w = w;
    f->recorded = w->sealed.shards;
    f->progress = (struct progress){.report = note_keys, .stop_requested = is_closing, .context = f};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->yielding = yielding;
    f->n_threads = threads;
    s = create_threads(f);
    if (s == STATUS_OK) s = create_builder(f, number, max_ram);
    if (s != STATUS_OK)
        lexical_follower_free(f);
    else
        *out = f;
    return s;
}

/* Gives the block to the thread. The next block is free afterwards, unless the thread has failed. */
static void lexical_follow_give(struct lexical_follower *f) {
    pthread_mutex_lock(&f->lock);
    f->filled++;
    pthread_cond_broadcast(&f->changed);
    while (f->filled - f->taken >= BLOCKS && !f->made)
        pthread_cond_wait(&f->changed, &f->lock);
    struct follow_block *next = &f->blocks[f->filled % BLOCKS];
    next->n_ids = next->n_pieces = 0;
    pthread_mutex_unlock(&f->lock);
}

void lexical_follower_add(struct lexical_follower *f, const int32_t *ids, size_t n) {
    while (f && n > 0) {
        struct follow_block *b = &f->blocks[f->filled % BLOCKS];
        const size_t chunk = (size_t)f->w->fingerprint.chunk_tokens, space = BLOCK_IDS - b->n_ids,
                     some = n <= space ? n : space / chunk * chunk;
        if (some == 0 || b->n_pieces == BLOCK_PIECES) {
            lexical_follow_give(f);
            continue;
        }
        memcpy(b->ids + b->n_ids, ids, some * sizeof *ids);
        b->pieces[b->n_pieces++] = (int32_t)some;
        b->n_ids += some;
        ids += some;
        n -= some;
    }
}

void lexical_follower_end(struct lexical_follower *f) {
    if (!f || f->ended) return;
    lexical_follow_give(f);
    pthread_mutex_lock(&f->lock);
    f->ended = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void stop_thread(struct lexical_follower *f) {
    if (!f->started) return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    f->started = false;
}

/* Waits until the thread ends, which a request to stop makes it do early. */
static enum status lexical_follow_wait(struct lexical_follower *f, const struct progress *progress) {
    bool stopped = false;
    pthread_mutex_lock(&f->lock);
    while (!f->made) {
        const int64_t keys = f->keys;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += POLL_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_unlock(&f->lock);
        progress_step(progress, "write lexical index", "keys", keys, -1);
        stopped = stopped || progress_stop_requested(progress);
        pthread_mutex_lock(&f->lock);
        f->closing = f->closing || stopped;
        pthread_cond_broadcast(&f->changed);
        if (!f->made) pthread_cond_timedwait(&f->changed, &f->lock, &until);
    }
    pthread_mutex_unlock(&f->lock);
    if (!stopped) return STATUS_OK;
    return fail(STATUS_INTERRUPTED, "%s: stopped while the lexical index was written", f->w->dir);
}

enum status lexical_follower_finish(struct lexical_follower *f, struct lexical_segment_record *out, bool *done,
                                    const struct progress *progress) {
    *done = false;
    lexical_follower_end(f);
    TRY(lexical_follow_wait(f, progress));
    if (f->status == STATUS_CORRUPT || f->status == STATUS_UNSUPPORTED) return STATUS_OK;
    if (f->status != STATUS_OK) return fail(f->status, "%s", f->message);
    *out = f->segment;
    *done = out->chunks > 0;
    f->written = false;
    return STATUS_OK;
}

/* Removes a file that nothing will name; otherwise the next writer would. */
static void remove_file(const struct lexical_follower *f) {
    char path[FILE_PATH_MAX];
    if (f->written && lexical_path(path, f->w->dir, f->segment.number) == STATUS_OK) (void)file_remove(path);
}

void lexical_follower_free(struct lexical_follower *f) {
    if (!f) return;
    stop_thread(f);
    remove_file(f);
    lexical_builder_discard(f->builder);
    threads_free(f->threads);
    for (int i = 0; i < BLOCKS; i++) {
        memory_free(f->blocks[i].ids);
        memory_free(f->blocks[i].pieces);
    }
    memory_free(f->runs);
    memory_free(f->ids);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    memory_free(f);
}
