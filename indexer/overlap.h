/* overlap.h -- finds runs of tokens that texts share with the documents of a store: the contamination of an evaluation.
 *
 * For each token of a text this finds the longest run of tokens that ends there and also occurs in one document of the
 * store. The longest shared run of a text and the number of its 13-grams in the store are exact, because no hashes are
 * compared. Memory grows with the texts (about 130 bytes per token), not with the store. The store is read once, in
 * time proportional to its tokens, also if runs repeat. For one thread at a time. */
#pragma once
#include "base/progress.h"
#include "store/store.h"

enum { OVERLAP_GRAM = 13 };

struct overlap;
enum status overlap_create(struct overlap **out);
void overlap_free(struct overlap *o);                     /* NULL is fine */
/* Adds one text. Texts are numbered from 0; *first (NULL is fine) is the number of its first token among all tokens. A
 * negative id matches nothing. STATUS_UNSUPPORTED: more than 2^29 tokens in all texts. */
enum status overlap_add(struct overlap *o, int64_t *first, const int32_t *ids, int64_t n);
/* Excludes a document of the store for all texts: a document that is itself evaluated, and therefore not retrieved. */
enum status overlap_exclude(struct overlap *o, int64_t document);
/* Reads the store. Call it once, after the last text and before the functions below. STATUS_INTERRUPTED: `progress`
 * requested a stop. */
enum status overlap_find(struct overlap *o, struct store_view *view, const struct progress *progress);

/* Number of tokens of all texts so far. The first token of the next text has this number. */
int64_t overlap_tokens(const struct overlap *o);
int32_t overlap_ending(const struct overlap *o, int64_t token); /* length of the longest shared run that ends here */
struct overlap_text {
    int64_t tokens, longest;             /* longest: the longest shared run */
    /* grams: runs of 13 tokens, at all positions; shared: those that the store has, too */
    int64_t grams, shared;
    int64_t covered;                     /* tokens in shared runs of at least 13 tokens */
};
/* Describes the n tokens from `first` on, which are of one text: reach[i] is the number of `lengths` [levels]
 * (ascending) for which a shared run of at least that length contains token first + i and lies within the n tokens. */
void overlap_reach(const struct overlap *o, uint8_t *reach, int64_t first, int64_t n, const int *lengths, int levels);
struct overlap_text overlap_text(const struct overlap *o, int64_t text);
