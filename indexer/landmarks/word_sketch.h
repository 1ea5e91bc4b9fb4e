/* word_sketch.h -- sketches of words: vectors whose inner product is BM25 of a text's and a chunk's ids, without pairs,
 * and noise that falls with the root of their size (docs/model.md, "Landmarks with a sketch").
 *
 * Each id t has a vector r(t) of length 1. The sketch of a chunk is the sum over its distinct ids of
 * s(f) sqrt(idf) r(t) (f: how often the chunk has t; s as in store/lexical/lexical.h), the sketch of a text that of
 * sqrt(idf) r(t). Ids that add most to the noise have a coordinate of their own. The others have random signs in all
 * other coordinates. Sums run in float32 in the order of the ids' first occurrences. Several threads may use one
 * struct. */
#pragma once
#include "base/status.h"
#include <stdint.h>

struct word_sketch;
/* idf [vocab]: copied. size: numbers of a sketch, at least 8. STATUS_INVALID: an idf is negative or not finite. */
enum status word_sketch_create(struct word_sketch **out, const float *idf, int vocab, int size);
void word_sketch_free(struct word_sketch *s);             /* NULL is fine */
/* Writes a sketch, [size]. ids [n]; those outside of 0 .. vocab-1 are left out. */
void word_sketch_chunk(const struct word_sketch *s, float *out, const int32_t *ids, int64_t n);
void word_sketch_text(const struct word_sketch *s, float *out, const int32_t *ids, int64_t n);
/* The ids that have a coordinate of their own, in order of their coordinates, 0 first. */
int word_sketch_own(const struct word_sketch *s, const int32_t **ids);
