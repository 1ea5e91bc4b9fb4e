/* report.c -- see report.h. */
#include "tools/shared/report.h"
#include "tools/shared/log.h"

void report_stderr(const char *line) {
    log_line(LOG_INFO, "message", NULL, "%s", line);
}

void report_missing(const char *program, const struct engine *e, bool exact_fallback) {
    if (!e->searcher) return;
    const struct searcher_counts counts = searcher_counts(e->searcher);
    if (counts.missing == 0) return;
    log_line(LOG_WARNING, "missing", program, "for %lld of %lld queries the store's index found too few chunks, %s",
             (long long)counts.missing, (long long)counts.queries,
             exact_fallback ? "and the whole store was scanned"
                            : "though the store has more: the model read fewer (--exact-fallback scans the store then, "
                              "--exact always)");
}
