/* corpus_search.h -- opens a program's searcher, and reports on stderr what a user should know about it. */
#pragma once
#include "indexer/searcher.h"

/* A line where the landmarks were copied to a GPU, and one where they were to be and do not fit. config->reserve is set. */
enum status corpus_search_open(struct searcher **out, const struct searcher_config *config);
