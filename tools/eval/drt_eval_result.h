/* drt_eval_result.h -- the result of drt-eval ppl or fit-memory: modes, texts, documents and tokens with their losses.
 * drt_eval_run.c or drt_eval_samples.c fill it, and the reports print it. */
#pragma once
#include "decoder/memory_config.h"
#include "indexer/search/searcher.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* EVAL_BASE to EVAL_BASE_4: Base LMs to compare with. From EVAL_MEMORY_OWN_PAST on: the model without GCA, mixed with
 * token memories. OTHER: chunks of a store of other text (only in fit-memory), without and with the text's own past.
 * PART: CORPUS and BOTH with the first 1/2, 1/4, .. of the store's chunks. */
enum { EVAL_PARTS = 6 };
enum eval_mode {
    EVAL_NONE, EVAL_OWN_PAST, EVAL_CORPUS, EVAL_BOTH, EVAL_RANDOM, EVAL_BASE, EVAL_BASE_2, EVAL_BASE_3, EVAL_BASE_4,
    EVAL_MEMORY_OWN_PAST, EVAL_MEMORY_CORPUS, EVAL_MEMORY_BOTH, EVAL_MEMORY_RANDOM, EVAL_MEMORY_ORACLE,
    EVAL_MEMORY_OTHER, EVAL_MEMORY_OTHER_BOTH, EVAL_MEMORY_KNN,
    EVAL_PART_CORPUS, EVAL_PART_BOTH = EVAL_PART_CORPUS + EVAL_PARTS, EVAL_MODES = EVAL_PART_BOTH + EVAL_PARTS
};
enum { EVAL_GCA_MODES = EVAL_RANDOM + 1, EVAL_BASES = EVAL_MEMORY_OWN_PAST - EVAL_BASE };
extern const char *const eval_mode_names[EVAL_MODES];
extern const char *const eval_part_names[EVAL_PARTS];     /* "1/2", .. */

/* One scored document: sums over its scored tokens. number: in its file, from 0. */
struct eval_document { int file; int64_t number, tokens, bytes; double nll[EVAL_MODES]; };
struct eval_file {
    const char *path;
    int64_t read_documents, documents, short_documents, skipped_lines, tokens, bytes;
    int64_t stored_documents;            /* of the documents, those that are also in the store */
};
/* Each scored token, in order; arrays of modes that are not run are NULL (drt_eval_tokens.h). */
struct eval_tokens {
    int64_t n, capacity;
    int32_t *document;
    float *nll[EVAL_MODES];
    uint8_t *run; int64_t *run_at;       /* class (drt_eval_tokens.h); number of the token in the overlap (-1: none) */
    bool runs_known;
};
struct eval_result {
    bool mode[EVAL_MODES];
    struct eval_tokens tokens;
    struct eval_document *documents; size_t n_documents, capacity;
    struct eval_file files[64]; int n_files;
    char *names[64];                     /* paths, owned by the result */
    struct overlap *overlap;             /* texts: `documents` (indexer/overlap.h); NULL: not computed */
    double seconds[EVAL_MODES];
    struct searcher_description memory_search;            /* the search of token memories; zeroed: none */
    /* the setting of the token memories that were read, and its file ("": none), both borrowed from struct
     * eval_engines; NULL: none was. keys: "stored" or "encoded"; NULL: no chunks were read */
    const struct memory_config *memory; const char *memory_file, *memory_keys;
    int64_t store_chunks;                /* number of chunks of the store that it searches; 0: unknown */
    bool partial;                        /* a signal stopped the run, so the result is incomplete */
};
void eval_result_free(struct eval_result *r);
