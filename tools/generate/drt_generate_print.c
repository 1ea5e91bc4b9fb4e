/* drt_generate_print.c -- text goes out as it comes, but for a tail that may still become a stop string. */
#include "base/memory.h"
#include "tools/generate/drt_generate.h"

#include <string.h>

struct printer {
    FILE *file;
    const struct arg_strings *stops;
    char *held;
    size_t n_held, capacity;
    char last; /* byte printed */
};

enum status printer_create(struct printer **out, FILE *file, const struct arg_strings *stops) {
    struct printer *p = NULL;
    TRY(memory_allocate_zero(&p, 1));
    *p = (struct printer){.file = file, .stops = stops, .last = '\n'};
    *out = p;
    return STATUS_OK;
}

void printer_free(struct printer *p) {
    if (p) memory_free(p->held);
    memory_free(p);
}

static enum status write_out(struct printer *p, const char *text, size_t bytes) {
    if (fwrite(text, 1, bytes, p->file) != bytes || fflush(p->file) != 0) return fail_errno("standard output");
    p->last = text[bytes - 1];
    return STATUS_OK;
}

static enum status print(struct printer *p, size_t bytes) {
    if (bytes == 0) return STATUS_OK;
    TRY(write_out(p, p->held, bytes));
    p->n_held -= bytes;
    memmove(p->held, p->held + bytes, p->n_held);
    return STATUS_OK;
}

/* Where the first stop string begins in what is held; n_held when there is none. */
static size_t find_stop(const struct printer *p) {
    size_t first = p->n_held;
    for (int i = 0; i < p->stops->count; i++) {
        const char *found = memmem(p->held, p->n_held, p->stops->items[i], strlen(p->stops->items[i]));
        if (found && (size_t)(found - p->held) < first) first = (size_t)(found - p->held);
    }
    return first;
}

/* The length of the longest tail of what is held that some stop string begins with. */
static size_t open_tail(const struct printer *p) {
    size_t longest = 0;
    for (int i = 0; i < p->stops->count; i++) {
        const char *stop = p->stops->items[i];
        size_t length = strlen(stop) - 1;
        if (length > p->n_held) length = p->n_held;
        while (length > longest && memcmp(p->held + p->n_held - length, stop, length) != 0)
            length--;
        if (length > longest) longest = length;
    }
    return longest;
}

enum status printer_echo(struct printer *p, const char *text, size_t bytes) {
    return bytes ? write_out(p, text, bytes) : STATUS_OK;
}

enum status printer_put(struct printer *p, const char *text, size_t bytes, bool *stopped) {
    TRY(memory_grow(&p->held, &p->capacity, p->n_held + bytes));
    if (bytes) memcpy(p->held + p->n_held, text, bytes);
    p->n_held += bytes;
    size_t stop = find_stop(p);
    *stopped = stop < p->n_held;
    if (!*stopped) return print(p, p->n_held - open_tail(p));
    p->n_held = stop;
    return print(p, stop);
}

enum status printer_end(struct printer *p) {
    TRY(print(p, p->n_held));
    if (p->last != '\n' && (fputc('\n', p->file) == EOF || fflush(p->file) != 0)) return fail_errno("standard output");
    return STATUS_OK;
}
