/* bert_encoder.h -- an external encoder of BERT's type: the ids of a text give one vector (docs/external-encoders.md).
 *
 * The network is BERT's (Devlin et al. 2019): learned positions, LayerNorm after each sublayer, GELU; the vector is the
 * mean of the last layer's rows. It runs on any device and computes in `type`. The texts of a call are stored one after
 * another without padding, so no mask is needed. The bits of the results depend neither on which texts are encoded
 * together nor on the number of threads. For one thread at a time per encoder. After bert_open memory is allocated only
 * for a call that is longer than all before it. */
#pragma once
#include "encoder/bert/bert_config.h"
#include "kernels/device/device.h"

struct bert;
/* Reads config.json and the weights of a Hugging Face folder: model.safetensors, or pytorch_model.bin in the format of
 * torch.save (base/formats/torch_checkpoint.h). Messages name file and tensor. The device is borrowed until
 * bert_close. */
enum status bert_open(struct bert **out, const char *folder, struct device *dev, enum dtype type);
void bert_close(struct bert *b);                          /* NULL is fine */
const struct bert_config *bert_config_of(const struct bert *b);
size_t bert_bytes(const struct bert *b);                  /* device memory of weights and activations */
/* Computes XXH3-128 of all weights that are used, and of the config. */
void bert_fingerprint(const struct bert *b, uint8_t out[16]);

/* Writes rows [n, hidden], on the host. Text i has the ids begin[i] .. begin[i+1]-1: at least 1 and at most the
 * config's max_tokens ids, each from 0 to vocab_size-1. unit: scales the vectors to length 1. */
enum status bert_encode(struct bert *b, float *rows, const int32_t *ids, const int64_t *begin, int64_t n, bool unit);
