/* state_landmarks.h -- landmarks of chunks for a Base LM, which has no encoder: they are made of its key states.
 *
 * The model reads a chunk alone, without text before it. The landmark is the mean of the last layer's key states
 * (decoder/decoder.h) over the chunk's ids, minus a centre, scaled to length 1. The centre is the mean over chunks of
 * ids that are spread over the vocabulary, so it depends on the weights alone. Without the centre all landmarks have
 * nearly the same direction. In a model with landmark_sketch a sketch of the chunk's words follows (word_sketch.h),
 * divided by sqrt(120), so that a product is the states' cosine and 1/120 of BM25 (docs/model.md). The bits do not
 * depend on the size of a call or on the number of threads. One thread at a time. */
#pragma once
#include "decoder/decoder_passages.h"
#include "encoder/encoder.h"
#include "indexer/landmarks/word_sketch.h"

#define STATE_LANDMARKS_COSINE 120.0f    /* the units of BM25 that a cosine is worth, as a search by both ranks */
enum { STATE_LANDMARKS_WORDS = 128 };    /* last ids of a text that its sketch reads */
struct state_landmarks;
/* A landmark has `dim` = model_config_landmark_size numbers. Everything is borrowed until state_landmarks_free, params
 * during the call. The decoder must be a Base LM's. STATUS_INVALID: of word_sketch_create. */
enum status state_landmarks_create(struct state_landmarks **out, struct device *device, struct decoder *decoder,
                                   const struct model_config *config, const struct params *params);
void state_landmarks_free(struct state_landmarks *s);     /* NULL is fine */
int64_t state_landmarks_batch(const struct state_landmarks *s);   /* a good number of chunks for one call */
/* Makes landmarks [n, dim], in host memory, from ids [n, chunk], where -1 follows the last id of a short chunk. */
enum status state_landmarks_make(struct state_landmarks *s, float *landmarks, const int32_t *ids, int64_t n);

/* The query of a text: its state part, and its sketch, or zeros instead where the search ranks by words itself. */
enum state_query { STATE_QUERY_SKETCH, STATE_QUERY_NO_SKETCH };
/* Makes the query of a text, in host memory, from the landmark of its last ids: replaces the sketch, ids [n]. */
void state_landmarks_sketch(struct state_landmarks *s, float *landmark, const int32_t *ids, int64_t n,
                            enum state_query how);
/* Queues the making of the query of a running text, [dim] on the device, from its ids and the key states of its last
 * `states` ids: rows from `first` on of a ring buffer on the device, of the decoder's type (kernels/lexical/hybrid.h).
 * Their mean is treated as that of a chunk. states = 0: its part is zeros. */
struct state_text { struct mat ring; int64_t first, states; const int32_t *ids; int64_t n; };
void state_landmarks_of_text(struct state_landmarks *s, float *query, const struct state_text *text,
                             enum state_query how);

/* A model's maker of landmarks: its encoder, or a Base LM's decoder with its key states. The members of the other kind
 * are NULL. */
struct chunk_tower { struct encoder *encoder; struct decoder *decoder; struct state_landmarks *states; };
/* Call chunk_tower_close after a failure, too. Device, config and weights are borrowed until then. */
enum status chunk_tower_open(struct chunk_tower *t, struct device *device, const struct model_config *config,
                             const struct weights *weights);
void chunk_tower_close(struct chunk_tower *t);            /* a zeroed struct is fine */
