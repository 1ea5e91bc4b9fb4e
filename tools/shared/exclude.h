/* exclude.h -- --exclude doc|window=N|none: which chunks of a query's own document must not be found.
 *
 * A query that was taken from the corpus would find itself first, which tells nothing about retrieval. */
#pragma once
#include "store/store.h"

/* Values of --exclude: one of these two, or N >= 0: chunks at most N away from the query's own. */
enum { EXCLUDE_DOCUMENT = -1, EXCLUDE_NOTHING = -2 };

/* Returns false if the text is none of doc, window=N, none. */
bool exclude_parse(int64_t *out, const char *text);

/* The chunk ids that a query must not find; its own chunk is number `chunk` of `document`. */
struct store_range exclude_range(int64_t exclude, const struct store_document *document, int64_t chunk);
