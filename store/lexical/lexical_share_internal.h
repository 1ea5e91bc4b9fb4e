/* lexical_share_internal.h -- the lists of those keys whose first id is in a range, as a segment has them.
 *
 * A segment's keys are its tokens and then its pairs, both by the first id. So the lists of consecutive ranges of ids
 * follow one another in each of the two parts, and several threads make one segment: each has a share. What a share
 * gives depends neither on the other shares nor on memory. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { LEXICAL_SHARE_TOKENS, LEXICAL_SHARE_PAIRS, LEXICAL_SHARE_PARTS };
struct lexical_share;
struct lexical_share_range { int32_t begin, end; };       /* of ids */

/* Temporary files without a name are in `folder`. max_ram: bytes for sorting. */
enum status lexical_share_create(struct lexical_share **out, const char *folder, int64_t vocab,
                                 struct lexical_share_range ids, uint64_t max_ram);
void lexical_share_free(struct lexical_share *s);         /* NULL is fine */
/* The next chunk, of any ids below the vocabulary. */
enum status lexical_share_add(struct lexical_share *s, const int32_t *ids, int n, uint32_t chunk);
/* Sorts, and makes all lists of a segment of so many chunks. No more is added. */
enum status lexical_share_finish(struct lexical_share *s, int64_t chunks);

/* Of the tokens or the pairs, after finish. */
struct lexical_share_part { int64_t keys, postings; uint64_t bytes; };
struct lexical_share_part lexical_share_part(const struct lexical_share *s, int part);
/* Bytes of the lists: those of the tokens, then those of the pairs. */
enum status lexical_share_lists(struct lexical_share *s, void *out, size_t bytes, uint64_t offset);
/* Bytes of the entries: for each key, as varints: step from the key before (of the share), document frequency, bytes of
 * its list, bytes of what follows in the dictionary, and that. */
enum status lexical_share_entries(struct lexical_share *s, void *out, size_t bytes, uint64_t offset, size_t *got);
