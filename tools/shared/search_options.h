/* search_options.h -- the options of programs that retrieve from a store with GCA, and their checks. */
#pragma once
#include "session/corpus_search.h"
#include "tools/shared/args.h"

/* Rows of a program's table of options, as in option_rows.h; OPTIONS_OF_SEARCH: `o` has searcher (a string, not NULL),
 * exact, exact_fallback, nprobe, continuation, overlap, query_ids. */
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
     "retrieve with each found chunk of the store the next N chunks of its document, within the model's K", 0,         \
     CONTINUATION_MAX},                                                                                                \
    {"overlap", ARG_INT, &(o).overlap, "N",                                                                            \
     "begin each continuation N tokens before the end of the chunk that it continues, so that a statement of up to "   \
     "N + 1 tokens is read whole; chunks of the own past are then continued, too. 31 is half a chunk. Needs "          \
     "--continuation",                                                                                                 \
     0, CONTINUATION_MAX - 1},                                                                                         \
    {"query-tokens", ARG_INT, &(o).query_ids, "N",                                                                     \
     "words of a query: those of the last N tokens, such as a question; 0: of the last 128", 0, SEARCHER_TOKENS}

/* Whether any of the options that need a corpus differs from its default. A continuation that overlaps is of the own
 * past, too. */
#define SEARCH_OPTIONS_GIVEN(o)                                                                                        \
    ((o).exact || (o).exact_fallback || (o).nprobe || (o).query_ids ||                                                 \
     (((o).continuation || (o).overlap) && !((o).overlap && (o).own_past)) ||                                          \
     corpus_search_kind((o).searcher) != SEARCHER_AUTO)
/* Their values for a generation: a struct engine_retrieval (session/engine.h). */
#define RETRIEVAL_OF_SEARCH(o)                                                                                         \
    {.searcher = corpus_search_kind((o).searcher), .own_past = (o).own_past, .corpus = (o).corpus, .exact = (o).exact, \
     .exact_fallback = (o).exact_fallback, .nprobe = (int)(o).nprobe, .continuation = (int)(o).continuation,           \
     .overlap = (int)(o).overlap, .query_ids = (int)(o).query_ids}
/* Returns the error of a wrong combination; NULL: the options are valid. */
#define SEARCH_OPTIONS_WRONG(o)                                                                                        \
    ((o).overlap > 0 && (o).continuation == 0                                                                          \
         ? "--overlap is of a continuation: give --continuation, too"                                                  \
     : (o).query_ids > 0 && corpus_search_kind((o).searcher) == SEARCHER_AUTO                                          \
         ? "--query-tokens is of a search by words: give --searcher lexical or hybrid"                                 \
         : search_options_wrong((o).searcher, (o).exact, (o).exact_fallback || (o).nprobe))
static inline const char *search_options_wrong(const char *searcher, bool exact, bool index) {
    if (exact && index) return "--exact scans every landmark: leave out --nprobe and --exact-fallback";
    if (corpus_search_kind(searcher) == SEARCHER_LEXICAL && (exact || index))
        return "--searcher lexical scans no landmarks: leave out --exact, --nprobe and --exact-fallback";
    return NULL;
}
