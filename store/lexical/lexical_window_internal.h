/* lexical_window_internal.h -- the sums of a window: adjacent chunks of a segment whose scores are computed together.
 *
 * A sum is the score of a chunk by some lists of a query. It is exact for the lists that were added. Chunks of a window
 * are numbered from its first one. The selected chunks of a window are two arrays: chunks, which ascend, and their
 * sums. */
#pragma once
#include "store/lexical/lexical_query_internal.h"

/* LEXICAL_GROUP: sums are read in groups, so LEXICAL_EXCLUDED follows the last sum up to a multiple of it. */
enum { LEXICAL_WINDOW = 1 << 14, LEXICAL_GROUP = 16, LEXICAL_EXCLUDED = INT32_MIN / 2 };

/* Where a thread reads a sparse list. It only moves forward. */
struct lexical_cursor {
    struct lexical_block block;          /* n 0: none is decoded */
    int32_t weights[LEXICAL_BLOCK];      /* of its postings */
    uint32_t next;                       /* the block to decode next */
    int at;                              /* the first posting that was not added */
};
/* Writes the weights of a block's postings, from those by code + 1. */
void lexical_block_weights(int32_t out[LEXICAL_BLOCK], const struct lexical_block *b, const int32_t *weight,
                           enum lexical_vectors vectors);
void lexical_cursor_seek(struct lexical_cursor *c, const struct lexical_list *list, uint32_t chunk);

/* Adds a sparse list's weights to sums of the chunks begin .. end-1 of its segment. Returns false if the list is
 * damaged. */
bool lexical_window_add(int32_t *sums, struct lexical_cursor *c, const struct lexical_weighted *w, uint32_t begin,
                        uint32_t end);

struct lexical_selected {
    uint32_t *chunks;                    /* [LEXICAL_WINDOW], and 16 more that vectors may write */
    int32_t *sums;                       /* the same */
    int n;
};
/* Selects the chunks with low <= sum < high. */
void lexical_window_select(struct lexical_selected *out, const int32_t *sums, int n, int32_t low, int32_t high,
                           enum lexical_vectors vectors);
/* Adds a list's weights to the selected sums, and removes those that are below `least` then. `begin` is the window's
 * first chunk, a multiple of LEXICAL_GROUP. The second function returns false if the list is damaged. */
void lexical_selected_add_dense(struct lexical_selected *s, const struct lexical_weighted *w, uint32_t begin,
                                int32_t least, enum lexical_vectors vectors);
bool lexical_selected_add_sparse(struct lexical_selected *s, struct lexical_cursor *c, const struct lexical_weighted *w,
                                 uint32_t begin, int32_t least);
