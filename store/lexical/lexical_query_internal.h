/* lexical_query_internal.h -- the plan of a query: the lists of its keys in every segment, with integer weights. */
#pragma once
#include "store/lexical/lexical_segment_internal.h"

struct lexical {
    struct lexical_segment *segments;    /* in ascending order of their chunks */
    int64_t n;
    int64_t chunks;                      /* number of chunks of all segments */
    int vocab_size;
};

struct lexical_weighted {
    struct lexical_list list;
    uint64_t key;
    int32_t weight[LEXICAL_CODES + 1];   /* by code + 1; weight[0] is 0 */
};
/* The lists of one segment. Sparse lists are in descending order of their postings for each unit of their greatest
 * weight: the first ones cost most. Dense lists are separate, the greatest weight first. */
struct lexical_lists {
    struct lexical_weighted *sparse, *dense;
    int n_sparse, n_dense;
    int32_t *most_before;                /* [n_sparse + 1]: the most that the dense and the first i sparse lists add */
    int32_t dense_most;                  /* the most that the dense lists can add to a chunk's score */
};
struct lexical_plan {
    struct lexical_lists *segments;
    struct lexical_weighted *lists;
    int32_t *most;                       /* most_before of all segments */
    float unit;                          /* of the weights */
    int sparse_most;                     /* the largest number of sparse lists in a segment */
};
/* Call it before the first lexical_cache_find of a plan; NULL is fine. */
void lexical_cache_begin(struct lexical_cache *cache);
/* lexical_segment_find, from the cache if it has the key. cache NULL: without one. */
enum status lexical_cache_find(struct lexical_cache *cache, const struct lexical_segment *s, struct lexical_list *out,
                               uint64_t key);
/* The score of the k-th hit of the last search with such parameters. 0: there was none, or the last plan shares less
 * than three fifths of its keys with the one before. The second function keeps the score. cache NULL is fine. */
float lexical_cache_kth(const struct lexical_cache *cache, const struct lexical_search *how);
void lexical_cache_keep_kth(struct lexical_cache *cache, const struct lexical_search *how, float kth);
/* Only pair_weight and counted of `how` are used. The sum of all weights of a plan fits in 31 bits. cache: NULL is
 * fine. */
enum status lexical_plan_make(struct lexical_plan *out, const struct lexical *x, const struct lexical_query *q,
                              const struct lexical_search *how, struct lexical_cache *cache);
void lexical_plan_free(struct lexical_plan *p);

/* The sums of all sparse lists over all chunks, which a cache keeps, so that the next plan of a running text adds only
 * its new lists and subtracts those that it no longer has. Of one segment: */
struct lexical_changes {
    int32_t *sums;                       /* of its chunks, in whole windows */
    struct lexical_weighted *lists;      /* to add; weights below 0 subtract */
    int n;
};
/* Sets *out [segments] to what makes the kept sums those of the plan. *fresh: they are not there yet, so the caller
 * sets them to 0 first. *out is NULL if the plan has too little in common with the last one, if the index is too large,
 * or if there is no memory. After all changes were applied the caller calls lexical_changes_end, or the sums are
 * lost. */
void lexical_changes_begin(struct lexical_cache *cache, struct lexical_changes **out, bool *fresh,
                           const struct lexical *x, const struct lexical_plan *plan);
void lexical_changes_end(struct lexical_cache *cache);

/* Keeps the plan of a search that has ended, and frees the one before. *plan is the caller's again if there is no
 * cache. */
void lexical_cache_keep_plan(struct lexical_cache *cache, struct lexical_plan *plan, const struct lexical *x,
                             const struct lexical_query *q, const struct lexical_search *how);
/* The kept plan, if it is that of this query. *changes [segments]: has the sums of its sparse lists; NULL: they are not
 * kept. Valid until the next search. NULL: another plan, or none, is kept. */
const struct lexical_plan *lexical_cache_plan(struct lexical_cache *cache, const struct lexical_changes **changes,
                                              const struct lexical *x, const struct lexical_query *q,
                                              const struct lexical_search *how);
