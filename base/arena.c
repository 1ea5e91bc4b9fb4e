/* arena.c -- a list of blocks, each filled from its beginning. A reset returns to an earlier (block, used) pair. */
#include "base/arena.h"
#include "base/memory.h"
#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { ALIGNMENT = 64, BLOCKS_MAX = 64, FIRST_BLOCK_MIN = 4096 };

struct block {
    unsigned char *data;
    size_t bytes, used;
};

struct arena {
    struct block blocks[BLOCKS_MAX];
    size_t count, current;
};

static enum status add_block(struct arena *a, size_t at, size_t bytes) {
    if (a->count == BLOCKS_MAX) return fail(STATUS_NO_MEMORY, "arena: more than %d blocks", BLOCKS_MAX);
    void *data = NULL;
    TRY(memory_allocate_aligned_bytes(&data, bytes, 1));
    memmove(a->blocks + at + 1, a->blocks + at, (a->count - at) * sizeof a->blocks[0]);
    a->blocks[at] = (struct block){data, bytes, 0};
    a->count++;
    POISON(data, bytes);
    return STATUS_OK;
}

enum status arena_create(struct arena **out, size_t first_block_bytes) {
    struct arena *a;
    TRY(memory_allocate_zero(&a, 1));
    enum status s = add_block(a, 0, first_block_bytes < FIRST_BLOCK_MIN ? FIRST_BLOCK_MIN : first_block_bytes);
    if (s != STATUS_OK) {
        memory_free(a);
        return s;
    }
    *out = a;
    return STATUS_OK;
}

void arena_free(struct arena *a) {
    if (!a) return;
    for (size_t i = 0; i < a->count; i++) {
        UNPOISON(a->blocks[i].data, a->blocks[i].bytes);
        memory_free(a->blocks[i].data);
    }
    memory_free(a);
}

enum status arena_push_bytes(struct arena *a, void **out, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / 4 / size)
        return fail(STATUS_NO_MEMORY, "arena: %zu items of %zu bytes", count, size);
    size_t bytes = (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *b = &a->blocks[a->current];
    if (b->bytes - b->used < bytes) {
        size_t next = a->current + 1;
        if (next == a->count || a->blocks[next].bytes < bytes) {
            size_t wanted = a->blocks[a->count - 1].bytes * 2;
            TRY(add_block(a, next, wanted < bytes ? bytes : wanted));
        }
        a->current = next;
        b = &a->blocks[next];
    }
    unsigned char *p = b->data + b->used;
    UNPOISON(p, count * size);
    b->used += bytes;
    *out = p;
    return STATUS_OK;
}

enum status arena_push_zero_bytes(struct arena *a, void **out, size_t count, size_t size) {
    TRY(arena_push_bytes(a, out, count, size));
    memset(*out, 0, count * size);
    return STATUS_OK;
}

struct arena_mark arena_mark(const struct arena *a) {
    return (struct arena_mark){a->current, a->blocks[a->current].used};
}

void arena_reset(struct arena *a, struct arena_mark mark) {
    for (size_t i = mark.block; i <= a->current; i++) {
        struct block *b = &a->blocks[i];
        b->used = i == mark.block ? mark.used : 0;
        POISON(b->data + b->used, b->bytes - b->used);
    }
    a->current = mark.block;
}

size_t arena_bytes(const struct arena *a) {
    size_t sum = 0;
    for (size_t i = 0; i < a->count; i++)
        sum += a->blocks[i].bytes;
    return sum;
}
