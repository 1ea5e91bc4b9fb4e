/* encoder_internal.h -- the encoder's weights, packed for products, and the memory of one worker. */
#pragma once
#include "encoder/encoder.h"
#include "kernels/block.h"

/* A matrix packed by dev->ops->matmul->pack. */
struct encoder_matrix { void *packed; int64_t out, in; };

struct encoder_layer {
    struct mat input_norm, post_norm;
    struct encoder_matrix qkv, q, kv, o, gate_up, down;
};

struct encoder_weights {
    struct mat embedding, prenorm, norm;
    struct encoder_layer *layers;
    struct encoder_matrix chunk_k, chunk_v, chunk_kv;    /* k and v where a chunk's rows go straight to its slot, else kv */
    struct encoder_matrix landmark;      /* packed NULL without retrieval_proj */
    void *memory;                        /* all packed matrices */
    size_t bytes;
};

enum status encoder_weights_create(struct encoder_weights *out, struct device *dev, const struct model_config *config,
                                   const struct weights *weights);
void encoder_weights_free(struct encoder_weights *w, struct device *dev);
