/* memory.h -- the only calls of the system's allocator. Sizes are checked, and failures are statuses
 * instead of NULL. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocate memory for `count` elements of the type that *pointer points to (for a void *: bytes). _zero zeroes it;
 * _aligned aligns it to 64 bytes, for vector code. count 0 gives a valid pointer. Free with memory_free. On failure
 * *pointer is unchanged. Blocks of at least 16 MiB that are zeroed or aligned request large pages. Every call passes
 * the fault point "memory:allocate".
 *
 *     float *rows;
 *     TRY(memory_allocate(&rows, n * dim)); */
#define memory_allocate(pointer, count) \
    MEMORY_TYPED(pointer, NULL, memory_allocate_bytes(&typed_, (count), sizeof **(pointer)))
#define memory_allocate_zero(pointer, count) \
    MEMORY_TYPED(pointer, NULL, memory_allocate_zero_bytes(&typed_, (count), sizeof **(pointer)))
#define memory_allocate_aligned(pointer, count) \
    MEMORY_TYPED(pointer, NULL, memory_allocate_aligned_bytes(&typed_, (count), sizeof **(pointer)))
/* Grows *pointer to at least `count` elements if *capacity is smaller, at least doubling it, and keeps the contents. On
 * failure pointer and capacity are unchanged. */
#define memory_grow(pointer, capacity, count) \
    MEMORY_TYPED(pointer, *(pointer), memory_grow_bytes(&typed_, (capacity), (count), sizeof **(pointer)))

/* Calls a function that takes a void ** for a typed pointer. The value passes through a variable of type void *,
 * because writing a T * through a void ** is undefined. */
#define MEMORY_TYPED(pointer, before, call)                                             \
    __extension__({                                                             \
        void *typed_ = (before);                                                \
        enum status typed_status_ = (call);                                     \
        if (typed_status_ == STATUS_OK) *(pointer) = (__typeof__(*(pointer)))typed_; \
        typed_status_;                                                          \
    })

/* Allocates count * size bytes, if the size of an element is not that of a type. */
enum status memory_allocate_bytes(void **out, size_t count, size_t size);
enum status memory_allocate_zero_bytes(void **out, size_t count, size_t size);
enum status memory_allocate_aligned_bytes(void **out, size_t count, size_t size);
enum status memory_grow_bytes(void **pointer, size_t *capacity, size_t count, size_t size);

enum status memory_copy_string(char **out, const char *text);
void memory_free(void *pointer);                          /* NULL is fine */

/* Whether this much address space could be mapped now. A limit on it (ulimit -v) also counts memory that is never
 * touched. */
bool memory_has_address_space(uint64_t bytes);

/* Returns the bytes that this process may use: the machine's memory, or less if a control group allows less
 * (base/system/control_groups.h). */
uint64_t memory_usable(void);
/* Returns the memory that control groups allow: the least of memory.max and memory.high (version 2) and
 * memory.limit_in_bytes (version 1); 0: no limit. `root` as in base/system/control_groups.h. */
uint64_t memory_group_limit(const char *root);

/* Return the resident bytes of this process, at present and at its peak; 0: the system does not report them. */
size_t memory_resident(void);
size_t memory_resident_peak(void);
