/* generation.h -- a running text: ids in, their log-probabilities, the next id and its text out, with retrieval or a
 * token memory. What drt-generate and the library do is made of this.
 *
 * One thread at a time for all generations of one engine. Several may run on one engine, in turns: each has a decoder
 * state and a retriever of its own. */
#pragma once
#include "base/progress.h"
#include "decoder/logits/sampler.h"
#include "session/memory_text.h"

struct generation_config {
    struct engine *engine;
    struct engine_retrieval retrieval;
    int64_t exclude_document;            /* -1: none; with retrieval.exclude_window */
    const struct memory_text_config *memory;              /* NULL: no token memory; copied */
    struct sampler_config sampler;       /* `banned` is filled in */
    const char *const *stops; int n_stops;                /* copied */
    int64_t max_tokens;                  /* of each generation; -1: no limit */
    bool ignore_eos;
    bool logprobs;                       /* tokens have a log-probability */
    int top;                             /* alternatives of a token; with logprobs */
    bool rewind;                         /* generation_rewind will be called */
    /* Ids of the text that are read as a prompt and not scored; with a token memory the first search follows them. */
    int64_t skip;
    const struct progress *progress;     /* of long prompts; NULL is fine; borrowed */
    const struct decoder_watch *watch;   /* copied; NULL: none */
    /* After each pass: its ids, and whether they were fed or generated. NULL: none. */
    enum status (*fed)(void *context, const int32_t *ids, int64_t n, bool prompt);
    void *context;
};
struct generation;
/* Borrows what config names, but for what is copied, until generation_free. */
enum status generation_create(struct generation **out, const struct generation_config *config);
void generation_free(struct generation *g);               /* NULL is fine */
/* Another text: nothing is left of this one but the cache of encoded chunks. */
enum status generation_reset(struct generation *g, uint64_t seed);
/* Frees what refers to a store, to a searcher or to a memory's configuration: the generation can then only be renewed
 * or freed. */
void generation_rest(struct generation *g);
/* Another text with another configuration, of the same engine's model and device, as generation_create but in the
 * memory of g. Unless generation_rest was called, `retrieval` must be as before, and its retriever is kept. After a
 * failure the generation can only be renewed or freed. */
enum status generation_renew(struct generation *g, const struct generation_config *config);

struct generation_alternative { int32_t id; float logprob; };
/* Log-probabilities of ids that are fed, each given the text before it; NaN for the first id of a text, and for those
 * that are skipped. */
struct generation_scores {
    float *logprob;                      /* [n] */
    struct generation_alternative *alternatives; int top;  /* [n, top], best first; id -1: none. top 0: not wanted */
    float *memory_share;                 /* [n]; NULL: not wanted */
};
/* Appends n >= 0 ids in passes of whole chunks, so that a long text shows progress and can be interrupted
 * (STATUS_INTERRUPTED). Limits and stop strings begin again. scores NULL: not wanted. After n > 1 ids the next
 * one is generated with a search of a token memory at the end of the text, with and without scores. After a failure the
 * generation can only be reset or freed. */
enum status generation_feed(struct generation *g, const int32_t *ids, int64_t n,
                            const struct generation_scores *scores);
/* As generation_feed without scores, but where a device picks the ids are only noted: each generation_batch feeds one,
 * in the pass of the others' ids, and the first call that needs the text feeds those that are left. */
enum status generation_feed_later(struct generation *g, const int32_t *ids, int64_t n);
int64_t generation_later(const struct generation *g);     /* how many are left */
/* The ids of a prompt, where special tokens are recognised; of an empty one at the start of a text the model's eos_id.
 * *ids is owned by the generation until its next call. STATUS_INVALID: the model has none. */
enum status generation_encode(struct generation *g, const int32_t **ids, int64_t *n, const char *text, size_t bytes);

/* Back to the end of the last generation_feed of at least one id, for another generation from it: what follows has the
 * bits of a generation after generation_reset with this seed and the same feeds. STATUS_UNSUPPORTED, and nothing is
 * changed: without generation_config.rewind, on a GPU, with retrieval, after more than engine_pass ids, or where
 * decoder_state_rewind refuses. */
enum status generation_rewind(struct generation *g, uint64_t seed);

enum generation_end { GENERATION_RUNNING, GENERATION_LENGTH, GENERATION_EOS, GENERATION_STOP };
struct generation_token {
    int32_t id;                          /* with GENERATION_EOS the eos_id, which has no text */
    enum generation_end end;             /* why this token is the last one */
    int64_t position;                    /* in the text */
    const char *text; size_t bytes;      /* that can be shown now; borrowed until the next call */
    float logprob;                       /* before sampling options apply */
    const struct generation_alternative *alternatives; int n_alternatives;
};
/* The next id. It joins the text in the next call. STATUS_INVALID: nothing was fed, or the end was reached.
 * STATUS_CORRUPT, on a CPU: all logits are NaN. A GPU picks the id itself, and computes the position after it
 * meanwhile: that of a text that continues. */
enum status generation_next(struct generation *g, struct generation_token *out);
/* Feeds what the last generation_next of each of n generations gave, all in one pass over the weights. The next
 * generation_next of each then finds its logits computed; on a GPU it waits for its id, and the pass after that one is
 * queued already. On a GPU the first ids of generations that were just fed are picked together, too. On a CPU tokens
 * have the same bits with and without it; on a GPU they have the same bits for any set of generations, also of one,
 * which is faster without it (decoder/batch/decoder_batch.h). All are of one decoder, each given once. generation_next
 * computes those that cannot be batched, have a token memory, or have ended. *computed: number of those that were fed.
 * If the retriever of one fails, its generation_next returns that failure. */
enum status generation_batch(struct generation *const *gs, int n, int *computed);
/* Whether generation_next would only sample: it then uses nothing that generations share, and several threads may call
 * it for different generations at the same time. */
bool generation_has_next(const struct generation *g);
/* Ends a generation before its end: *text is what was held back. Borrowed until the next call. */
enum status generation_stop(struct generation *g, const char **text, size_t *bytes);
/* log-probabilities [vocab_size] of the next id; the id of the last generation_next joins the text first. */
enum status generation_logprobs(struct generation *g, float *out);

int64_t generation_tokens(const struct generation *g);    /* ids of the text, with the last one generated */
struct decoder_state *generation_state(struct generation *g);
const struct retriever *generation_retriever(const struct generation *g);            /* NULL: no retrieval */
struct memory_text *generation_memory(struct generation *g);                          /* NULL: no token memory */
/* The part of the last generated id's probability that a token memory gave: before the next call. On a GPU it waits. */
double generation_memory_share(const struct generation *g, int32_t id);
