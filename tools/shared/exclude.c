/* exclude.c -- see exclude.h. */
#include "tools/shared/exclude.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* larger than any document, and small enough that sums with chunk ids cannot overflow */
static const int64_t window_max = INT64_C(1) << 40;

bool exclude_parse(int64_t *out, const char *text) {
    static const char window[] = "window=";
    if (strcmp(text, "doc") == 0) {
        *out = EXCLUDE_DOCUMENT;
        return true;
    }
    if (strcmp(text, "none") == 0) {
        *out = EXCLUDE_NOTHING;
        return true;
    }
    if (strncmp(text, window, sizeof window - 1) != 0) return false;
    const char *number = text + sizeof window - 1;
    char *end;
    long long value = strtoll(number, &end, 10);
    if (!isdigit((unsigned char)number[0]) || *end || value > window_max) return false;
    *out = value;
    return true;
}

struct store_range exclude_range(int64_t exclude, const struct store_document *document, int64_t chunk) {
    struct store_range range = {.begin = document->first_chunk, .end = document->first_chunk + document->chunks};
    int64_t own = document->first_chunk + chunk;
    if (exclude == EXCLUDE_NOTHING) return (struct store_range){0};
    if (exclude == EXCLUDE_DOCUMENT) return range;
    if (own - exclude > range.begin) range.begin = own - exclude;
    if (own + exclude + 1 < range.end) range.end = own + exclude + 1;
    return range;
}
