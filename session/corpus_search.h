/* corpus_search.h -- opens a searcher, and reports to the user how it searches. */
#pragma once
#include "indexer/search/searcher.h"
#include "session/device_choice.h"

/* The kinds that a user can name; "landmark" is SEARCHER_AUTO. `name` must be one of them. */
#define CORPUS_SEARCH_KINDS "landmark|lexical|hybrid"
enum searcher_kind corpus_search_kind(const char *name);

/* Bytes of a GPU's memory that copies of the store leave free, for what a program allocates after them: caches of
 * chunks, states, logits. */
#define CORPUS_SEARCH_RESERVE (UINT64_C(1) << 30)

/* Opens a searcher, and sets the reserve. Reports a line if the landmarks were copied to a GPU, or if they
 * do not fit there. */
enum status corpus_search_open(struct searcher **out, const struct searcher_config *config,
                               report_line *report);
