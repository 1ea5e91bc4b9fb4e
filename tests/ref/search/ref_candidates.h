/* ref_candidates.h -- random documents, a query that copies pieces of them, and the chunks that a search found.
 * For the tests of both twins. */
#pragma once
#include "base/rng.h"
#include "kernels/lexical/candidates.h"
#include "tests/test.h"

struct candidates_case {
    struct candidates c;                 /* in memory of this process */
    struct packed_chunks of;
    int64_t *chunk;                      /* [n]; different ones, and some -1: at the end, and a few before it */
    float *score, *landmark;
    int32_t *query, *value, *first_id;
    float *idf;
    int32_t *ids;                        /* [chunks * rows]; -1 after the end of a document */
    int *document;                       /* [chunks] */
    double weights[CANDIDATE_FEATURES];
    float (*features)[CANDIDATE_FEATURES];       /* [n] of the candidates */
};
/* With landmark scores or without. Some documents are copies of others, some are deleted. */
struct candidates_case candidates_case_make(struct rng *rng, int rows, int n, int vocab, int query_ids, bool landmark);
void candidates_case_free(struct candidates_case *c);
/* The ids [2 * rows] of candidate i. */
void candidates_case_ids(const struct candidates_case *c, int32_t *ids, int i);
/* Checks results [k]: by falling sums, up to roundings, with nothing better left out; of candidates with the same
 * features those found first. */
void candidates_case_check(const struct candidates_case *c, const int64_t *chunk, const float *score, int k);
