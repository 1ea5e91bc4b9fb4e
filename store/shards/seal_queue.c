/* seal_queue.c -- seals the shards of store_shard_end on threads of its own.
 *
 * Sealing a shard waits for the disk seven times. So the threads sync the files of several shards at once. One thread
 * at a time records, in one transaction, all shards from the first on whose files are written, so that the journal has
 * the shards in order, without a gap. The others write files meanwhile. A hash touches a page of the catalog of its
 * own, so a transaction of several shards writes fewer pages than one for each of them. After a failure the queue
 * records no more shards, and the next writer removes the files of those that are not recorded. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "base/system/threads.h"
#include "store/writer_internal.h"
#include <stdio.h>

enum { SEAL_THREADS = 8, MESSAGE_MAX = 1024 };
enum { WAITING_MAX = 32 };       /* shards that are complete and not recorded */
enum { RECORDED_MAX = 1 << 14 }; /* documents of a transaction of several shards: its pages are in memory */

struct seal_queue {
    pthread_mutex_t lock; /* protects all members below, and `complete`, `taken` and `next` of the shards */
    pthread_cond_t changed;
    struct store_shard *first, *last; /* shards that were ended and are not recorded yet */
    int busy;                         /* shards whose files a thread writes */
    int waiting;                      /* shards that are complete and not recorded */
    bool recording;                   /* a thread records shards */
    bool closing;
    enum status status; /* the first failure */
    char message[MESSAGE_MAX];
    pthread_t threads[SEAL_THREADS];
    int n_threads;
};

static enum status seal_queue_failure(const struct seal_queue *q) {
    return q->status == STATUS_OK ? STATUS_OK : fail(q->status, "%s", q->message);
}

/* The caller holds the lock. */
static void seal_queue_fail(struct seal_queue *q, enum status status) {
    if (status == STATUS_OK || q->status != STATUS_OK) return;
    q->status = status;
    snprintf(q->message, sizeof q->message, "%s", status_message());
}

/* Waits for the first shard that is complete and not taken. NULL: the queue ends. The caller holds the lock. */
static struct store_shard *seal_queue_take(struct seal_queue *q) {
    for (;;) {
        if (q->status != STATUS_OK) return NULL;
        for (struct store_shard *s = q->first; s && s->complete; s = s->next) {
            if (s->taken) continue;
            s->taken = true;
            q->busy++;
            return s;
        }
        if (q->closing) return NULL;
        pthread_cond_wait(&q->changed, &q->lock);
    }
}

/* The shards from the first one on whose files are written. The caller holds the lock. */
static int seal_queue_written(const struct seal_queue *q, const struct store_shard *out[WAITING_MAX]) {
    int n = 0;
    size_t documents = 0;
    for (const struct store_shard *s = q->first; s && s->written && n < WAITING_MAX; s = s->next) {
        documents += s->n_documents;
        if (n > 0 && documents > RECORDED_MAX) break;
        out[n++] = s;
    }
    return n;
}

static void seal_queue_remove_first(struct seal_queue *q) {
    struct store_shard *s = q->first;
    q->first = s->next;
    if (!q->first) q->last = NULL;
    q->waiting--;
    shard_free(s);
}

/* Records what is written, unless another thread does. The caller holds the lock. */
static void seal_queue_record(struct seal_queue *q) {
    const struct store_shard *shards[WAITING_MAX];
    int n;
    while (!q->recording && q->status == STATUS_OK && (n = seal_queue_written(q, shards)) > 0) {
        q->recording = true;
        pthread_mutex_unlock(&q->lock);
        enum status status = shards_record(shards, n);
        const bool recorded = status == STATUS_OK;
        for (int i = 0; i < n && status == STATUS_OK; i++)
            status = fault_point("store:seal:committed");
        pthread_mutex_lock(&q->lock);
        q->recording = false;
        seal_queue_fail(q, status);
        for (int i = 0; i < n && recorded; i++)
            seal_queue_remove_first(q);
        pthread_cond_broadcast(&q->changed);
    }
}

static void *seal_queue_body(void *context) {
    struct seal_queue *q = context;
    struct store_shard *s;
    pthread_mutex_lock(&q->lock);
    while ((s = seal_queue_take(q))) {
        pthread_mutex_unlock(&q->lock);
        const enum status status = shard_write_files(s);
        pthread_mutex_lock(&q->lock);
        q->busy--;
        s->written = status == STATUS_OK;
        seal_queue_fail(q, status);
        pthread_cond_broadcast(&q->changed);
        seal_queue_record(q);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static enum status seal_queue_create(struct seal_queue **out) {
    struct seal_queue *q;
    TRY(memory_allocate_zero(&q, 1));
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    while (q->n_threads < SEAL_THREADS && threads_start(&q->threads[q->n_threads], seal_queue_body, q))
        q->n_threads++;
    if (q->n_threads == 0) {
        seal_queue_free(q);
        return fail(STATUS_NO_MEMORY, "cannot start a thread that seals shards");
    }
    *out = q;
    return STATUS_OK;
}

enum status seal_queue_add(struct store_writer *w, struct store_shard *s) {
    if (!w->queue) TRY(seal_queue_create(&w->queue));
    struct seal_queue *q = w->queue;
    pthread_mutex_lock(&q->lock);
    const enum status status = seal_queue_failure(q);
    if (status == STATUS_OK) {
        if (q->last)
            q->last->next = s;
        else
            q->first = s;
        q->last = s;
    }
    pthread_mutex_unlock(&q->lock);
    return status;
}

enum status store_shard_complete(struct store_shard *s) {
    struct seal_queue *q = s->writer->queue;
    pthread_mutex_lock(&q->lock);
    s->complete = true;
    q->waiting++;
    pthread_cond_broadcast(&q->changed);
    while ((q->busy >= q->n_threads || q->waiting >= WAITING_MAX) && q->status == STATUS_OK)
        pthread_cond_wait(&q->changed, &q->lock);
    const enum status status = seal_queue_failure(q);
    pthread_mutex_unlock(&q->lock);
    return status;
}

bool seal_queue_has(struct seal_queue *q, const uint8_t hash[16]) {
    bool found = false;
    if (!q) return false;
    pthread_mutex_lock(&q->lock);
    for (const struct store_shard *s = q->first; s && !found; s = s->next)
        found = shard_has(s, hash);
    pthread_mutex_unlock(&q->lock);
    return found;
}

enum status seal_queue_wait(struct seal_queue *q) {
    if (!q) return STATUS_OK;
    pthread_mutex_lock(&q->lock);
    while ((q->first && q->status == STATUS_OK) || q->busy > 0 || q->recording)
        pthread_cond_wait(&q->changed, &q->lock);
    const enum status status = seal_queue_failure(q);
    pthread_mutex_unlock(&q->lock);
    return status;
}

void seal_queue_free(struct seal_queue *q) {
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->closing = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < q->n_threads; i++)
        pthread_join(q->threads[i], NULL);
    for (struct store_shard *s = q->first, *next; s; s = next) {
        next = s->next;
        shard_free(s);
    }
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    memory_free(q);
}
