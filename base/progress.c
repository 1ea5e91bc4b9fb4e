/* progress.c -- the NULL checks, in one place. */
#include "base/progress.h"
#include "base/printable.h"
#include <stdarg.h>
#include <stdio.h>

void progress_step_detail(const struct progress *p, const char *stage, const char *detail, const char *unit,
                          int64_t done, int64_t total) {
    const struct progress_event e = {.stage = stage, .unit = unit, .done = done, .total = total, .detail = detail};
    if (p && p->report) p->report(p->context, &e);
}

void progress_step(const struct progress *p, const char *stage, const char *unit, int64_t done, int64_t total) {
    progress_step_detail(p, stage, NULL, unit, done, total);
}

void progress_note(const struct progress *p, const char *format, ...) {
    if (!p || !p->report) return;
    char text[1024], shown[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printable_copy(shown, sizeof shown, text);
    p->report(p->context, &(struct progress_event){.stage = "", .unit = "", .note = shown});
}

bool progress_stop_requested(const struct progress *p) {
    return p && p->stop_requested && p->stop_requested(p->context);
}
