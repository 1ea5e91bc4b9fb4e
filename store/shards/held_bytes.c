/* held_bytes.c -- see held_bytes_internal.h. */
#include "base/memory.h"
#include "store/shards/held_bytes_internal.h"
#include <pthread.h>

enum { BLOCK_BYTES = 1 << 20, SLAB = 8 /* blocks that are allocated at once, in large pages if the system has them */ };

struct held_pool {
    pthread_mutex_t lock;
    uint8_t **slabs; /* [most / SLAB + 1] */
    uint8_t **free;  /* [most] */
    size_t n_slabs, n_free, made, most;
};

enum status held_pool_create(struct held_pool **out, uint64_t bytes) {
    struct held_pool *p;
    TRY(memory_allocate_zero(&p, 1));
    p->most = (size_t)(bytes / BLOCK_BYTES);
    enum status s = memory_allocate(&p->free, p->most);
    if (s == STATUS_OK) s = memory_allocate(&p->slabs, p->most / SLAB + 1);
    if (s != STATUS_OK) {
        memory_free(p->free);
        memory_free(p);
        return s;
    }
    pthread_mutex_init(&p->lock, NULL);
    *out = p;
    return STATUS_OK;
}

void held_pool_free(struct held_pool *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_slabs; i++)
        memory_free(p->slabs[i]);
    pthread_mutex_destroy(&p->lock);
    memory_free(p->slabs);
    memory_free(p->free);
    memory_free(p);
}

static void pool_grow(struct held_pool *p) {
    const size_t left = p->most - p->made, n = left < SLAB ? left : SLAB;
    uint8_t *slab;
    if (memory_allocate_aligned(&slab, n * BLOCK_BYTES) != STATUS_OK) return;
    p->slabs[p->n_slabs++] = slab;
    for (size_t i = n; i > 0; i--)
        p->free[p->n_free++] = slab + (i - 1) * BLOCK_BYTES;
    p->made += n;
}

/* NULL: all but `kept` are in use. */
static uint8_t *pool_take(struct held_pool *p, size_t kept) {
    uint8_t *block = NULL;
    pthread_mutex_lock(&p->lock);
    if (p->made - p->n_free + kept < p->most) {
        if (p->n_free == 0) pool_grow(p);
        if (p->n_free > 0) block = p->free[--p->n_free];
    }
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
