/* decoder_keys_internal.h -- key states of a pass, for the files that compute its layers. */
#pragma once
#include "decoder/decoder_internal.h"

/* Makes key states of layer `layer` (from 0) from rows x, which are the input of its MLP: normed, and projected if the
 * model has a projection for this layer. scratch: as many rows of hidden numbers; not used without a projection. */
void decoder_keys_make(struct decoder *d, struct mat keys, struct mat x, struct mat scratch, int layer);
/* Makes those of the pass's ids whose rows are in h. h begins at row `begin` of the pass and is the input of the MLP of
 * `layer` (from 0). */
void decoder_keys_keep(struct decoder *d, const struct decoder_pass *p, int layer, struct mat h, int64_t begin);
/* Frees the weights that decoder_passages.c packed. */
void decoder_packed_free(struct decoder *d);
