/* memory.h -- the only door to the system's allocator: checked sizes, statuses instead of NULL. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = count * size bytes (zeroed by the second form); count 0 gives a valid pointer. Free with memory_free.
 * Pieces of 16 MiB and more, zeroed or aligned, ask the system for large pages.
 * Every call passes the fault point "memory:allocate". */
enum status memory_allocate(void **out, size_t count, size_t size);
enum status memory_allocate_zero(void **out, size_t count, size_t size);

/* 64-byte aligned, for vector code. Free with memory_free. */
enum status memory_allocate_aligned(void **out, size_t count, size_t size);

/* Grows *pointer (to `count` items of `size` bytes) when *capacity < count, at least doubling; keeps contents.
 * On failure pointer and capacity are unchanged. */
enum status memory_grow(void **pointer, size_t *capacity, size_t count, size_t size);

enum status memory_copy_string(char **out, const char *text);
void memory_free(void *pointer);                          /* NULL is fine */

/* Whether this much address space could be mapped now: a limit on it (ulimit -v) counts what is never touched, too. */
bool memory_has_address_space(uint64_t bytes);

/* Bytes that this process may use: the machine's memory, or less where a control group allows less (base/system/control_groups.h). */
uint64_t memory_usable(void);
/* What control groups allow: the least of memory.max and memory.high (version 2) and memory.limit_in_bytes (version 1); 0: no
 * limit. `root` as in base/system/control_groups.h. */
uint64_t memory_group_limit(const char *root);

/* Resident bytes of this process now and at its peak (0 where the system does not tell). */
size_t memory_resident(void);
size_t memory_resident_peak(void);
