/* generation_internal.h -- what a generation is made of, for the files generation*.c. */
#pragma once
#include "decoder/batch/decoder_ahead.h"
#include "decoder/batch/decoder_batch.h"
#include "decoder/logits/logit_scan.h"
#include "decoder/logits/picker.h"
#include "session/generation.h"
#include "session/stop_text.h"

enum { GENERATION_TOP_MAX = 64, GENERATION_BUFFERS = 2 };
_Static_assert((int)GENERATION_TOP_MAX <= (int)PICK_BEST_MAX, "a pick has as many");

/* Whether a token memory searches again at the end of the text before its logits are used: NEXT, before those of an id
 * that is generated; ANY, before any. */
enum generation_search { GENERATION_SEARCHED, GENERATION_SEARCH_NEXT, GENERATION_SEARCH_ANY };

struct generation {
    struct generation_config config;
    struct memory_text_config memory_config;
    struct decoder_watch watch;
    struct tokenizer_scratch *scratch;
    struct tokenizer_stream stream;
    struct stop_text *stop;
    struct sampler *sampler;
    struct retriever *retriever;
    struct decoder_state *state;
    struct memory_text *memory;          /* NULL: none */
    float *logits;                       /* [vocab_size] after the last id fed, of device_allocate_host */
    bool has_logits, broken, ended;
    bool speaking;                       /* the text has a token that is not special */
    int32_t pending;                     /* generated and not fed yet; -1: none */
    int64_t generated;                   /* since the last feed */
    enum generation_search search;
    /* Of generation_rewind; logits: [vocab_size]. */
    bool marked, marked_speaking; float *marked_logits; int64_t marked_tokens; enum generation_search marked_search;
    int32_t *unspoken; int n_unspoken;   /* ids that are never picked: without text, landmark, pad and mask */
    struct logit_scan scan;              /* for log-probabilities */
    int32_t *ids; size_t ids_capacity;   /* of generation_encode */
    struct generation_alternative alternatives[GENERATION_TOP_MAX];
    float *rows; int64_t n_rows;         /* [n_rows, vocab_size] logits of a pass; NULL: not needed yet */
    int32_t *targets; float *nll;        /* [engine_pass] */
    /* Of a generation whose ids a GPU picks: logits stay on it, and `logits` has them after generation_download. */
    struct picker *picker;               /* NULL: this process picks */
    /* latest: one of them, or of the token memory; before: that of the pass before one that was queued ahead */
    float *logits_device[GENERATION_BUFFERS], *latest, *before; int now;
    bool fed;                            /* the pending id is in the text already, and a pick follows it */
    int32_t *later; size_t later_capacity; int64_t later_at, later_end; /* of generation_feed_later: [later_at, _end) */
    bool alone;                          /* the last pass was of this text alone: it may run ahead */
    enum status failed; char failure[1024]; /* why a batch broke it; "": none did */
};

/* decoder_forward of at most engine_pass ids, with what follows it. out: as decoder_forward's. */
enum status generation_pass(struct generation *g, const struct decoder_output *out, const int32_t *ids, int64_t n,
                            bool prompt);
enum status generation_feed_plain(struct generation *g, const int32_t *ids, int64_t n);
/* Makes the search that is due. */
enum status generation_search_again(struct generation *g);
/* Makes logits those after the last id. */
enum status generation_ready(struct generation *g);
/* Log-probability and alternatives of out->id by `logits`, as the configuration wants them. */
void generation_token_scores(struct generation *g, struct generation_token *out);
/* generation_batch.c. _create: after the sampler; picker stays NULL where this process picks. */
enum status generation_picks_create(struct generation *g, const struct sampler_config *sampler);
/* Feeds the ids that are left for later. */
enum status generation_feed_rest(struct generation *g);
/* As generation_pass, with logits left on the device; pick: queues the next id's. */
enum status generation_pass_on_device(struct generation *g, const int32_t *ids, int64_t n, bool prompt, bool pick);
/* The pending id is not pending, if its pass was queued ahead. */
enum status generation_commit(struct generation *g);
/* Whether a pass is queued ahead of an id that generation_next did not return. */
bool generation_is_ahead(const struct generation *g);
/* Takes back a pass that was queued ahead of an id that generation_next did not return. */
void generation_undo_ahead(struct generation *g);
/* Logits to `logits`, and back; nothing without a picker. */
void generation_download(struct generation *g), generation_upload(struct generation *g);
/* Waits for the next id, which is in out with its scores; and queues the pass after it. */
enum status generation_take(struct generation *g, struct generation_token *out);
/* The sum of exp(logits - *top), and the largest logit. NaN counts as -infinity; NaN where the largest is infinite. */
double generation_normaliser(struct logit_scan *scan, const float *logits, float *top);
/* After generation_normaliser, of which log_sum is the logarithm: the n best of those logits, best first, with
 * log-probabilities; id -1 fills. */
void generation_alternatives(struct generation_alternative *out, int n, struct logit_scan *scan, double log_sum);

/* generation_scores.c: generation_feed with scores; the caller has checked all and fed what was pending. */
enum status generation_feed_scored(struct generation *g, const int32_t *ids, int64_t n,
                                   const struct generation_scores *scores);
