/* decoder_train_internal.h -- for the files of the training decoder: decoder_train.c has creation and the forward pass,
 * decoder_train_backward.c the backward pass. */
#pragma once
#include "decoder/decoder_internal.h"
#include "decoder/decoder_train.h"
#include "model/block_backward.h"

/* Activations that an upper layer keeps for GCA's backward: norm = RMS(h), q = Wq norm, o = GCA(q), sum = h + Wo o.
 * lse has topk * n rows. */
struct decoder_train_gca_kept { struct mat norm, rstd, q, o, lse, sum; };

struct decoder_train_layer { struct block_kept kept; struct decoder_train_gca_kept gca; };

struct decoder_train_group {
    struct gca_pool pool;                /* of the last forward, borrowed */
    struct gca_blocks blocks;
    struct mat norm, rstd, query;        /* [N*C, d]: lmk_norms' output, and its projection (or the same matrix) */
};

struct decoder_train {
    struct device *dev;
    struct model_config config;
    struct decoder_weights w, g;
    enum dtype type;
    /* length: of a sequence; queries: N*C; positions: S, in a Base LM 1 */
    int64_t rows, length, queries, positions;
    bool recompute;
    int ready;                           /* the layer whose activations are in the shared buffers (recompute) */
    const int32_t *ids;
    void *memory;
    size_t bytes;
    struct decoder_train_layer *layers;
    struct decoder_train_group groups[MODEL_GROUPS_MAX];
    struct mat out, final, final_rstd;   /* the last layer's output and its norm */
    int key_layer;                       /* from 1; 0: no key states are kept */
    struct mat keys, dkeys; /* keys: a copy [n, d] with `recompute`, otherwise the layer's; dkeys: borrowed */
    struct mat grad;                     /* of the residual stream */
    struct mat dsum, dquery;             /* [n, d]; [N*C, d] */
    struct block_work work;
    struct recurrent_train recurrent;    /* of the recurrent layer, if there is one */
    float *dweight;                      /* [N*C*topk]: the part of one layer */
};

/* Returns the number of the first layer of a group; for group == groups, the number of layers. */
int decoder_train_first(const struct decoder_train *t, int group);
/* y data NULL: computes only the layer's activations. group -1: a lower layer. */
void decoder_train_layer_forward(struct decoder_train *t, int layer, int group, struct mat y);
/* Describes a layer's attention, with Landmark Attention including its blocks. */
struct attention_sequences decoder_train_attention(const struct decoder_train *t, const struct block_kept *k);
struct landmark_sequences decoder_train_landmarks(const struct decoder_train *t, const struct block_kept *k);
/* Returns the rows of x at the chunks' landmarks. */
struct mat decoder_train_landmark_rows(const struct decoder_train *t, struct mat x);
