/* state_landmarks.h -- landmarks of chunks for a Base LM, which has no encoder: they are made of its own states.
 *
 * A chunk is read with nothing before it. Its landmark is the mean of the last layer's key states (decoder/decoder.h)
 * over its ids, less a centre, scaled to length 1. The centre is the mean over some chunks of ids spread over the
 * vocabulary, which the weights alone decide: without it all landmarks point the same direction. Which chunks are made
 * together, and the number of threads, change no bit. One thread at a time. */
#pragma once
#include "decoder/decoder.h"
#include "encoder/encoder.h"

struct state_landmarks;
/* All borrowed until state_landmarks_free. The decoder is a Base LM's. */
enum status state_landmarks_create(struct state_landmarks **out, struct device *device, struct decoder *decoder,
                                   const struct model_config *config);
void state_landmarks_free(struct state_landmarks *s);     /* NULL is fine */
int64_t state_landmarks_batch(const struct state_landmarks *s);   /* chunks: a good size of a call */
/* landmarks [n, hidden], memory of this process, of ids [n, chunk] (-1 after the end of a short chunk). A query for the
 * chunks that resemble a text is the landmark of its last ids. */
enum status state_landmarks_make(struct state_landmarks *s, float *landmarks, const int32_t *ids, int64_t n);

/* What makes a model's landmarks: its encoder or, of a Base LM, its decoder and those states. The others are NULL. */
struct chunk_tower { struct encoder *encoder; struct decoder *decoder; struct state_landmarks *states; };
/* On failure *t is to be closed, too. Device, config and weights are borrowed until chunk_tower_close. */
enum status chunk_tower_open(struct chunk_tower *t, struct device *device, const struct model_config *config,
                             const struct weights *weights);
void chunk_tower_close(struct chunk_tower *t);            /* a zeroed struct is fine */
