/* stream_ahead.c -- see stream_ahead.h. */
#include "data/readers/stream_ahead.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 1024 };

struct block {
    uint8_t *data;     /* [STREAM_AHEAD_BLOCK]; NULL: it has none now */
    size_t size;       /* less: the stream ends, or fails, after these bytes */
    uint64_t consumed; /* of the stream, after the block */
};

struct stream_ahead {
    struct stream *stream;
    pthread_t thread;
    bool started;
    size_t used;       /* bytes of the next block that were returned */
    uint64_t consumed; /* after the last block that was returned whole */

    pthread_mutex_t
        lock; /* protects what follows; a block belongs to the thread, or, from head to tail, to the reader */
    pthread_cond_t changed;
    struct block *blocks; /* [n_blocks] */
    int n_blocks;
    int64_t head, tail; /* blocks that were returned, that were made */
    uint8_t **unused;   /* [n_blocks]: memory of blocks that were returned, the last one last */
    int n_unused;
    bool ended, closing;
    enum status status; /* after the last block */
    char message[MESSAGE_MAX];
};

/* Returns false after the end or a failure. */
static bool make_block(struct stream_ahead *a, struct block *b) {
    enum status s = b->data ? STATUS_OK : memory_allocate(&b->data, STREAM_AHEAD_BLOCK);
    if (s == STATUS_OK) s = stream_read(a->stream, b->data, STREAM_AHEAD_BLOCK, &b->size);
    if (s != STATUS_OK) b->size = 0;
    b->consumed = stream_consumed(a->stream);
    const bool last = s != STATUS_OK || b->size < STREAM_AHEAD_BLOCK;
    pthread_mutex_lock(&a->lock);
    a->tail++;
    a->ended = last;
    a->status = s;
    if (s != STATUS_OK) snprintf(a->message, sizeof a->message, "%s", status_message());
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return !last;
}

static void *read_ahead(void *context) {
    struct stream_ahead *a = context;
    for (bool more = true; more;) {
        pthread_mutex_lock(&a->lock);
        while (a->tail - a->head == a->n_blocks && !a->closing)
            pthread_cond_wait(&a->changed, &a->lock);
        more = !a->closing;
        struct block *b = &a->blocks[a->tail % a->n_blocks];
        if (a->n_unused > 0) b->data = a->unused[--a->n_unused];
        pthread_mutex_unlock(&a->lock);
        if (more) more = make_block(a, b);
    }
    return NULL;
}

enum status stream_ahead_start(struct stream_ahead **out, struct stream *s, int blocks) {
    struct stream_ahead *a = NULL;
    TRY(memory_allocate_zero(&a, 1));
    a->stream = s;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    a->n_blocks = blocks;
    enum status status = memory_allocate_zero(&a->blocks, (size_t)blocks);
    if (status == STATUS_OK) status = memory_allocate(&a->unused, (size_t)blocks);
    if (status == STATUS_OK) {
        a->started = threads_start(&a->thread, read_ahead, a);
        if (!a->started) status = fail(STATUS_NO_MEMORY, "cannot start a thread that decompresses");
    }
    if (status != STATUS_OK)
        stream_ahead_free(a);
    else
        *out = a;
    return status;
}

void stream_ahead_free(struct stream_ahead *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->started) pthread_join(a->thread, NULL);
    for (int i = 0; a->blocks && i < a->n_blocks; i++)
        memory_free(a->blocks[i].data);
    while (a->n_unused > 0)
        memory_free(a->unused[--a->n_unused]);
    memory_free(a->blocks);
    memory_free(a->unused);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    memory_free(a);
}

/* Waits for a block. *more false: the end. The bytes of a block before a failure are not returned. */
static enum status wait_block(struct stream_ahead *a, bool *more) {
    pthread_mutex_lock(&a->lock);
    while (a->head == a->tail && !a->ended)
        pthread_cond_wait(&a->changed, &a->lock);
    *more = a->head < a->tail;
    const bool failed = a->ended && a->status != STATUS_OK && a->head + 1 >= a->tail;
    pthread_mutex_unlock(&a->lock);
    return failed ? fail(a->status, "%s", a->message) : STATUS_OK;
}

static void release_block(struct stream_ahead *a) {
    struct block *b = &a->blocks[a->head % a->n_blocks];
    a->consumed = b->consumed;
    a->used = 0;
    pthread_mutex_lock(&a->lock);
    a->unused[a->n_unused++] = b->data; /* used again first: it is still in a cache */
    b->data = NULL;
    a->head++;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

enum status stream_ahead_read(struct stream_ahead *a, void *data, size_t bytes, size_t *got) {
    *got = 0;
    while (*got < bytes) {
        bool more;
        TRY(wait_block(a, &more));
        if (!more) return STATUS_OK;
        struct block *b = &a->blocks[a->head % a->n_blocks];
        const size_t left = b->size - a->used, some = left < bytes - *got ? left : bytes - *got;
        memcpy((uint8_t *)data + *got, b->data + a->used, some);
        *got += some;
        a->used += some;
        if (a->used == b->size) release_block(a);
    }
    return STATUS_OK;
}

uint64_t stream_ahead_consumed(const struct stream_ahead *a) {
    return a->consumed;
}
