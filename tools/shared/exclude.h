/* exclude.h -- the option --exclude doc|window=N|none: the chunks of a query's own document that must not be found.
 *
 * A query that is a chunk of the corpus would find itself first, which says nothing about the quality of a search. */
#pragma once
#include "store/store.h"

/* Values of --exclude: one of these two, or N >= 0: chunks at most N away from the query's own. */
enum { EXCLUDE_DOCUMENT = -1, EXCLUDE_NOTHING = -2 };

/* Returns false if the text is not doc, window=N or none. */
bool exclude_parse(int64_t *out, const char *text);

/* Returns the chunk ids that a query must not find. The query is chunk number `chunk` of `document`. */
struct store_range exclude_range(int64_t exclude, const struct store_document *document, int64_t chunk);
