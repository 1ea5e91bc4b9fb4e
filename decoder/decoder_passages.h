/* decoder_passages.h -- key states of many passages at a time. Each is read from its first id on, without text before
 * it.
 *
 * A passage is `length` ids, a whole number of chunks. Results equal those of decoder_forward on a new state without
 * retrieval up to rounding. Their bits depend neither on which passages are encoded together nor on the number of
 * threads. For one thread at a time per decoder.
 *
 * The products of a pass on a CPU may be rounded; sums and all other ops stay in float32. A file of stored keys records
 * the rounding (store/keys/store_keys.h). */
#pragma once
#include "decoder/decoder.h"

/* How the products of a CPU are rounded. Elsewhere both are the device's own. */
enum passages_rounding {
    PASSAGES_EXACT,                      /* float32 */
    PASSAGES_BF16, /* weights and activations to bf16, as on a GPU, if the processor has instructions for it */
    PASSAGES_ROUNDINGS
};
/* The rounding that passages get on a device with weights of a type, if `wanted` is requested. */
enum passages_rounding decoder_passages_rounding(struct device *dev, enum dtype type,
                                                 enum passages_rounding wanted);
struct decoder_passages;
/* The decoder is borrowed until decoder_passages_free. The memory and the recordings are the decoder's: all of the same
 * length and rounding share them. On a GPU they are kept until decoder_free. */
enum status decoder_passages_create(struct decoder_passages **out, struct decoder *d, int64_t length,
                                    enum passages_rounding rounding);
/* STATUS_UNSUPPORTED: decoder_passages_create refuses a decoder of this config. */
enum status decoder_passages_check(const struct model_config *config);
void decoder_passages_free(struct decoder_passages *p);   /* NULL is fine */
/* Records the ops for each number of passages that a GPU replays, which takes some milliseconds each, unless they are
 * recorded. Else the first calls of decoder_passages_encode with these numbers do it. key_layer: of these calls. */
void decoder_passages_prepare(struct decoder_passages *p, int key_layer);

/* Writes keys [n*length, cols], dense device memory in the weights' type, at ids [n*length] (negative: padding, whose
 * keys are finite numbers). cols = hidden: the key states of layer key_layer (from 1). cols = memory_size at the
 * model's memory_layer: their projection. */
void decoder_passages_encode(struct decoder_passages *p, struct mat keys, int key_layer, const int32_t *ids, int64_t n);
