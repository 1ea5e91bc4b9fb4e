/* memory_loss.h -- the loss through a token memory (docs/token-memory.md, Training): p = (1 - g) p_LM + g p_mem.
 *
 * Rows are the decoder's (decoder_train.h). A block is `block_rows` rows: a chunk with its landmark, or a Base LM's
 * enc_chunk_size positions. A row reads, in one softmax:
 *   its own past: up to `past` rows of its sequence before it;
 *   other sequences: the micro-batch is cut into groups of `group` sequences, and a block reads the states of the
 *     group's others, except blocks that share a document with it;
 *   passages: chunks of a corpus, encoded again by the trunk. Each block has `passages` of its own and reads the `read`
 *     most recent ones of its sequence: those found for it and for blocks before it. `unread` more are encoded, for
 *     memory_loss_gains alone.
 *
 * Key states come from layer memory_layer, through memory.key_proj where the model has one. The gate is linear in
 * MEMORY_LOSS_FEATURES numbers; it, log_tau and the mixture are computed in double precision on the host. One thread at
 * a time; nothing is allocated after create. Equal inputs give equal bits. */
#pragma once
#include "decoder/decoder_train.h"
#include "model/model_config.h"
#include "train/step/batch.h"
#include <stdbool.h>

/* How far the gradient of p_mem goes. */
enum memory_gradient {
    MEMORY_GRADIENT_ALL,                 /* states and keys, into the trunk */
    MEMORY_GRADIENT_STATES,              /* not into keys: they are constants */
    MEMORY_GRADIENT_PROJECTION,          /* not into the trunk, which learns from its own loss alone, as a Base LM */
};
const char *memory_gradient_name(enum memory_gradient gradient);   /* "all", "states", "projection" */
int memory_gradient_find(const char *name);               /* -1: no such name */

struct memory_loss_config {
    int sequences;
    int64_t chunks;                      /* as in struct batch */
    int64_t past;                        /* ids; 0: none */
    int group;                           /* 0 or 1: none */
    int passages, read, span;            /* of a block (0: none); at least `passages`; chunks of a passage */
    int unread;                          /* more passages of a block, with `passages` above 0 */
    enum memory_gradient gradient;
    bool recompute;
};

/* w[0] counts always; then lse, nearest / tau, sum of squared weights, largest weight (token_memory.h), the first two
 * clamped and divided by 10. Only lse has a gradient. gate = 10 w.f, so that w and an embedding may share a rate. */
enum { MEMORY_LOSS_FEATURES = 5 };
/* weight 0 to 1: the mixture's part of the loss. alone: other sequences are not read, as where a text is scored. */
struct memory_loss_now { float weight; bool drop_past, alone; };
/* Over scored rows: of -log p, of g, and of the memory's part of p(target). */
struct memory_loss_sums { double nll, gate, share; };

struct memory_loss;
/* weights, gradients: the model's, borrowed; `parameters`: float32 weights, the same layout. */
enum status memory_loss_create(struct memory_loss **out, struct device *dev, const struct model_config *model,
                               const struct memory_loss_config *config, const struct weights *weights,
                               const struct weights *gradients, const struct weights *parameters);
void memory_loss_free(struct memory_loss *m);             /* NULL is fine */
size_t memory_loss_bytes(const struct memory_loss *m);    /* of device memory held */

/* Before a step's first micro-batch and before an evaluation: reads log_tau and the gate; clears sums of gradients. */
void memory_loss_begin(struct memory_loss *m);
/* From the decoder's key states and its losses nll [n] (device): the mixture's losses of each row in
 * memory_loss_nll. */
void memory_loss_forward(struct memory_loss *m, const struct batch *batch, struct mat states, const float *nll,
                         const int32_t *targets, struct memory_loss_now now);
const float *memory_loss_nll(const struct memory_loss *m);    /* [n] on the host, of the last forward */
/* What each row's own loss counts beside the mixture [n], on the device: for decoder_train_loss. */
const float *memory_loss_row_weights(const struct memory_loss *m);
/* Gradients of scale times the weighted sum of -log p: into the model's gradients, and dstates for
 * decoder_train_add_dkeys (data NULL: none). */
struct mat memory_loss_backward(struct memory_loss *m, const int32_t *targets, float scale);
/* What the reader gains from each passage: gain [blocks * (passages + unread)] on the host, the nats that the scored
 * rows of its block save when they read it alone; 0 where there is none. After memory_loss_backward, whose input it
 * overwrites. Nothing of this has a gradient. */
void memory_loss_gains(struct memory_loss *m, float *gain, const struct batch *batch, const int32_t *targets);
/* After the step's last micro-batch: writes the gradients of log_tau and the gate. */
void memory_loss_finish(struct memory_loss *m, float scale);
struct memory_loss_sums memory_loss_sums(const struct memory_loss *m);    /* since begin */
