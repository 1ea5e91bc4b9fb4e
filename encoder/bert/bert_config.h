/* bert_config.h -- the sizes of a BERT-type encoder, from the files of its Hugging Face folder. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bert_config {
    int32_t vocab_size, hidden, ffn, heads, layers, positions, types;
    float eps;                           /* of LayerNorm */
    int32_t max_tokens;                  /* of a text, with [CLS] and [SEP]; at most `positions` */
    bool lower;                          /* text is in lower case before the tokenizer reads it */
};

/* Reads config.json and, of sentence-transformers' files, modules.json (Transformer, Pooling, Normalize),
 * 1_Pooling/config.json (the pooling must be the mean) and sentence_bert_config.json (max_seq_length, do_lower_case).
 * STATUS_UNSUPPORTED: the network differs from BERT's; the message names
 * the key. STATUS_INVALID: an impossible value; the message has its limits. */
enum status bert_config_load(struct bert_config *out, const char *folder);
/* Read the bytes of each file; the last changes *out if the file sets a value. */
enum status bert_config_parse(struct bert_config *out, const char *name, const void *data, size_t bytes);
enum status bert_modules_parse(const char *name, const void *data, size_t bytes);
enum status bert_pooling_parse(const char *name, const void *data, size_t bytes);
enum status bert_length_parse(struct bert_config *out, const char *name, const void *data, size_t bytes);
