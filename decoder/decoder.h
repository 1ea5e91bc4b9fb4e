/* decoder.h -- the decoder tower: real token ids in, logits or losses out (model.md §1, §2, §4-§7).
 *
 * A decoder holds weights and scratch memory. A decoder_state is one running text: its KV rings, its position within
 * the current chunk, and the neighbours that the current chunk reads. A text may be cut into calls anywhere (one
 * prefill, segments, or id by id): the results are equal up to rounding. The decoder inserts the landmark after the
 * id that completes a chunk, and retrieves for the next chunk before that call returns. The memory of a state does
 * not grow with the text (the retriever's may; with Landmark Attention it has keys and values of the whole text). One
 * thread at a time per decoder; the states of one decoder share its scratch memory.
 *
 * Any device: it computes in the weights' type (bf16 on a GPU, or float32 for parity). Rings and activations are
 * memory of the device; ids, targets, logits, nll and the rows that a watch gets are memory of this process. */
#pragma once
#include "decoder/retriever.h"
#include "kernels/device/device.h"
#include "model/model_config.h"
#include "model/weights.h"

struct decoder;
struct decoder_state;

/* weights (model/weights.h) are borrowed until decoder_free. max_tokens: ids of one pass (longer calls are cut into
 * passes); 0: a default that suits the device. */
enum status decoder_create(struct decoder **out, struct device *dev, const struct model_config *config,
                           const struct weights *weights, int max_tokens);
void decoder_free(struct decoder *d);                     /* NULL is fine */
enum dtype decoder_type(const struct decoder *d);         /* of weights, activations and key states */

/* Whether each token reads this tensor, by name: the embedding and the layers, not what makes chunks and queries. */
bool decoder_reads(const char *tensor);

/* retriever NULL: no retrieval (GCA gives zero). Borrowed until decoder_state_free; one retriever serves one state. */
enum status decoder_state_create(struct decoder_state **out, struct decoder *d, struct retriever *retriever);
void decoder_state_free(struct decoder_state *s);         /* NULL is fine */
int64_t decoder_state_tokens(const struct decoder_state *s);   /* real ids so far */

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
    float *logits; bool logits_all;      /* [n, V] of every id when logits_all, else [1, V] of the last; NULL: none */
    float *logits_there;                 /* [1, V] of the last id, memory of the device; not beside logits */
    const int32_t *targets; float *nll;  /* [n]: nll[i] of targets[i] at ids[i] (< 0: 0); NULL: none */
    /* [n, d] dense, memory of the device in the weights' type: row i is the key state of ids[i]
     * (docs/token-memory.md), the input of layer key_layer's MLP after its norm. Layers count from 1. data NULL:
     * none. At the model's memory_layer with a memory_size it is that state's projection (docs/model.md §9.5), and
     * columns from memory_size on are 0, which keeps distances: memory_size to hidden columns. */
    struct mat keys; int key_layer;
};
/* Feeds n >= 1 ids (negative: pad_id). Fails only when the retriever fails, or when a state that grows finds no memory;
 * the state can then not be used again. */
enum status decoder_forward(struct decoder_state *s, const struct decoder_output *out, const int32_t *ids, int64_t n);

/* Seconds by stage since the last reset. retrieve: all of the retriever's work, which has times of its own. */
struct decoder_times { double layers, fuse, head, query, retrieve; };
struct decoder_times decoder_state_times(struct decoder_state *s, bool reset);
