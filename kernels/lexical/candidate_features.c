/* candidate_features.c -- see candidate_features.h. The words that an id equals are bits of a mask, so a run of words
 * is found by shifts: at each id of the candidate, bit r is set if the ids up to this one are those up to word r.
 * Compiled without fused multiply-add, so that a GPU computes the same bits. */
#include "kernels/lexical/candidate_features.h"
#include "kernels/lexical/saturated.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned __int128 bits;

void candidate_query_set(struct candidate_query *q, const int32_t *ids, int n, const float *idf) {
    for (int r = 0; r < q->n; r++)
        if (q->word[r] >= 0) q->words[q->word[r]] = 0;
    q->n = n < CANDIDATE_WORDS ? n : CANDIDATE_WORDS;
    q->masks = 0;
    q->mask[0] = 0;
    for (int r = 0; r < q->n; r++) {
        const int32_t id = ids[n - 1 - r];
        q->word[r] = id >= 0 && id < q->vocab ? id : -1;
        q->word_idf[r] = q->word[r] < 0 ? 0 : idf[id];
        if (q->word[r] < 0) continue;
        if (q->words[id] == 0) {
            q->words[id] = (uint8_t)++q->masks;
            q->mask[q->masks] = 0;
        }
        q->mask[q->words[id]] |= (bits)1 << r;
    }
}

/* Number of the lowest bit of x, which is not 0. */
static int lowest_bit(bits x) {
    const uint64_t low = (uint64_t)x;
    return low ? __builtin_ctzll(low) : 64 + __builtin_ctzll((uint64_t)(x >> 64));
}

/* The range of a bit among n ranges that end at `end`. */
static int range_of(int r, const int *end) {
    int i = 0;
    while (r >= end[i])
        i++;
    return i;
}

/* Sums over the words of idf * s(f), by the ranges of the last equal word. */
static void words_sum(float *out, const struct candidate_query *q, const uint16_t *count, const int *end) {
    for (int m = 1; m <= q->masks; m++) {
        if (count[m] == 0) continue;
        const int r = lowest_bit(q->mask[m]);
        out[range_of(r, end)] += q->word_idf[r] * saturated_count(count[m]);
    }
}

/* Which words end runs of 2, 3 and 5 ids that the candidate has, and which it has at all. */
struct runs {
    bits one, two, three, five;
};

static struct runs runs_find(uint16_t *in_chunk, uint16_t *after, const struct candidate_query *q, const int32_t *ids,
                             int chunk, int length) {
    struct runs all = {0};
    bits one = 0, two = 0, three = 0, three_before = 0;
    for (int i = 0; i < length; i++) {
        const int m = (uint32_t)ids[i] < (uint32_t)q->vocab ? q->words[ids[i]] : 0;
        const bits now = q->mask[m], pair = now & one >> 1, triple = pair & two >> 1;
        (i < chunk ? in_chunk : after)[m]++;
        all.one |= now;
        all.two |= pair;
        all.three |= triple;
        all.five |= triple & three_before >> 2;
        three_before = three;
        one = now, two = pair, three = triple;
    }
    return all;
}

static void runs_sum(float *out, const struct candidate_query *q, const struct runs *runs) {
    static const int pair_end[] = {8, 32, CANDIDATE_WORDS}, triple_end[] = {16, CANDIDATE_WORDS},
                     five_end[] = {32, CANDIDATE_WORDS};
    for (bits left = runs->two; left; left &= left - 1) {
        const int r = lowest_bit(left);
        out[9 + range_of(r, pair_end)] += (q->word_idf[r] + q->word_idf[r + 1]) / 2;
    }
    for (bits left = runs->three; left; left &= left - 1) {
        const int r = lowest_bit(left);
        out[12 + range_of(r, triple_end)] += q->word_idf[r] + q->word_idf[r + 1] + q->word_idf[r + 2];
    }
    for (bits left = runs->five; left; left &= left - 1)
        out[14 + range_of(lowest_bit(left), five_end)] += 1;
}

void candidate_features(float out[CANDIDATE_FEATURES], const struct candidate_query *q, const int32_t *ids, int chunk,
                        int length) {
    static const int chunk_end[] = {4, 8, 16, 32, 64, CANDIDATE_WORDS}, after_end[] = {16, 64, CANDIDATE_WORDS};
    uint16_t in_chunk[CANDIDATE_WORDS + 1], after[CANDIDATE_WORDS + 1];
    int own = 0;
    memset(in_chunk, 0, (size_t)(q->masks + 1) * sizeof *in_chunk);
    memset(after, 0, (size_t)(q->masks + 1) * sizeof *after);
    memset(out, 0, CANDIDATE_FEATURES * sizeof *out);
    while (own < chunk && ids[own] >= 0)
        own++;
    const struct runs runs = runs_find(in_chunk, after, q, ids, chunk, length);
    words_sum(out, q, in_chunk, chunk_end);
    words_sum(out + 6, q, after, after_end);
    runs_sum(out, q, &runs);
    if (runs.one & 1) out[16] = q->word_idf[0];
    if (runs.two & 1) out[17] = (q->word_idf[0] + q->word_idf[1]) / 2;
    if (runs.three & 1) out[18] = 1;
    if (runs.five & 1) out[19] = 1;
    out[CANDIDATE_LENGTH] = (float)own;
}

float candidate_cosine(float landmark_score, float by) {
    return isfinite(landmark_score) ? landmark_score * by : 0;
}

float candidate_sum(const double weights[CANDIDATE_FEATURES], const float features[CANDIDATE_FEATURES]) {
    double sum = 0;
    for (int f = 0; f < CANDIDATE_FEATURES; f++)
        sum += weights[f] * (double)features[f];
    return (float)sum;
}

static int candidate_before(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    return x->sum != y->sum ? (x->sum < y->sum) - (x->sum > y->sum) : x->at - y->at;
}

void candidates_sort(struct candidate *c, int n) {
    qsort(c, (size_t)n, sizeof *c, candidate_before);
}
