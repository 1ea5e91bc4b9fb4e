/* memory.h -- the only calls of the system's allocator: checked sizes, statuses instead of NULL. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *pointer = memory for `count` elements of the type that it points to (of a void *: bytes); _zero: zeroed; _aligned:
 * at 64 bytes, for vector code. count 0 gives a valid pointer. Free with memory_free. On failure *pointer is unchanged.
 * Blocks of 16 MiB and more, zeroed or aligned, request large pages. Every call passes the fault point
 * "memory:allocate".
 *
 *     float *rows;
 *     TRY(memory_allocate(&rows, n * dim)); */
#define memory_allocate(pointer, count) \
    MEMORY_TYPED(pointer, NULL, memory_allocate_bytes(&typed_, (count), sizeof **(pointer)))
#define memory_allocate_zero(pointer, count) \
    MEMORY_TYPED(pointer, NULL, memory_allocate_zero_bytes(&typed_, (count), sizeof **(pointer)))
#define memory_allocate_aligned(pointer, count) \
    MEMORY_TYPED(pointer, NULL, memory_allocate_aligned_bytes(&typed_, (count), sizeof **(pointer)))
/* Grows *pointer to at least `count` elements when *capacity < count, at least doubling; keeps contents. On failure
 * pointer and capacity are unchanged. */
#define memory_grow(pointer, capacity, count) \
    MEMORY_TYPED(pointer, *(pointer), memory_grow_bytes(&typed_, (capacity), (count), sizeof **(pointer)))

/* A call that takes a void ** for a typed pointer: the value goes through a variable of type void *, since writing a
 * T * through a void ** is undefined. */
#define MEMORY_TYPED(pointer, before, call)                                             \
    __extension__({                                                             \
        void *typed_ = (before);                                                \
        enum status typed_status_ = (call);                                     \
        if (typed_status_ == STATUS_OK) *(pointer) = (__typeof__(*(pointer)))typed_; \
        typed_status_;                                                          \
    })

/* The same where the size of an element is not that of a type: count * size bytes. */
enum status memory_allocate_bytes(void **out, size_t count, size_t size);
enum status memory_allocate_zero_bytes(void **out, size_t count, size_t size);
enum status memory_allocate_aligned_bytes(void **out, size_t count, size_t size);
enum status memory_grow_bytes(void **pointer, size_t *capacity, size_t count, size_t size);

enum status memory_copy_string(char **out, const char *text);
void memory_free(void *pointer);                          /* NULL is fine */

/* Whether this much address space could be mapped now: a limit on it (ulimit -v) counts what is never touched, too. */
bool memory_has_address_space(uint64_t bytes);

/* Bytes that this process may use: the machine's memory, or less if a control group allows less
 * (base/system/control_groups.h). */
uint64_t memory_usable(void);
/* What control groups allow: the least of memory.max and memory.high (version 2) and memory.limit_in_bytes (version 1);
 * 0: no limit. `root` as in base/system/control_groups.h. */
uint64_t memory_group_limit(const char *root);

/* Resident bytes of this process now and at its peak (0 where the system does not report it). */
size_t memory_resident(void);
size_t memory_resident_peak(void);
