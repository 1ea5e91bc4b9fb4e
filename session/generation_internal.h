/* generation_internal.h -- what a generation is made of, for generation.c and generation_scores.c. */
#pragma once
#include "decoder/logits/logit_scan.h"
#include "session/generation.h"
#include "session/stop_text.h"

enum { GENERATION_TOP_MAX = 64 };

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
    int32_t *unspoken; int n_unspoken;   /* ids that are never picked: without text, landmark, pad and mask */
    struct logit_scan scan;              /* for log-probabilities */
    int32_t *ids; size_t ids_capacity;   /* of generation_encode */
    struct generation_alternative alternatives[GENERATION_TOP_MAX];
    float *rows; int64_t n_rows;         /* [n_rows, vocab_size] logits of a pass; NULL: not needed yet */
    int32_t *targets; float *nll;        /* [engine_pass] */
    enum status failed; char failure[1024]; /* why a batch broke it; "": none did */
};

/* decoder_forward of at most engine_pass ids, with what follows it. out: as decoder_forward's. */
enum status generation_pass(struct generation *g, const struct decoder_output *out, const int32_t *ids, int64_t n,
                            bool prompt);
/* Makes logits those after the last id. */
enum status generation_ready(struct generation *g);
/* The sum of exp(logits - *top), and the largest logit. NaN counts as -infinity; NaN where the largest is infinite. */
double generation_normaliser(struct logit_scan *scan, const float *logits, float *top);
/* After generation_normaliser, of which log_sum is the logarithm: the n best of those logits, best first, with
 * log-probabilities; id -1 fills. */
void generation_alternatives(struct generation_alternative *out, int n, struct logit_scan *scan, double log_sum);

/* generation_scores.c: generation_feed with scores; the caller has checked all and fed what was pending. */
enum status generation_feed_scored(struct generation *g, const int32_t *ids, int64_t n,
                                   const struct generation_scores *scores);
