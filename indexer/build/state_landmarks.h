/* state_landmarks.h -- landmarks of chunks for a Base LM, which has no encoder: they are made of its key states.
 *
 * The model reads a chunk alone, without text before it. The landmark is the mean of the last layer's key states
 * (decoder/decoder.h) over the chunk's ids, minus a centre, scaled to length 1. The centre is the mean over chunks of
 * ids that are spread over the vocabulary, so it depends on the weights alone. Without the centre all landmarks have
 * nearly the same direction. The bits do not depend on the size of a call or on the number of threads. One thread at a
 * time. */
#pragma once
#include "decoder/decoder_passages.h"
#include "encoder/encoder.h"

struct state_landmarks;
/* Everything is borrowed until state_landmarks_free. The decoder must be a Base LM's. */
enum status state_landmarks_create(struct state_landmarks **out, struct device *device, struct decoder *decoder,
                                   const struct model_config *config);
void state_landmarks_free(struct state_landmarks *s);     /* NULL is fine */
int64_t state_landmarks_batch(const struct state_landmarks *s);   /* a good number of chunks for one call */
/* Makes landmarks [n, hidden], in host memory, from ids [n, chunk], where -1 follows the last id of a short chunk. */
enum status state_landmarks_make(struct state_landmarks *s, float *landmarks, const int32_t *ids, int64_t n);

/* Queues the making of the query of a running text, [hidden] on the device, from the key states of its last n ids: rows
 * first .. first+n-1 of a ring buffer on the device, of the decoder's type (kernels/lexical/hybrid.h). It is their
 * mean, treated as that of a chunk. n = 0: zeros. */
void state_landmarks_of_text(const struct state_landmarks *s, float *query, struct mat ring, int64_t first, int64_t n);

/* A model's maker of landmarks: its encoder, or a Base LM's decoder with its key states. The members of the other kind
 * are NULL. */
struct chunk_tower { struct encoder *encoder; struct decoder *decoder; struct state_landmarks *states; };
/* Call chunk_tower_close after a failure, too. Device, config and weights are borrowed until then. */
enum status chunk_tower_open(struct chunk_tower *t, struct device *device, const struct model_config *config,
                             const struct weights *weights);
void chunk_tower_close(struct chunk_tower *t);            /* a zeroed struct is fine */
