/* seal_queue.c -- seals the shards of store_shard_end on threads of its own.
 *
 * Sealing a shard waits for the disk seven times. So the threads sync the files of several shards at once. Each thread
 * waits for its turn before it records its shard, so that the journal has the shards in order, without a gap. After a
 * failure the queue records no more shards, and the next writer removes the files of those that are not recorded. */
#include "base/memory.h"
#include "base/system/fault.h"
#include "base/system/threads.h"
#include "store/writer_internal.h"
#include <stdio.h>

enum { SEAL_THREADS = 8, MESSAGE_MAX = 1024 };

struct seal_queue {
    pthread_mutex_t lock; /* protects all members below, and `complete`, `taken` and `next` of the shards */
    pthread_cond_t changed;
    struct store_shard *first, *last; /* shards that were ended and are not recorded yet */
    int busy;                         /* shards that a thread is sealing */
    bool closing;
    enum status status; /* the first failure */
    char message[MESSAGE_MAX];
    pthread_t threads[SEAL_THREADS];
    int n_threads;
};

/* The context of seal_queue_turn, with which a thread waits until its shard is the first. */
struct seal_turn {
    struct seal_queue *queue;
    struct store_shard *shard;
};

static enum status seal_queue_failure(const struct seal_queue *q) {
    return q->status == STATUS_OK ? STATUS_OK : fail(q->status, "%s", q->message);
}

static enum status seal_queue_turn(void *context) {
    struct seal_turn *t = context;
    struct seal_queue *q = t->queue;
    pthread_mutex_lock(&q->lock);
    while (q->first != t->shard && q->status == STATUS_OK)
        pthread_cond_wait(&q->changed, &q->lock);
    const enum status status = seal_queue_failure(q);
    pthread_mutex_unlock(&q->lock);
    return status;
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

static void *seal_queue_body(void *context) {
    struct seal_queue *q = context;
    struct store_shard *s;
    pthread_mutex_lock(&q->lock);
    while ((s = seal_queue_take(q))) {
        struct seal_turn turn = {q, s};
        pthread_mutex_unlock(&q->lock);
        enum status status = shard_seal(s, seal_queue_turn, &turn);
        const bool recorded = status == STATUS_OK;
        if (recorded) status = fault_point("store:seal:committed");
        pthread_mutex_lock(&q->lock);
        q->busy--;
        if (status != STATUS_OK && q->status == STATUS_OK) {
            q->status = status;
            snprintf(q->message, sizeof q->message, "%s", status_message());
        }
        if (recorded) { /* shard_seal waited until this shard was the first */
            q->first = s->next;
            if (!q->first) q->last = NULL;
            shard_free(s);
        }
        pthread_cond_broadcast(&q->changed);
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
    pthread_cond_broadcast(&q->changed);
    while (q->busy >= q->n_threads && q->status == STATUS_OK)
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
    while ((q->first && q->status == STATUS_OK) || q->busy > 0)
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
