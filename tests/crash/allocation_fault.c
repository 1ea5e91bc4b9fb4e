/* allocation_fault.c -- LD_PRELOAD: lets one call of the system's allocator fail, or all from one call on. Calls are
 * counted from main on, since constructors of FAISS cannot fail. ALLOCATION_FAULT=N: the Nth call, from 0.
 * ALLOCATION_FAULT_CALLS=M: M calls from it on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t bytes), *__libc_calloc(size_t count, size_t bytes),
    *__libc_realloc(void *block, size_t bytes), *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long calls;
static atomic_bool counts;
static long first = -1, end;
static int (*program)(int, char **, char **);

static bool fails(void) {
    if (!counts) return false;
    const long n = atomic_fetch_add(&calls, 1);
    if (n < first || n >= end) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    return fails() ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    return fails() ? NULL : __libc_calloc(count, bytes);
}
void *realloc(void *block, size_t bytes) {
    return fails() ? NULL : __libc_realloc(block, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}
int posix_memalign(void **block, size_t alignment, size_t bytes) {
    void *p = fails() ? NULL : __libc_memalign(alignment, bytes);
    if (p) *block = p;
    return p ? 0 : ENOMEM;
}

static int run_program(int argc, char **argv, char **environment) {
    const char *from = getenv("ALLOCATION_FAULT"), *many = getenv("ALLOCATION_FAULT_CALLS");
    if (from) first = atol(from), end = first + (many ? atol(many) : 1);
    counts = from != NULL;
    return program(argc, argv, environment);
}

typedef int start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void),
                       void *);
int __libc_start_main(int (*of_program)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*loader)(void), void *stack) {
    start_main *start = (start_main *)dlsym(RTLD_NEXT, "__libc_start_main");
    program = of_program;
    return start(run_program, argc, argv, init, fini, loader, stack);
}
