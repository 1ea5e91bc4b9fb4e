/* search_options.h -- the options of programs that retrieve from a store with GCA, and their checks. */
#pragma once
#include "session/corpus_search.h"
#include "tools/shared/args.h"

/* Rows of a program's table of options, as in option_rows.h; OPTIONS_OF_SEARCH: `o` has searcher (a string, not NULL),
 * exact, exact_fallback, nprobe, continuation. */
#define OPTION_EXACT(flag)                                                                                             \
    {"exact", ARG_FLAG, &(flag), NULL, "scan all landmarks instead of using the store's index", 0, 0}
#define OPTION_EXACT_FALLBACK(flag)                                                                                    \
    {"exact-fallback", ARG_FLAG, &(flag), NULL,                                                                        \
     "scan all landmarks for a query for which the index finds too few chunks", 0, 0}
#define OPTION_NPROBE(count)                                                                                           \
    {"nprobe", ARG_INT, &(count), "N",                                                                                 \
     "IVF lists to scan, of the store's index or of gpu-ivf on a GPU; 0: the index's default, and on a GPU exact "     \
     "search if the landmarks take at most 2 GiB",                                                                     \
     0, 1 << 20}
#define OPTIONS_OF_SEARCH(o)                                                                                           \
    {"searcher", ARG_CHOICE, &(o).searcher, CORPUS_SEARCH_KINDS,                                                       \
     "find chunks by landmarks, by words (BM25 over the last 128 tokens), or by both, merged by reciprocal rank",      \
     0, 0},                                                                                                            \
    OPTION_EXACT((o).exact), OPTION_EXACT_FALLBACK((o).exact_fallback), OPTION_NPROBE((o).nprobe),                     \
    {"continuation", ARG_INT, &(o).continuation, "N",                                                                  \
     "retrieve with each found chunk the next N chunks of its document, within the model's K", 0, CONTINUATION_MAX}

/* Whether any of the options differs from its default. */
#define SEARCH_OPTIONS_GIVEN(o)                                                                                        \
    ((o).exact || (o).exact_fallback || (o).nprobe || (o).continuation ||                                              \
     corpus_search_kind((o).searcher) != SEARCHER_AUTO)
/* Returns the error of a wrong combination; NULL: the options are valid. */
#define SEARCH_OPTIONS_WRONG(o) search_options_wrong((o).searcher, (o).exact, (o).exact_fallback || (o).nprobe)
static inline const char *search_options_wrong(const char *searcher, bool exact, bool index) {
    if (exact && index) return "--exact scans every landmark: leave out --nprobe and --exact-fallback";
    if (corpus_search_kind(searcher) == SEARCHER_LEXICAL && (exact || index))
        return "--searcher lexical scans no landmarks: leave out --exact, --nprobe and --exact-fallback";
    return NULL;
}
