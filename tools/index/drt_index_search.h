/* drt_index_search.h -- the options of drt-index search, and the search that they describe. */
#pragma once
#include "tools/index/drt_index.h"
#include "session/device_choice.h"

struct search_options {
    struct device_choice where;
    const char *text, *store, *model, *exclude; /* text NULL: the query is from_chunk's own */
    int64_t k, nprobe, threads, from_document, from_chunk;
    int64_t rule; /* what `exclude` says */
    bool exact, json;
};

/* Prints the hits. */
enum status drt_index_search_run(const struct search_options *o);
