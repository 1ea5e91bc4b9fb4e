/* memory.c -- see memory.h. Growing doubles the capacity, so appending n items costs O(n) copies in total. */
#include "base/memory.h"
#include "base/system/control_groups.h"
#include "base/system/fault.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Large blocks request large pages, because with small pages reading 80 MB of weights often misses the TLB. */
enum { ALIGNMENT = 64, LARGE_PAGE = 2 << 20, LARGE_BLOCK = 2 * LARGE_PAGE };

static enum status memory_refuse(size_t count, size_t size) {
    return fail(STATUS_NO_MEMORY, "out of memory: %zu items of %zu bytes", count, size);
}

static bool memory_overflows(size_t count, size_t size) {
    return size != 0 && count > SIZE_MAX / 2 / size;
}

/* This is a hint: systems without large pages ignore it, and pages that are never touched need no memory. */
static void memory_request_large_pages(void *block, size_t bytes) {
#ifdef MADV_HUGEPAGE
    size_t skipped = (LARGE_PAGE - (uintptr_t)block % LARGE_PAGE) % LARGE_PAGE;
    if (bytes >= LARGE_BLOCK) (void)madvise((unsigned char *)block + skipped, bytes - skipped, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}

/* Never returns 0, because malloc(0) may return NULL, which would look like a failure. */
static size_t bytes_of(size_t count, size_t size) {
    size_t bytes = count * size;
    return bytes > 0 ? bytes : 1;
}

enum status memory_allocate_bytes(void **out, size_t count, size_t size) {
    TRY(fault_point("memory:allocate"));
    if (memory_overflows(count, size)) return memory_refuse(count, size);
    void *p = malloc(bytes_of(count, size));
    if (!p) return memory_refuse(count, size);
    *out = p;
    return STATUS_OK;
}

enum status memory_allocate_zero_bytes(void **out, size_t count, size_t size) {
    TRY(fault_point("memory:allocate"));
    if (memory_overflows(count, size)) return memory_refuse(count, size);
    void *p = calloc(bytes_of(count, size), 1);
    if (!p) return memory_refuse(count, size);
    memory_request_large_pages(p, count * size);
    *out = p;
    return STATUS_OK;
}

enum status memory_allocate_aligned_bytes(void **out, size_t count, size_t size) {
    TRY(fault_point("memory:allocate"));
    if (memory_overflows(count, size)) return memory_refuse(count, size);
    size_t alignment = count * size >= LARGE_BLOCK ? LARGE_PAGE : ALIGNMENT;
    size_t bytes = (count * size + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *p = NULL;
    if (posix_memalign(&p, alignment, bytes) != 0) return memory_refuse(count, size);
    memory_request_large_pages(p, bytes);
    *out = p;
    return STATUS_OK;
}

enum status memory_grow_bytes(void **pointer, size_t *capacity, size_t count, size_t size) {
    if (count <= *capacity) return STATUS_OK;
    TRY(fault_point("memory:allocate"));
    size_t wanted = *capacity < 8 ? 8 : *capacity * 2;
    if (wanted < count) wanted = count;
    if (memory_overflows(wanted, size)) return memory_refuse(wanted, size);
    void *p = realloc(*pointer, wanted * size);
    if (!p) return memory_refuse(wanted, size);
    *pointer = p;
    *capacity = wanted;
    return STATUS_OK;
}

enum status memory_copy_string(char **out, const char *text) {
    size_t bytes = strlen(text) + 1;
    void *copy = NULL;
    TRY(memory_allocate(&copy, bytes));
    memcpy(copy, text, bytes);
    *out = copy;
    return STATUS_OK;
}

void memory_free(void *pointer) {
    free(pointer);
}

bool memory_has_address_space(uint64_t bytes) {
    if (bytes > SIZE_MAX / 2) return false;
    void *p = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    munmap(p, (size_t)bytes);
    return true;
}

static double group_limit(const char *root, const char *folder, bool second) {
    double least = INFINITY;
    static const char *const names[] = {"memory.limit_in_bytes", "memory.max", "memory.high"};
    for (int i = second ? 1 : 0; i < (second ? 3 : 1); i++) {
        double bytes = control_groups_number(root, folder, names[i], NULL);
        if (bytes > 0) least = fmin(least, bytes);
    }
    return least;
}

uint64_t memory_group_limit(const char *root) {
    double least = control_groups_least(root, "memory", group_limit);
    return least < 0x1p62 ? (uint64_t)least : 0; /* version 1 writes "no limit" as a number a little below 2^63 */
}

uint64_t memory_usable(void) {
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
             group = memory_group_limit("");
    return group > 0 && group < machine ? group : machine;
}

size_t memory_resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    unsigned long total = 0, resident = 0;
    int n = fscanf(file, "%lu %lu", &total, &resident);
    fclose(file);
    return n == 2 ? (size_t)resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

size_t memory_resident_peak(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}
