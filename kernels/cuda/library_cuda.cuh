/* library_cuda.cuh -- libraries that are loaded at run time, so that a program that does not use them needs none. */
#pragma once
#include <dlfcn.h>
extern "C" {
#include "base/status.h"
}

struct library_symbol { const char *name; void **to; };
/* Finds n symbols of a library. STATUS_UNSUPPORTED: one is missing; `name` is the library's, `remedy` what to do. */
static inline enum status library_symbols(void *library, const struct library_symbol *symbols, size_t n,
                                          const char *name, const char *remedy) {
    for (size_t i = 0; i < n; i++)
        if (!(*symbols[i].to = dlsym(library, symbols[i].name)))
            return fail(STATUS_UNSUPPORTED, "%s has no %s: %s", name, symbols[i].name, remedy);
    return STATUS_OK;
}
