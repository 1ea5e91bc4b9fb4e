/* lexical_follow.c -- see lexical_follow_internal.h. */
#include "base/memory.h"
#include "base/system/threads.h"
#include "store/lexical/lexical_build.h"
#include "store/lexical/lexical_follow_internal.h"
#include <stdio.h>

enum { MESSAGE_MAX = 1024 };

struct lexical_follower {
    struct store_writer *w;
    struct threads *threads;
    struct lexical_builder *builder;
    struct lexical_segment_record segment;
    struct run_record *runs; /* of the current shard */
    size_t runs_capacity;
    int64_t n_runs;
    int32_t *ids; /* of one chunk */
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    int64_t sealed, taken; /* shards */
    bool closing;
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

static enum status add_shard(struct lexical_follower *f, int64_t number) {
    struct catalog_txn *t;
    struct shard_record shard;
    struct shard_map map = {0};
    TRY(catalog_begin(&t, f->w->catalog, false));
    enum status s = read_runs(f, t, &shard, number);
    catalog_abort(t);
    TRY(s);
    if (lexical_builder_chunks(f->builder) + shard.chunks > LEXICAL_CHUNKS_MAX)
        return fail(STATUS_UNSUPPORTED, "more chunks than a lexical segment has");
    TRY(shard_open(&map, f->w->dir, SHARD_TOKENS, &shard, &f->w->fingerprint));
    s = add_tokens(f, &shard, &map);
    shard_close(&map);
    return s;
}

static void *lexical_follow_run(void *context) {
    struct lexical_follower *f = context;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->taken == f->sealed && !f->closing)
            pthread_cond_wait(&f->changed, &f->lock);
        if (f->closing) break;
        const int64_t number = f->taken;
        pthread_mutex_unlock(&f->lock);
        const enum status s = add_shard(f, number);
        pthread_mutex_lock(&f->lock);
        f->taken++;
        if (s != STATUS_OK) {
            f->status = s;
            snprintf(f->message, sizeof f->message, "%s", status_message());
        }
        pthread_cond_broadcast(&f->changed);
        if (s != STATUS_OK) break;
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static enum status create_builder(struct lexical_follower *f, int64_t number, uint64_t max_ram) {
    char path[FILE_PATH_MAX];
    const struct store_fingerprint *fingerprint = &f->w->fingerprint;
    const struct lexical_build how = {
        .vocab_size = fingerprint->vocab_size, .max_ram = max_ram, .reserve = true, .threads = f->threads};
    f->segment.number = number;
    TRY(memory_allocate(&f->ids, (size_t)fingerprint->chunk_tokens));
    TRY(lexical_path(path, f->w->dir, number));
    TRY(lexical_builder_create(&f->builder, path, &how));
    f->started = threads_start(&f->thread, lexical_follow_run, f);
    return f->started ? STATUS_OK : fail(STATUS_NO_MEMORY, "cannot start a thread that makes the lexical index");
}

enum status lexical_follower_create(struct lexical_follower **out, struct store_writer *w, uint64_t max_ram,
                                    int threads) {
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
    f->sealed = w->sealed.shards;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    s = threads_create(&f->threads, threads);
    if (s == STATUS_OK) s = create_builder(f, number, max_ram);
    if (s != STATUS_OK)
        lexical_follower_free(f);
    else
        *out = f;
    return s;
}

void lexical_follower_sealed(struct lexical_follower *f) {
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->sealed++;
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

enum status lexical_follower_finish(struct lexical_follower *f, struct lexical_segment_record *out, bool *done,
                                    const struct store_publish *how) {
    *done = false;
    pthread_mutex_lock(&f->lock);
    while (f->taken < f->sealed && f->status == STATUS_OK)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    stop_thread(f);
    if (f->status == STATUS_CORRUPT || f->status == STATUS_UNSUPPORTED) return STATUS_OK;
    if (f->status != STATUS_OK) return fail(f->status, "%s", f->message);
    *out = f->segment;
    out->chunks = lexical_builder_chunks(f->builder);
    if (out->chunks == 0) return STATUS_OK;
    struct lexical_builder *b = f->builder;
    f->builder = NULL; /* lexical_builder_publish frees it */
    lexical_builder_continue(b, how->threads, how->progress);
    TRY(lexical_builder_publish(b, &out->file.bytes, &out->file.crc));
    *done = true;
    return STATUS_OK;
}

void lexical_follower_free(struct lexical_follower *f) {
    if (!f) return;
    stop_thread(f);
    lexical_builder_discard(f->builder);
    threads_free(f->threads);
    memory_free(f->runs);
    memory_free(f->ids);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    memory_free(f);
}
