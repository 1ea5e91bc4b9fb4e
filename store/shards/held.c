/* held.c -- see held_internal.h. */
#include "base/memory.h"
#include "store/shards/held_internal.h"
#include <pthread.h>

enum { BLOCK_BYTES = 1 << 20 };

struct held_pool {
    pthread_mutex_t lock;
    uint8_t **free; /* [most] */
    size_t n_free, made, most;
};

enum status held_pool_create(struct held_pool **out, uint64_t bytes) {
    struct held_pool *p;
    TRY(memory_allocate_zero(&p, 1));
    p->most = (size_t)(bytes / BLOCK_BYTES);
    const enum status s = memory_allocate(&p->free, p->most);
    if (s != STATUS_OK) {
        memory_free(p);
        return s;
    }
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return STATUS_OK;
}

void held_pool_free(struct held_pool *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_free; i++)
        memory_free(p->free[i]);
    pthread_mutex_destroy(&p->lock);
    memory_free(p->free);
    memory_free(p);
}

/* NULL: all but `kept` are in use. */
static uint8_t *pool_take(struct held_pool *p, size_t kept) {
    uint8_t *block = NULL;
    pthread_mutex_lock(&p->lock);
    if (p->made - p->n_free + kept >= p->most)
        block = NULL;
    else if (p->n_free > 0)
        block = p->free[--p->n_free];
    else if (memory_allocate(&block, BLOCK_BYTES) == STATUS_OK)
        p->made++;
    pthread_mutex_unlock(&p->lock);
    return block;
}

static void pool_return(struct held_pool *p, uint8_t *block) {
    pthread_mutex_lock(&p->lock);
    p->free[p->n_free++] = block;
    pthread_mutex_unlock(&p->lock);
}

size_t held_space(struct held *h, uint8_t **at) {
    if (h->n == 0 || h->used == BLOCK_BYTES) {
        if (!h->pool || memory_grow(&h->blocks, &h->capacity, h->n + 1) != STATUS_OK) return 0;
        uint8_t *block = pool_take(h->pool, h->share > 0 ? h->pool->most - h->pool->most / h->share : 0);
        if (!block) return 0;
        h->blocks[h->n++] = block;
        h->used = 0;
    }
    *at = h->blocks[h->n - 1] + h->used;
    return BLOCK_BYTES - h->used;
}

enum status held_write(struct held *h, struct file_writer *file) {
    enum status s = STATUS_OK;
    for (size_t i = 0; i < h->n; i++) {
        if (s == STATUS_OK) s = file_write(file, h->blocks[i], i + 1 < h->n ? BLOCK_BYTES : h->used);
        pool_return(h->pool, h->blocks[i]);
    }
    h->n = 0;
    return s;
}

void held_free(struct held *h) {
    for (size_t i = 0; i < h->n; i++)
        pool_return(h->pool, h->blocks[i]);
    memory_free(h->blocks);
    h->blocks = NULL;
    h->n = h->capacity = 0;
}
