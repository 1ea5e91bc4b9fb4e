/* lexical.h -- chunks found by their tokens: BM25 over token ids and pairs of neighbouring ids, exact.
 *
 *   score(query, chunk) = sum over distinct tokens t of idf(t) * s(f(t)) + pair_weight * (the same over pairs)
 *   idf(t) = ln(1 + (N - n(t) + 0.5) / (n(t) + 0.5))     N chunks, n(t) with t: over all segments, which so rank as one
 *   s(f) = f * 2.2 / (f + 1.2)                            k1 = 1.2; f: how often t is in the chunk, above 2 it is 4
 *
 * b = 0: all chunks but a document's last have the same length. Pairs do not cross chunks. Sums are kept in fixed
 * point, so a score has the same bits whatever the order, the threads and the segments. Segment files:
 * lexical_format_internal.h, immutable. An open index may be searched by several threads at once. */
#pragma once
#include "base/progress.h"
#include "base/system/threads.h"
#include "store/store.h"

enum {
    LEXICAL_VOCAB_MAX = 1 << 18,         /* ids are below */
    LEXICAL_CHUNKS_MAX = 1 << 24,        /* of a segment; a larger range takes several */
    LEXICAL_QUERY_MAX = 1024,            /* ids of a query */
};

struct lexical;
/* Maps segment files of one vocabulary, whose chunk ranges rise and do not overlap (else STATUS_MISMATCH). Checks
 * header, footer and sizes; lists are checked while they are read, so damage ends a search with STATUS_CORRUPT. */
enum status lexical_open(struct lexical **out, const char *const *paths, int64_t n);
void lexical_close(struct lexical *x);                    /* NULL is fine */

struct lexical_info { int64_t segments, chunks, tokens, keys, postings; uint64_t bytes; int vocab_size; };
void lexical_info(const struct lexical *x, struct lexical_info *out);

/* The chunks of one segment; segment: below lexical_info's. */
struct lexical_range { int64_t first_chunk, chunks; };
struct lexical_range lexical_segment_range(const struct lexical *x, int64_t segment);
/* Checks one segment file: every byte against its checksums, every list against dictionary and counts. */
enum status lexical_verify(struct lexical_range *out, const char *path, const struct progress *progress);

struct lexical_query { const int32_t *ids; int n; };      /* ids outside the vocabulary (-1, say) match nothing */
struct lexical_search {
    int k;
    float pair_weight;                   /* 0: no pairs; LEXICAL_PAIR_WEIGHT where nothing else was measured */
    /* repeated tokens of a query count each time; false: once, which ranks better (measured) */
    bool counted;
    const struct store_range *exclude;   /* [n_queries], or NULL: chunk ids never to be returned */
    struct store_dropped absent;         /* the same for all queries: what a view lost after its segments were made */
    struct threads *threads;             /* NULL: this thread */
};
#define LEXICAL_PAIR_WEIGHT 0.5f

/* hits[n_queries * k], best first, ties by smaller id; chunk -1 where fewer than k share a token with the query. */
enum status lexical_search(const struct lexical *x, struct store_hit *hits, const struct lexical_query *queries,
                           int64_t n_queries, const struct lexical_search *how);
/* scores[n] of given chunks, in any order, with the bits that lexical_search gives; 0 for ids that no segment covers.
 * Of `how`, pair_weight and counted matter. */
enum status lexical_score(const struct lexical *x, float *scores, const int64_t *chunks, int64_t n,
                          const struct lexical_query *query, const struct lexical_search *how);
