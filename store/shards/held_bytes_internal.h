/* held_bytes_internal.h -- bytes of a file that stay in memory until the file ends. So the thread that makes them
 * neither computes their checksum nor writes them; the thread that seals the shard does.
 *
 * The blocks of all files come from one pool, which never has more than its limit and uses them again. */
#pragma once
#include "base/file.h"

struct held_pool;
/* bytes: of all blocks together; rounded down to whole blocks */
enum status held_pool_create(struct held_pool **out, uint64_t bytes);
void held_pool_free(struct held_pool *p);                 /* all blocks are returned; NULL is fine */

/* The bytes of one file; from one thread at a time. Begins as {.pool = P, .share = N}, where P NULL has no blocks. It
 * takes no block if one N-th of all blocks are in use; N 0: only if all are. */
struct held {
    struct held_pool *pool;
    size_t share;
    uint8_t **blocks; size_t n, capacity;
    size_t used;                         /* bytes of the last block */
};
/* Returns the number of free bytes at *at, an even number; the caller adds to h->used what it writes there. 0: it
 * gets no block now. */
size_t held_space(struct held *h, uint8_t **at);
enum status held_write(struct held *h, struct file_writer *file);   /* appends the bytes; holds none then */
void held_free(struct held *h);
