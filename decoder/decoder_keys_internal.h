/* decoder_keys_internal.h -- key states of a pass, for who runs its layers. */
#pragma once
#include "decoder/decoder_internal.h"

/* Those of the pass' ids whose rows lie in h: rows begin .. of the pass, what the MLP of `layer` (from 0) reads. */
void decoder_keys_keep(struct decoder *d, const struct decoder_pass *p, int layer, struct mat h, int64_t begin);
