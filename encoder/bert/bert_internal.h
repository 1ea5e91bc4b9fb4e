/* bert_internal.h -- used by bert_encoder.c (the layers) and bert_weights.c (their weights). */
#pragma once
#include "encoder/bert/bert_encoder.h"
#include "kernels/ops.h"

/* A matrix packed by dev->ops->matmul->pack, and the bias that is added to its product. */
struct bert_linear { void *packed; int64_t out, in; struct mat bias; };

struct bert_layer {
    struct bert_linear qkv, output, up, down;
    struct bert_norm attention_norm, norm;
};

struct bert_weights {
    struct mat words, positions, type;   /* type: row 0 of the table */
    struct bert_norm norm;               /* of the sum of embeddings */
    struct bert_layer *layers;
    void *memory; size_t bytes;
    uint8_t fingerprint[16];
};
/* Reads the weights from the folder. */
enum status bert_weights_load(struct bert_weights *out, const char *folder, const struct bert_config *config,
                              struct device *dev, enum dtype type);
void bert_weights_free(struct bert_weights *w, struct device *dev);       /* a zeroed one is fine */
