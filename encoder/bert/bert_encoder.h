/* bert_encoder.h -- a BERT-type encoder of others: ids of texts to one vector each (docs/external-encoders.md).
 *
 * The network is BERT's (Devlin et al. 2019): learned positions, LayerNorm after each sublayer, GELU; the vector is the
 * mean of the last layer's rows. Any device: it computes in `type`. Texts of a call lie one after the other without
 * padding, so no mask is needed; which texts are encoded together, and the number of threads, do not change any bit of
 * the results. One thread at a time per encoder; after open nothing is allocated but what a longer call needs. */
#pragma once
#include "encoder/bert/bert_config.h"
#include "kernels/device/device.h"

struct bert;
/* Reads config.json and the weights of a Hugging Face folder: model.safetensors, or pytorch_model.bin as torch.save
 * wrote it (base/formats/torch_checkpoint.h). Messages name file and tensor. Borrows the device until bert_close. */
enum status bert_open(struct bert **out, const char *folder, struct device *dev, enum dtype type);
void bert_close(struct bert *b);                          /* NULL is fine */
const struct bert_config *bert_config_of(const struct bert *b);
size_t bert_bytes(const struct bert *b);                  /* weights and activations, in memory of the device */
/* XXH3-128 of all weights that are used, and of the config */
void bert_fingerprint(const struct bert *b, uint8_t out[16]);
int64_t bert_batch(const struct bert *b);                 /* ids that fill the device: a call should have as many */

/* rows [n, hidden], memory of this process. Text i has the ids begin[i] .. begin[i+1]-1: from 1 to the config's
 * max_tokens, each from 0 to vocab_size-1. unit: vectors have length 1. */
enum status bert_encode(struct bert *b, float *rows, const int32_t *ids, const int64_t *begin, int64_t n, bool unit);
