/* lexical_lists.h -- the lists of a query, as bytes of the segments, for a search in another folder (on a GPU).
 * lexical_format_internal.h describes these bytes. */
#pragma once
#include "store/lexical/lexical.h"

enum { LEXICAL_LIST_CODES = 3 };

/* All lists of a segment. They are valid while the index is open. */
struct lexical_postings { const uint8_t *bytes; uint64_t size; };
struct lexical_postings lexical_segment_postings(const struct lexical *x, int64_t segment);

/* Checks every list against the dictionary and the counts, without the checksums of lexical_verify. STATUS_CORRUPT: a
 * list is wrong. After this check a reader of the lists need not check them. */
enum status lexical_check(const struct lexical *x, struct threads *threads);

struct lexical_query_list {
    int64_t segment;
    uint64_t begin;                      /* offset in the segment's postings */
    uint32_t bytes, n; /* bytes: of the blocks, without their table, which follows; n: number of postings */
    uint32_t form;                       /* of the block, if the list has one */
    uint32_t from, until;                /* then its first chunk, and the one after its last; otherwise 0 */
    bool dense;
    int32_t weight[LEXICAL_LIST_CODES];  /* by code */
};
typedef void lexical_take_list(void *context, const struct lexical_query_list *list);
/* Where the lists of some keys are, so that the next query of a running text looks up its new keys only, and the score
 * of the last search's k-th hit, near which the next search expects its own. For one index and one thread at a time. */
enum status lexical_cache_create(struct lexical_cache **out);
void lexical_cache_free(struct lexical_cache *c);         /* NULL is fine */
/* Calls `take` for each list of the query, segment after segment, with the dense lists of a segment last. A segment has
 * at most 2 * q->n of them. A chunk's score is *unit * the sum of the weights of its codes, as lexical_search computes
 * it. Only pair_weight and counted of `how` are used. cache: NULL is fine. */
enum status lexical_query_lists(const struct lexical *x, const struct lexical_query *q,
                                const struct lexical_search *how, struct lexical_cache *cache, float *unit,
                                lexical_take_list *take, void *context);
