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

/* How far back the gradient of p_mem flows. */
enum memory_gradient {
    MEMORY_GRADIENT_ALL,                 /* states and keys, into the trunk */
    MEMORY_GRADIENT_STATES,              /* not into keys: they are constants */
    MEMORY_GRADIENT_PROJECTION,          /* not into the trunk, which learns from its own loss alone, like a Base LM */
};
const char *memory_gradient_name(enum memory_gradient gradient);   /* "all", "states", "projection" */
int memory_gradient_find(const char *name);               /* -1: no such name */

struct memory_loss_config {
    int sequences;
    int64_t chunks;                      /* as in struct batch */
    int64_t past;                        /* ids of the text's own past that a row reads; 0: none */
    int group;                           /* sequences of a group; 0 or 1: other sequences are not read */
    /* passages: of a block, 0: none; read: at least `passages`; span: chunks of a passage */
    int passages, read, span;
    int unread;                          /* passages of a block that are encoded but not read; needs passages > 0 */
    enum memory_gradient gradient;
    bool recompute;
};

/* Features of the gate: 1, lse, nearest / tau, sum of squared weights, largest weight (kernels/memory/token_memory.h).
 * lse and nearest / tau are clamped and divided by 10. Only lse has a gradient. The gate's logit is 10 w.f, so that w
 * learns at the rate of the embeddings. */
enum { MEMORY_LOSS_FEATURES = 5 };
/* weight: the mixture's part of the loss, 0 to 1. drop_past: no row reads its own past. alone: no row reads other
 * sequences, as where a text is scored. */
struct memory_loss_now { float weight; bool drop_past, alone; };
/* Sums over the scored rows: of -log p, of the gate g, and of the memory's part of p(target). */
struct memory_loss_sums { double nll, gate, share; };

struct memory_loss;
/* weights, gradients: the model's tensors on the device; parameters: float32 weights with the same layout. All are
 * borrowed until memory_loss_free. STATUS_NO_MEMORY: the device lacks memory. */
enum status memory_loss_create(struct memory_loss **out, struct device *dev, const struct model_config *model,
                               const struct memory_loss_config *config, const struct weights *weights,
                               const struct weights *gradients, const struct weights *parameters);
void memory_loss_free(struct memory_loss *m);             /* NULL is fine */
size_t memory_loss_bytes(const struct memory_loss *m);    /* of device memory held */

/* Call before a step's first micro-batch, and before an evaluation. Reads log_tau and the gate from `parameters`;
 * clears the sums and the gradients of both. */
void memory_loss_begin(struct memory_loss *m);
/* states: the decoder's key states; nll [n]: the decoder's losses, on the device. Computes the mixture's loss of each
 * row, which memory_loss_nll returns. */
void memory_loss_forward(struct memory_loss *m, const struct batch *batch, struct mat states, const float *nll,
                         const int32_t *targets, struct memory_loss_now now);
const float *memory_loss_nll(const struct memory_loss *m);    /* [n] on the host, of the last forward */
/* [n] on the device, for decoder_train_loss: the weight of each row's own loss beside the mixture's. */
const float *memory_loss_row_weights(const struct memory_loss *m);
/* Adds the gradients of `scale` times the weighted sum of -log p to the model's gradients. Returns the gradient of the
 * key states for decoder_train_add_dkeys; its data is NULL if no gradient flows into the trunk. */
struct mat memory_loss_backward(struct memory_loss *m, const int32_t *targets, float scale);
/* gain [blocks * (passages + unread)], on the host: the nats that the scored rows of a block save when they read this
 * passage alone; 0 where the block has no such passage. Call after memory_loss_backward, whose input this overwrites.
 * No gradient flows through the gains. */
void memory_loss_gains(struct memory_loss *m, float *gain, const struct batch *batch, const int32_t *targets);
/* Call after the step's last micro-batch. Writes the gradients of log_tau and the gate, times scale. */
void memory_loss_finish(struct memory_loss *m, float scale);
struct memory_loss_sums memory_loss_sums(const struct memory_loss *m);    /* since memory_loss_begin */
