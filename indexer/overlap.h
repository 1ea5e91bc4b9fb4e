/* overlap.h -- what texts share with the documents of a store: the contamination of an evaluation.
 *
 * For each token of a text: the longest run of tokens that ends there and also stands in one document of the store. So
 * the longest shared run of a text, and how many of its 13-grams the store has, are exact; no hash stands for a run.
 * Memory grows with the texts (some 130 bytes a token), not with the store, which is read once, in time proportional to
 * its tokens however often runs repeat. One thread at a time. */
#pragma once
#include "base/progress.h"
#include "store/store.h"

enum { OVERLAP_GRAM = 13 };

struct overlap;
enum status overlap_create(struct overlap **out);
void overlap_free(struct overlap *o);                     /* NULL is fine */
/* One text; texts are counted from 0, *first (NULL is fine) is the number of its first token among all. A negative id
 * matches nothing. STATUS_UNSUPPORTED beyond 2^29 tokens of all texts. */
enum status overlap_add(struct overlap *o, int64_t *first, const int32_t *ids, int64_t n);
/* A document of the store that does not count, for any text: one that is evaluated and kept from its own retrieval. */
enum status overlap_exclude(struct overlap *o, int64_t document);
/* Reads the store, once, after the last text; then the rest is known. STATUS_INTERRUPTED on a stop request. */
enum status overlap_find(struct overlap *o, struct store_view *view, const struct progress *progress);

int64_t overlap_texts(const struct overlap *o);
int64_t overlap_tokens(const struct overlap *o);          /* of all texts so far: the number of the next one's first */
int32_t overlap_ending(const struct overlap *o, int64_t token);           /* the longest shared run that ends here */
struct overlap_text {
    int64_t tokens, longest;             /* longest shared run */
    int64_t grams, shared;               /* runs of 13 tokens at all its positions; those that the store has */
    int64_t covered;                     /* tokens inside of shared runs of 13 and more */
};
/* reach[i]: how many of `lengths` [levels], the shortest first, a shared run has that contains token first + i and lies
 * within the n tokens from `first` on, which are of one text. */
void overlap_reach(const struct overlap *o, uint8_t *reach, int64_t first, int64_t n, const int *lengths, int levels);
struct overlap_text overlap_text(const struct overlap *o, int64_t text);
