/* corpus_search.h -- opens a program's searcher, and reports on stderr what a user should know about it. */
#pragma once
#include "indexer/searcher.h"

/* Prints a line where the landmarks were copied to a GPU, and where they do not fit there. Sets the reserve. */
enum status corpus_search_open(struct searcher **out, const struct searcher_config *config);
