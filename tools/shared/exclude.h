/* exclude.h -- --exclude doc|window=N|none: which chunks of a query's own document must not be found.
 *
 * A query that was taken from the corpus finds itself first, which says nothing about retrieval. */
#pragma once
#include "store/store.h"

/* What --exclude says: one of these two, or N >= 0: the chunks at most N away from the query's own. */
enum { EXCLUDE_DOCUMENT = -1, EXCLUDE_NOTHING = -2 };

/* False when the text is none of doc, window=N, none. */
bool exclude_parse(int64_t *out, const char *text);

/* The chunk ids to leave out for a query whose own chunk is number `chunk` of `document`. */
struct store_range exclude_range(int64_t exclude, const struct store_document *document, int64_t chunk);
