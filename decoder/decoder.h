/* decoder.h -- the decoder tower: real token ids in, logits or losses out (model.md §1, §2, §4-§7).
 *
 * A decoder has weights and scratch memory. A decoder_state is one running text: its ring buffers of keys and values,
 * its position within the current chunk, and the neighbours that the current chunk reads. A text may be divided into
 * calls anywhere (one prefill, segments, or id by id); the results are equal up to rounding. The decoder inserts the
 * landmark after the id that completes a chunk, and retrieves for the next chunk before that call returns. The memory
 * of a state does not grow with the text, except with Landmark Attention, where it has keys and values of the whole
 * text. The retriever's memory may grow. For one thread at a time per decoder; the states of one decoder share its
 * scratch memory.
 *
 * It runs on any device and computes in the weights' type (bf16 on a GPU, or float32 for parity). Ring buffers and
 * activations are device memory. ids, targets, logits, nll and the rows that a watch gets are memory of this
 * process. */
#pragma once
#include "decoder/retriever.h"
#include "kernels/decode_step/decode_step.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

struct decoder;
struct decoder_state;

/* weights (model/weights.h) are borrowed until decoder_free. max_tokens: ids of one pass (longer calls are divided into
 * passes); 0: a default for the device. */
enum status decoder_create(struct decoder **out, struct device *dev, const struct model_config *config,
                           const struct weights *weights, int max_tokens);
void decoder_free(struct decoder *d);                     /* NULL is fine */
enum dtype decoder_type(const struct decoder *d);         /* of weights, activations and key states */
/* The projection [memory_size, d] of the key states of layer key_layer (from 1); data NULL: the states are the keys. */
struct mat decoder_projection(const struct decoder *d, int key_layer);

/* Whether every token reads the tensor of this name: true for the embedding and the layers, false for tensors that make
 * chunks and queries. */
bool decoder_reads(const char *tensor);
/* Whether weights_round may make a copy of it, with which a decoder then computes: as decoder_reads, except a recurrent
 * layer's own. Vectors of ids, queries, key states and passages (decoder_passages.h) keep float32 weights. */
bool decoder_rounds(const char *tensor);

/* retriever NULL: no retrieval, and GCA gives zero. It is borrowed until decoder_state_free. One retriever
 * is for one state. */
enum status decoder_state_create(struct decoder_state **out, struct decoder *d, struct retriever *retriever);
void decoder_state_free(struct decoder_state *s);         /* NULL is fine */
/* Begins another text in the memory of *s, a state of d. *s NULL: as decoder_state_create. On failure *s is NULL. */
enum status decoder_state_renew(struct decoder_state **s, struct decoder *d, struct retriever *retriever);
int64_t decoder_state_tokens(const struct decoder_state *s);   /* real ids so far */
/* Keeps a point of the text; _rewind: back to it, so that other ids may follow. Nothing is copied but the ids of the
 * unfinished chunk: the rings still have the window before that point if not more positions follow it than one pass
 * has. false: it is not kept, on a device of other memory, with a retriever, or of a model whose state is more than
 * rings; or too much follows it, and the state is as before. */
bool decoder_state_mark(struct decoder_state *s);
bool decoder_state_rewind(struct decoder_state *s);

/* Callbacks for tests, traces and tools; any member may be NULL. Rows are borrowed for the call. Rows on another
 * device or of another type are downloaded and converted first. */
struct decoder_watch {
    void *context;
    /* "lower", "gca0", "final" [n, d] of interleaved positions first..; "query" [n, d] of chunks first.. */
    void (*rows)(void *context, const char *what, int group, int64_t first, const float *rows, int64_t n, int64_t cols);
    void (*retrieval)(void *context, int group, int64_t first_chunk, const struct neighbours *neighbours);
};
void decoder_state_watch(struct decoder_state *s, const struct decoder_watch *watch);   /* copied; NULL: none */

struct decoder_output {
    float *logits; bool logits_all; /* logits_all: [n, V] of every id; otherwise [1, V] of the last id; NULL: none */
    float *logits_device; /* [1, V] of the last id in device memory; the call does not wait; only if logits is NULL */
    /* NULL, or called once logits_device are queued, before a landmark and a retrieval that follow: to queue ops */
    device_ops *then; void *context;
    const struct pick_row *pick; /* NULL, or a pick of logits_device, which is queued with them; `then` must be NULL */
    const int32_t *targets; float *nll;  /* [n]: nll[i] of targets[i] at ids[i] (targets[i] < 0: 0); NULL: none */
    /* [n, d] dense, device memory in the weights' type; data NULL: none. Row i is the key state of ids[i]
     * (docs/token-memory.md), the input of the MLP of layer key_layer (from 1) after its norm. At the model's
     * memory_layer with a memory_size it is the projection of that state (docs/model.md §9.5), and columns from
     * memory_size on are 0, which does not change distances. The matrix has memory_size to hidden columns. states: the
     * states themselves instead [n, d], for ops that project (kernels/memory/next_token.h). */
    struct mat keys; int key_layer; bool states;
    struct mat key_states; /* [n, d]: also the states that `keys` are projections of; data NULL: not wanted */
};
/* Computes n >= 1 more ids of the text (negative: pad_id). Fails only if the retriever fails, or if a state that grows
 * finds no memory; the state can then not be used again. */
enum status decoder_forward(struct decoder_state *s, const struct decoder_output *out, const int32_t *ids, int64_t n);
/* What the last call left on the device, if one kernel computed its one id with a key state and logits
 * (kernels/decode_step/decode_step.h); else zeroed. */
struct decode_step_result decoder_state_step(const struct decoder_state *s);

/* Seconds by stage since the last reset. retrieve: all of the retriever's work, whose parts the retriever measures. */
struct decoder_times { double layers, fuse, head, query, retrieve; };
struct decoder_times decoder_state_times(struct decoder_state *s, bool reset);
