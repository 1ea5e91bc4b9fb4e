/* corpus_search.h -- opens a searcher, and reports what a user should know about it. */
#pragma once
#include "indexer/search/searcher.h"
#include "session/device_choice.h"

/* The kinds that a user can name: "landmark" is SEARCHER_AUTO. `name` is one of them. */
#define CORPUS_SEARCH_KINDS "landmark|lexical|hybrid"
enum searcher_kind corpus_search_kind(const char *name);

/* Reports a line where the landmarks were copied to a GPU, and where they do not fit there. Sets the reserve. */
enum status corpus_search_open(struct searcher **out, const struct searcher_config *config,
                               report_line *report);
