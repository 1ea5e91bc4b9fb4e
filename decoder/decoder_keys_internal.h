/* decoder_keys_internal.h -- key states of a pass, for who runs its layers. */
#pragma once
#include "decoder/decoder_internal.h"

/* Key states of layer `layer` (from 0), made of rows x of what its MLP reads: normed, and projected where the model has
 * a projection for them. scratch: as many rows of hidden numbers, not read where there is none. */
void decoder_keys_make(struct decoder *d, struct mat keys, struct mat x, struct mat scratch, int layer);
/* Those of the pass' ids whose rows lie in h: rows begin .. of the pass, what the MLP of `layer` (from 0) reads. */
void decoder_keys_keep(struct decoder *d, const struct decoder_pass *p, int layer, struct mat h, int64_t begin);
/* What decoder_passages.c packed. */
void decoder_packed_free(struct decoder *d);
