/* decoder_batch.h -- the next id of several running texts in one pass over the weights.
 *
 * What a single id costs is reading the weights, on a GPU also the time from kernel to kernel. A batch reads them once
 * for all of its texts; each text keeps its own position, rings, neighbours and retriever.
 *
 * CPU: the numbers are those of decoder_forward, bit for bit: products sum as for one row (matmul.h, forward_each), all
 * else works on rows alone. An id that completes a chunk is not in a batch, since its landmark and retrieval follow at
 * once (decoder_forward, one of `chunk` ids).
 *
 * GPU (bf16; kernels/decode_rows/decode_rows.h): the numbers do not depend on the batch's other texts, their number and
 * their order, bit for bit. They differ from those of decoder_forward by rounding: sums have another order. An id
 * that completes a chunk is in the batch. Its landmark runs after the pass, text by text, and its retrieval when the
 * text's next call begins. */
#pragma once
#include "decoder/decoder.h"

enum { DECODER_BATCH_MAX = 64 };

/* Whether the state's next id may be in a batch. */
bool decoder_batch_takes(const struct decoder_state *s);
/* Feeds ids[i] to states[i] for 1 <= n <= DECODER_BATCH_MAX different states of one decoder, all of which
 * decoder_batch_takes. logits[i] [vocab_size]: after that id; on a GPU memory of device_allocate_host is faster.
 * STATUS_NO_MEMORY: no state has changed. On a GPU the call also fails if a retriever fails: that state cannot be used
 * again (decoder_state_spent) and has neither id nor logits, the others have both. Calls of one decoder must not run at
 * the same time. */
enum status decoder_batch_forward(struct decoder_state *const *states, float *const *logits, const int32_t *ids, int n);
/* On a CPU: also writes the key states of some ids, with the bits of decoder_forward. keys[i] is of states[i] and has
 * the members of struct decoder_output for an id; keys.data NULL: none. */
struct decoder_batch_keys { struct mat keys; int key_layer; bool states; };
enum status decoder_batch_forward_keys(struct decoder_state *const *states, float *const *logits, const int32_t *ids,
                                       const struct decoder_batch_keys *keys, int n);
/* Whether a retriever failed inside a call: the state can only be freed. */
bool decoder_state_spent(const struct decoder_state *s);
