/* memory_text.h -- a running text with a token memory: mixes its distribution with the model's before each id is
 * sampled.
 *
 * The text's own past is the last `past` tokens. The text so far is the query of a search for chunks: at the first
 * mixture, and then every `every` tokens. */
#pragma once
#include "decoder/batch/decoder_batch.h"
#include "decoder/memory_config.h"
#include "indexer/retrieve/memory_source.h"
#include "session/engine.h"

struct memory_text_config {
    struct engine *engine;
    const struct memory_config *memory;  /* must have a mixture of `kind` */
    struct memory_finder finder;         /* for the corpus, or both sources (session/memory_search.h) */
    enum memory_kind kind;
    int64_t past;
    /* For tests and measurements. serial: a GPU reads the memories only after the decode step. late: a search begins
     * after the pass of its last id. */
    bool serial, late;
};
struct memory_text;
/* Borrows everything that config names until memory_text_free. */
enum status memory_text_create(struct memory_text **out, const struct memory_text_config *config);
void memory_text_free(struct memory_text *t);             /* NULL is fine */

/* Passes the text's next n ids (at most engine_pass) to decoder_forward with its state. logits: NULL, or [vocab_size]:
 * the mixed log-probabilities of the next id. */
enum status memory_text_feed(struct memory_text *t, struct decoder_state *state, float *logits, const int32_t *ids,
                             int64_t n);
/* The same for one id on a CPU in two parts, around the pass that decoder_batch_forward_keys computes with other texts.
 * _begin: what the pass must write, and where. It changes nothing: without that pass, _end is left out. */
enum status memory_text_begin(struct memory_text *t, struct decoder_batch_keys *keys, float **logits, int32_t id);
enum status memory_text_end(struct memory_text *t, struct decoder_state *state, float *logits);
/* The same with the mixture left in memory of the device: *logits, until the next call. Does not wait for it. */
enum status memory_text_feed_on_device(struct memory_text *t, struct decoder_state *state, float **logits,
                                   const int32_t *ids, int64_t n);
/* While the device computes, after the last pass: prepares the search that the next id makes, if it makes one. */
enum status memory_text_prepare(struct memory_text *t);

/* As memory_text_feed_on_device for one id that the device's memory will have when this pass runs: a pick that is
 * queued before writes it. Queues only (decoder/batch/decoder_ahead.h). `then`: called when all is queued. *logits: of
 * this pass; those of the pass before it stay as they are until the next call. After it one call of _known or _undo
 * follows, before any other pass. From _known on the id is in the text; the functions below still tell of the mixture
 * that it was picked from, until _joins. _undo: the text is as before, with the logits that it had. _waits: the pass
 * searches, and its last id is a word of the query: mixture and `then` are queued by _known. */
bool memory_text_ahead_takes(const struct memory_text *t, const struct decoder_state *state);
enum status memory_text_ahead(struct memory_text *t, struct decoder_state *state, float **logits, const int32_t *id,
                              device_ops *then, void *context);
bool memory_text_ahead_waits(const struct memory_text *t);
enum status memory_text_ahead_known(struct memory_text *t, struct decoder_state *state, int32_t id);
void memory_text_ahead_joins(struct memory_text *t);
void memory_text_ahead_undo(struct memory_text *t, struct decoder_state *state);

/* After a pass that mixed: searches at the end of the text, unless the last search was there, and mixes again. *logits:
 * [vocab_size], which are written; NULL: they are left in memory of the device, and *logits says where if they are new.
 */
enum status memory_text_search_again(struct memory_text *t, float **logits);
/* Keeps the end of the text, after a pass that mixed. _rewind: back to it, after decoder_state_rewind succeeded, with
 * at most engine_pass ids after it: reads what the last search before it found, and mixes again into logits
 * [vocab_size]. On a CPU. */
enum status memory_text_mark(struct memory_text *t);
enum status memory_text_rewind(struct memory_text *t, float *logits);
/* Sums since memory_text_create, in seconds. find: searching chunks. encode: computing the keys of passages that are
 * not in the pool yet, or copying them from the store (on a GPU: until the kernels are queued); encoded, copied: the
 * numbers of these passages. mix: reading entries and mixing (on a GPU: until the result has arrived, including the
 * layers). */
struct memory_text_times { double find, encode, mix; int64_t queries, encoded, copied; };
struct memory_text_times memory_text_times(const struct memory_text *t);

/* Returns the part of the id's probability that the memory gave in the last mixture. The logits must still be where
 * memory_text_feed wrote them. On a GPU it waits for two small copies. */
double memory_text_share(const struct memory_text *t, int32_t id);

/* An entry of the memory that gave a part of an id's probability: a token of the corpus or of the text's own past. */
struct memory_contributor {
    bool own_past;
    int64_t chunk, document;             /* of the corpus; -1: the text's own past */
    int64_t offset;                      /* of the token in its document, or its position in this text */
    double share;                        /* its part of the id's probability */
};
enum { MEMORY_CONTRIBUTORS_MAX = 8 };
/* Finds the entries that gave the largest parts of the id's probability in the last mixture, the largest first, at most
 * n (up to MEMORY_CONTRIBUTORS_MAX). *count: their number. Call it before the next memory_text_feed. */
enum status memory_text_contributors(struct memory_text *t, struct memory_contributor *out, int *count, int n,
                                     int32_t id);
