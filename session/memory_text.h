/* memory_text.h -- a running text that is continued with a token memory: mixes before each id is picked.
 *
 * The text's own past is the last `past` tokens; chunks are searched for each `every` tokens, with the text so far. */
#pragma once
#include "decoder/memory_config.h"
#include "indexer/retrieve/memory_source.h"
#include "session/engine.h"

struct memory_text_config {
    struct engine *engine;
    const struct memory_config *memory;  /* its mixture of `kind` is given */
    struct memory_finder finder;         /* of corpus and both (session/memory_search.h) */
    enum memory_kind kind;
    int64_t past;
};
struct memory_text;
/* Borrows what config names until memory_text_free. */
enum status memory_text_create(struct memory_text **out, const struct memory_text_config *config);
void memory_text_free(struct memory_text *t);             /* NULL is fine */

/* decoder_forward of the text's next n ids (at most engine_pass) on its state. logits: NULL, or [vocab_size]:
 * log-probabilities of the id to come, mixed. */
enum status memory_text_feed(struct memory_text *t, struct decoder_state *state, float *logits, const int32_t *ids,
                             int64_t n);
/* Sums since memory_text_create, in seconds: finding chunks, encoding those that were not encoded yet (on a GPU: until
 * the kernels are queued), reading entries and mixing (on a GPU: until the result has arrived, the layers included). */
struct memory_text_times { double find, encode, mix; int64_t queries, encoded; };
struct memory_text_times memory_text_times(const struct memory_text *t);

/* The part of the id's probability that came from the memory, in the mixture that was made last, whose logits are where
 * memory_text_feed wrote them. On a GPU it waits for two small copies. */
double memory_text_share(const struct memory_text *t, int32_t id);

/* An entry of the memory that gave a part of an id's probability: a token of the corpus or of the text's own past. */
struct memory_contributor {
    bool own;
    int64_t chunk, document;             /* of the corpus; -1 for the text's own past */
    int64_t offset;                      /* of the token in its document, or its position in this text */
    double share;                        /* of the id's probability */
};
enum { MEMORY_CONTRIBUTORS_MAX = 8 };
/* The at most n (to MEMORY_CONTRIBUTORS_MAX) entries that gave the id most, the largest first, of the mixture that was
 * made last; *count is how many there are. Call it before the next feed. */
enum status memory_text_contributors(struct memory_text *t, struct memory_contributor *out, int *count, int n,
                                     int32_t id);
