/* decoder_batch.h -- the next id of several running texts in one pass over the weights.
 *
 * What a single id costs on a CPU is reading the weights. A batch reads them once for all of its texts; each text keeps
 * its own position, rings, neighbours and retriever. The numbers are those of decoder_forward, bit for bit: products
 * sum as for one row (matmul.h, forward_each), all else works on rows alone.
 *
 * Not in a batch: an id that completes a chunk, since its landmark and retrieval follow at once (decoder_forward, one
 * of `chunk` ids); texts on a GPU, where one kernel decodes one text's id (kernels/decode_step) and a batch would need
 * attention and GCA over rows of different rings and pools. */
#pragma once
#include "decoder/decoder.h"

enum { DECODER_BATCH_MAX = 64 };

/* Whether the state's next id may be in a batch. */
bool decoder_batch_takes(const struct decoder_state *s);
/* Feeds ids[i] to states[i] for 1 <= n <= DECODER_BATCH_MAX states of one decoder, each there once and each one that
 * decoder_batch_takes. logits[i] [vocab_size]: after that id. Fails for lack of memory alone; no state has changed
 * then. Not two at a time, as all calls of one decoder. */
enum status decoder_batch_forward(struct decoder_state *const *states, float *const *logits, const int32_t *ids, int n);
