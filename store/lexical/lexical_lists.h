/* lexical_lists.h -- the lists of a query as bytes of the segments, for a search outside of this folder (on a GPU). The
 * bytes of a list: lexical_format_internal.h. */
#pragma once
#include "store/lexical/lexical.h"

enum { LEXICAL_LIST_CODES = 3 };

/* All lists of a segment; valid as long as the index. */
struct lexical_postings { const uint8_t *bytes; uint64_t size; };
struct lexical_postings lexical_segment_postings(const struct lexical *x, int64_t segment);

/* Every list against dictionary and counts, without the checksums of lexical_verify: STATUS_CORRUPT. What reads the
 * lists afterwards need not check them. */
enum status lexical_check(const struct lexical *x, struct threads *threads);

struct lexical_query_list {
    int64_t segment;
    uint64_t begin;                      /* in the segment's postings */
    uint32_t bytes, n;                   /* bytes: without the table of the blocks, which follows; n: postings */
    uint32_t form;                       /* of a list of one block */
    bool dense;
    int32_t weight[LEXICAL_LIST_CODES];  /* of each code */
};
typedef void lexical_take_list(void *context, const struct lexical_query_list *list);
/* Calls `take` for each list of the query, segment after segment, a segment's dense lists last: at most 2 * q->n a
 * segment. A chunk's score is *unit * the sum of the weights of its codes, as lexical_search computes it. Of `how`,
 * pair_weight and counted matter. */
enum status lexical_query_lists(const struct lexical *x, const struct lexical_query *q,
                                const struct lexical_search *how, float *unit, lexical_take_list *take,
                                void *context);
