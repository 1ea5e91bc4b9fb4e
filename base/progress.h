/* progress.h -- how long work in a library tells its caller where it is, and asks whether to stop.
 *
 * Libraries print nothing; a tool passes a struct progress and draws it (tools/shared/progress_line.h). Both members
 * may be NULL, and so may the pointer to the struct itself. Calls come from the thread that runs the work. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct progress_event {
    const char *stage;      /* "tokenize and encode", "train index", ... */
    const char *unit;       /* "chunks", "bytes", ... */
    int64_t done, total;    /* total < 0: unknown */
    const char *note;       /* a thing to say once, e.g. a repaired file; NULL for a plain step */
};

struct progress {
    void (*report)(void *context, const struct progress_event *event);
    bool (*stop_requested)(void *context);
    void *context;
};

void progress_step(const struct progress *p, const char *stage, const char *unit, int64_t done, int64_t total);
void progress_note(const struct progress *p, const char *format, ...) PRINTF_LIKE(2, 3);
/* True once the user asked to stop: finish the unit in hand, then return STATUS_INTERRUPTED. */
bool progress_stop_requested(const struct progress *p);
