/* progress.h -- how a long library call reports progress and checks for a request to stop.
 *
 * Libraries do not print. A program passes a struct progress, and prints what it receives
 * (tools/shared/progress_line.h). Both members may be NULL, and so may the pointer to the struct. The functions are
 * called on the thread that runs the work. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct progress_event {
    const char *stage;      /* "tokenize and encode", "train index", ... */
    const char *unit;       /* "chunks", "bytes", ... */
    int64_t done, total;    /* total < 0: unknown */
    const char *note;       /* a message to print once, e.g. a repaired file; NULL for a plain step */
    const char *detail;     /* of a step, e.g. "iteration 3 of 10"; NULL: none */
};

struct progress {
    void (*report)(void *context, const struct progress_event *event);
    bool (*stop_requested)(void *context);
    void *context;
};

void progress_step(const struct progress *p, const char *stage, const char *unit, int64_t done, int64_t total);
void progress_step_detail(const struct progress *p, const char *stage, const char *detail, const char *unit,
                          int64_t done, int64_t total);
void progress_note(const struct progress *p, const char *format, ...) PRINTF_LIKE(2, 3);
/* True after a request to stop: the caller finishes the current unit of work, then returns STATUS_INTERRUPTED. */
bool progress_stop_requested(const struct progress *p);

/* Reports progress of work that cannot report itself (a call into another library): a separate thread reports at once
 * and then each second, with unit "seconds". No other code may report until progress_clock_stop, which waits for that
 * thread. The strings are borrowed until then. *out is NULL if p reports nothing or the thread cannot be started. */
struct progress_clock;
void progress_clock_start(struct progress_clock **out, const struct progress *p, const char *stage, const char *detail);
void progress_clock_stop(struct progress_clock *c);       /* NULL is fine */
