/* lexical.h -- finds chunks by their tokens: exact BM25 over token ids and pairs of adjacent ids.
 *
 *   score(query, chunk) = sum over distinct tokens t of idf(t) * s(f(t)) + pair_weight * (the same over pairs)
 *   idf(t) = ln(1 + (N - n(t) + 0.5) / (n(t) + 0.5))     N: chunks of all segments; n(t): those that contain t
 *   s(f) = f * 2.2 / (f + 1.2)                            k1 = 1.2; f: occurrences of t in the chunk, 4 if above 2
 *
 * BM25's b is 0, since all chunks except a document's last have the same length. Pairs do not cross chunks. Sums are in
 * fixed point, so the bits of a score do not depend on the order, the threads or the segments. Segment files are
 * immutable; lexical_format_internal.h describes them. Several threads may search an open index at the same time. */
#pragma once
#include "base/progress.h"
#include "base/system/threads.h"
#include "store/store.h"

enum {
    LEXICAL_VOCAB_MAX = 1 << 18,         /* token ids are below this */
    LEXICAL_CHUNKS_MAX = 1 << 24,        /* chunks of a segment; a larger range takes several segments */
    LEXICAL_QUERY_MAX = 1024,            /* ids of a query */
};

struct lexical;
/* Maps segment files. STATUS_MISMATCH unless they have one vocabulary and their chunk ranges ascend without overlap.
 * Checks header, footer and sizes. Lists are checked while they are read, so damage ends a search with
 * STATUS_CORRUPT. */
enum status lexical_open(struct lexical **out, const char *const *paths, int64_t n);
void lexical_close(struct lexical *x);                    /* NULL is fine */

struct lexical_info { int64_t segments, chunks, tokens, keys, postings; uint64_t bytes; int vocab_size; };
void lexical_info(const struct lexical *x, struct lexical_info *out);

/* The chunks of one segment; `segment` is below the number that lexical_info gives. */
struct lexical_range { int64_t first_chunk, chunks; };
struct lexical_range lexical_segment_range(const struct lexical *x, int64_t segment);
/* Checks one segment file: every byte against its checksums, every list against the dictionary and the counts. */
enum status lexical_verify(struct lexical_range *out, const char *path, const struct progress *progress);

struct lexical_cache;
struct lexical_query { const int32_t *ids; int n; };      /* ids outside the vocabulary, such as -1, match nothing */
struct lexical_search {
    int k;
    float pair_weight; /* 0: no pairs; LEXICAL_PAIR_WEIGHT, unless another value was measured to be better */
    /* true: repeated tokens of a query count each time; false: once, which ranks better in measurements */
    bool counted;
    const struct store_range *exclude;   /* [n_queries] chunk ids that are never returned, or NULL */
    /* also never returned, for all queries: chunks that a view lost after its segments were made */
    struct store_dropped absent;
    struct threads *threads;             /* NULL: the calling thread only */
    /* Of one query: what the search before learnt (lexical_lists.h), which makes that of a similar query faster. Hits
     * and scores do not depend on it. NULL is fine. */
    struct lexical_cache *cache;
};
#define LEXICAL_PAIR_WEIGHT 0.5f

/* Writes hits[n_queries * k], best first; chunk -1 if fewer than k chunks share a token with the query. The order is
 * that of the sums in fixed point, which have more bits than a score: equal sums by smaller id, and equal scores of
 * unequal sums by the sums. */
enum status lexical_search(const struct lexical *x, struct store_hit *hits, const struct lexical_query *queries,
                           int64_t n_queries, const struct lexical_search *how);
/* Computes scores[n] of given chunks, in any order. They equal those of lexical_search bit for bit; 0 for ids that no
 * segment covers. Only pair_weight, counted and cache of `how` are used. */
enum status lexical_score(const struct lexical *x, float *scores, const int64_t *chunks, int64_t n,
                          const struct lexical_query *query, const struct lexical_search *how);
