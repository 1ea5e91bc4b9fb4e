/* memory_window.h -- one window of text read with token memories: the probabilities of model and memories.
 *
 * The model reads the window once, without retrieval or with that of `gca`. Its key states are the queries, and the
 * keys of the text's own past. A search is made at the first scored token and every `every` tokens after it; its query
 * is text before that token. Logits of the whole window are kept: context * vocabulary * 4 bytes. */
#pragma once
#include "base/progress.h"
#include "indexer/retrieve/memory_source.h"
#include "tools/memory/memory_knn.h"
#include "tools/memory/memory_options.h"
#include "tools/memory/memory_order_fit.h"

/* OTHER: chunks that were found in a store of other text; they are not read here, but taken from another collection
 * (memory_samples.h). From PART on: FOUND in the first 1/2, 1/4, .. 1/64 of the store's chunks. */
enum { MEMORY_PARTS = 6 };
enum memory_reads {
    MEMORY_READ_PAST, MEMORY_READ_FOUND, MEMORY_READ_RANDOM, MEMORY_READ_ORACLE, MEMORY_READ_OTHER, MEMORY_READ_KNN,
    MEMORY_READ_PART, MEMORY_READS = MEMORY_READ_PART + MEMORY_PARTS
};
/* The number of the part's chunks is chunks >> this. */
static inline int memory_part_shift(enum memory_reads what) { return 1 + (int)what - MEMORY_READ_PART; }
enum { MEMORY_TAUS = 8 };
/* Results for one temperature: log p_mem of the next token, and members of memory_evidence that depend on it. TOKEN:
 * the id of the memory's largest probability, -1 without entries; ids are below 2^24. */
enum memory_column { MEMORY_LOG_P, MEMORY_LSE, MEMORY_SQUARES, MEMORY_TOP, MEMORY_OF_TOP, MEMORY_LM_OF_TOP,
                     MEMORY_TOKEN, MEMORY_COLUMNS };
/* The members of memory_evidence that do not depend on a temperature. */
enum memory_mark { MEMORY_NEAREST, MEMORY_ENTRIES, MEMORY_BEST, MEMORY_KTH, MEMORY_MEAN, MEMORY_MARKS };

/* One memory with some temperatures, the largest last. Its results [context] are those of each scored token. */
struct memory_read {
    enum memory_reads what;
    int taus;
    float tau[MEMORY_TAUS];
    float *mark[MEMORY_MARKS], *column[MEMORY_TAUS][MEMORY_COLUMNS];
    double seconds;                      /* time of everything that this read needs, including the model */
};
/* Returns the evidence of token i, from arrays of marks and those of one temperature. */
struct memory_evidence memory_evidence_of(float *const mark[MEMORY_MARKS], float *const column[MEMORY_COLUMNS],
                                          int64_t i);

struct memory_window_config {
    struct engine *engine;
    const struct memory_config *memory;
    struct memory_finder finder;         /* zeroed: only the text's own past */
    /* for MEMORY_READ_KNN. Before its search a run adds the window's states to it and does not write that read's
     * results. After the search, runs of the same windows in the same order read it. */
    struct memory_knn *knn;
    int64_t context, past;               /* past: positions before a token that are read */
    uint64_t seed;                       /* of random chunks */
    struct retriever *gca; /* NULL: the model reads without GCA. The caller resets it before each window */
    const struct progress *progress;     /* steps are the searches of each read of a store; NULL is fine */
    int candidates;                      /* of a search, for memory_window_candidates; 0: for memory_window_run */
    int group;                           /* for tests: candidates loaded at once, at least k; 0: MEMORY_K_MAX */
};
struct memory_window;
/* Borrows everything that config names until memory_window_free. reads [n_reads] get their arrays here,
 * and are borrowed. */
enum status memory_window_create(struct memory_window **out, const struct memory_window_config *config,
                                 struct memory_read *reads, int n_reads);
void memory_window_free(struct memory_window *w);         /* also frees the arrays of the reads; NULL is fine */

/* Where the keys of the store's chunks come from, "stored" or "encoded"; NULL: no chunks are read. */
const char *memory_window_keys(const struct memory_window *w);

/* The model's results for each scored token: its log p, and of the distribution that predicts it the entropy and the
 * log of the largest probability. */
struct memory_lm { const float *log_p, *entropy, *largest; };
/* Scores tokens first .. n-1 of ids [n], n <= context. Results begin at index 0. document: a document of the store
 * whose chunks must not be found; -1: none. STATUS_INTERRUPTED: the progress requested a stop. */
enum status memory_window_run(struct memory_window *w, struct memory_lm *out, const int32_t *ids, int64_t n,
                              int64_t first,
                              int64_t document);

/* A text as memory_window_run takes it. */
struct memory_window_text { const int32_t *ids; int64_t n, first, document; };
/* Adds searches to the samples, one before each of ids[at[i]], i < searches: first <= at[i] < n, ascending. The one
 * read of the window is FOUND with the temperature of the configuration's mixture of the corpus, whose gate sees the
 * first k candidates. file and held_out stay 0. */
enum status memory_window_candidates(struct memory_window *w, struct memory_order_samples *to,
                                     const struct memory_window_text *text, const int64_t *at, int64_t searches);
