/* lexical_share_internal.h -- makes the lists of those keys whose first id is in one range, as a segment has them.
 *
 * Several threads make one segment: each has a share, which is a range of ids. A segment has the lists of all tokens,
 * and then those of all pairs, both in the order of the first id. So in each of these two parts the lists of a share
 * follow those of the share before. A share's output depends neither on the other shares nor on memory. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { LEXICAL_SHARE_TOKENS, LEXICAL_SHARE_PAIRS, LEXICAL_SHARE_PARTS };
struct lexical_share;
struct lexical_share_range { int32_t begin, end; };       /* of ids */

/* Makes temporary files without a name in `folder`. max_ram: bytes for sorting. */
enum status lexical_share_create(struct lexical_share **out, const char *folder, int64_t vocab,
                                 struct lexical_share_range ids, uint64_t max_ram);
void lexical_share_free(struct lexical_share *s);         /* NULL is fine */
/* Adds the next chunk, with all of its ids, not only those of the range. */
enum status lexical_share_add(struct lexical_share *s, const int32_t *ids, int n, uint32_t chunk);
/* Sorts, and makes all lists; the segment has this number of chunks. lexical_share_add must not be
 * called after this. */
enum status lexical_share_finish(struct lexical_share *s, int64_t chunks);

/* Totals of the tokens or of the pairs; valid after lexical_share_finish. */
struct lexical_share_part {
    int64_t keys, postings;
    uint64_t bytes, entries;             /* of the lists, of their dictionary entries */
    uint64_t last_key;                   /* 0: there are no keys */
};
struct lexical_share_part lexical_share_part(const struct lexical_share *s, int part);
/* For any number of threads at a time. Reads bytes of the lists: first those of the tokens, then those of the pairs. */
enum status lexical_share_lists(struct lexical_share *s, void *out, size_t bytes, uint64_t offset);
/* Reads bytes of the dictionary entries. An entry has, as varints: the step from the share's key before, the number of
 * chunks with the key, the length of its list, and the length of the rest of its dictionary entry; then that rest. */
enum status lexical_share_entries(struct lexical_share *s, void *out, size_t bytes, uint64_t offset, size_t *got);
