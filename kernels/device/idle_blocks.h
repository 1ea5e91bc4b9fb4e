/* idle_blocks.h -- memory of a GPU, or pinned memory, that was released and is kept for the next request of its size.
 * The driver takes milliseconds for some requests and releases, and waits for the GPU: too long for a session of a
 * server. One thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

struct idle_block { void *memory; size_t bytes; bool idle; };
struct idle_blocks {
    struct idle_block *at; size_t n, capacity;            /* of all memory that was allocated and not freed */
    size_t kept, limit;                  /* bytes of idle blocks; at most limit */
};
size_t idle_blocks_size(size_t bytes);                    /* what to allocate for a request: rounded up */
/* An idle block of that size, which is then in use; NULL: none. */
void *idle_blocks_take(struct idle_blocks *b, size_t size);
/* A new block, in use. STATUS_NO_MEMORY: it is unknown here, so idle_blocks_keep refuses it. */
enum status idle_blocks_add(struct idle_blocks *b, void *memory, size_t size);
/* Whether the block is now idle; false: the caller frees it. */
bool idle_blocks_keep(struct idle_blocks *b, const void *memory);
/* An idle block for the caller to free; NULL: there is none. */
void *idle_blocks_drop(struct idle_blocks *b);
void idle_blocks_release(struct idle_blocks *b);          /* the list; not the memory that it names */
