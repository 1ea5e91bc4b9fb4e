/* candidate_features.h -- how the words of a query occur in the chunks that a search found, as numbers whose weighted
 * sum orders these chunks (docs/token-memory.md, "Order of the candidates").
 *
 * The words are the query's last CANDIDATE_WORDS ids. Word r is r ids before the last one. A candidate is a chunk with
 * the chunk after it in its document: its ids, in order. All sums run in float32, in a fixed order. */
#pragma once
#include <stdint.h>

enum { CANDIDATE_WORDS = 128, CANDIDATE_FEATURES = 23 };
/* The features in the order of their numbers:
 *   0-5    sum over words r, of equal ones the last, of idf * s(f): f occurrences in the chunk, s(f) as in
 *          store/lexical/lexical.h; r in 0-3, 4-7, 8-15, 16-31, 32-63, 64-127
 *   6-8    the same in the chunk after it; r in 0-15, 16-63, 64-127
 *   9-11   sum of the mean idf of the pairs of words r+1, r that the candidate has; r in 0-7, 8-31, 32-126
 *   12-13  sum of the idf of the runs of three words that it has, the last of which is r; r in 0-15, 16-125
 *   14-15  number of the runs of five words that it has; r in 0-31, 32-123
 *   16-19  the last word's idf if the candidate has it; the mean idf of the last pair; 1 for the last three; 1 for the
 *          last five words
 *   20     score of the search: BM25, or of landmarks
 *   21     cosine of the query's vector and the chunk's landmark; 0 without vectors
 *   22     number of ids of the chunk */
enum { CANDIDATE_SCORE = 20, CANDIDATE_COSINE, CANDIDATE_LENGTH };

/* A query, made by candidate_query_set. words: [vocab] of the caller, zeroed before the first call: which mask an id
 * has, 0 none. Bit r of mask m: word r is the id of m. idf [vocab], borrowed. */
struct candidate_query {
    int n, masks, vocab;
    int32_t word[CANDIDATE_WORDS];
    float word_idf[CANDIDATE_WORDS];
    unsigned __int128 mask[CANDIDATE_WORDS + 1];
    uint8_t *words;
};
/* ids [n], the last one first read; ids outside of 0 .. vocab-1 are no words. Undoes what the call before wrote in
 * q->words. */
void candidate_query_set(struct candidate_query *q, const int32_t *ids, int n, const float *idf);
/* Writes the features 0-19, and CANDIDATE_LENGTH; the other two are 0. ids [length]: of the candidate; the chunk is the
 * first `chunk` of them; -1 after the end. Several threads may read one query. */
void candidate_features(float out[CANDIDATE_FEATURES], const struct candidate_query *q, const int32_t *ids, int chunk,
                        int length);
/* The feature CANDIDATE_COSINE of a landmark score; by: sqrt of the landmark's size. 0 without a score (-infinity). */
float candidate_cosine(float landmark_score, float by);
/* The sum of weights times features, in float64 in the order of the features, rounded once. */
float candidate_sum(const double weights[CANDIDATE_FEATURES], const float features[CANDIDATE_FEATURES]);
/* at: which of the chunks that were found. */
struct candidate { float sum; int at; };
/* Sorts by sum, best first; equal sums by `at`. */
void candidates_sort(struct candidate *c, int n);
