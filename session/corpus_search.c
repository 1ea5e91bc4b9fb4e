/* corpus_search.c -- see corpus_search.h. */
#include "session/corpus_search.h"
#include "base/clock.h"
#include <stdio.h>
#include <string.h>

enum searcher_kind corpus_search_kind(const char *name) {
    if (strcmp(name, "lexical") == 0) return SEARCHER_LEXICAL;
    return strcmp(name, "hybrid") == 0 ? SEARCHER_HYBRID : SEARCHER_AUTO;
}

enum status corpus_search_open(struct searcher **out, const struct searcher_config *config, report_line *report) {
    char line[REPORT_LINE_MAX];
    struct searcher_config used = *config;
    used.reserve = CORPUS_SEARCH_RESERVE;
    const double start = clock_seconds();
    TRY(searcher_open(out, &used));
    const double seconds = clock_seconds() - start;
    const struct searcher_description d = searcher_describe(*out, 1, 0);
    if (report && searcher_fallback(*out)) {
        snprintf(line, sizeof line, "corpus search on the CPU: %s", searcher_fallback(*out));
        report(line);
    }
    if (report && d.device_bytes > 0) {
        snprintf(line, sizeof line, "corpus search %s, %.2f GiB on the GPU, loaded in %.2f s", d.text,
                 (double)d.device_bytes / (1 << 30), seconds);
        report(line);
    }
    return STATUS_OK;
}
