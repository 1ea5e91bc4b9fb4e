/* arena.h -- bump memory with one owner and one lifetime.
 *
 * Pieces are 64-byte aligned and live until the arena is reset to a mark taken before them, or freed. Memory grows by
 * blocks, which never move, so pieces keep their address. For one thread at a time. Under AddressSanitizer, memory
 * after the last piece is poisoned. */
#pragma once
#include "base/memory.h"
#include "base/status.h"
#include <stddef.h>

struct arena;
struct arena_mark { size_t block, used; };

enum status arena_create(struct arena **out, size_t first_block_bytes);
void arena_free(struct arena *arena);                     /* NULL is fine */

/* Allocates memory for `count` elements of the type that *pointer points to: not initialised, or zeroed. `count * size`
 * is checked for overflow. */
#define arena_push(arena, pointer, count) \
    MEMORY_TYPED(pointer, NULL, arena_push_bytes(arena, &typed_, (count), sizeof **(pointer)))
#define arena_push_zero(arena, pointer, count) \
    MEMORY_TYPED(pointer, NULL, arena_push_zero_bytes(arena, &typed_, (count), sizeof **(pointer)))
enum status arena_push_bytes(struct arena *arena, void **out, size_t count, size_t size);
enum status arena_push_zero_bytes(struct arena *arena, void **out, size_t count, size_t size);

struct arena_mark arena_mark(const struct arena *arena);
void arena_reset(struct arena *arena, struct arena_mark mark);   /* frees no memory: blocks are reused */
size_t arena_bytes(const struct arena *arena);            /* bytes that are reserved from the system */
