/* drt_eval_run.h -- what a run of drt-eval ppl holds: drt_eval_run.c (documents) and drt_eval_window.c (windows). */
#pragma once
#include "tools/eval/drt_eval.h"

struct eval_run {
    struct eval_result *result;
    struct engine *engine;
    const struct eval_options *options;
    const struct progress *progress;
    struct retriever *retriever[EVAL_MODES];
    struct tokenizer_scratch *scratch, *decoding; /* ids being scored must survive decoding */
    int32_t *targets;
    float *nll;
    int32_t *ids;
    size_t ids_capacity; /* of token inputs, which come unsigned */
    int64_t stored;      /* the document in hand as the store has it, to be left out; -1: not there, or may be found */
};

/* Scores the document's windows in all modes, tokens_left > 0: up to so many tokens. A stop request ends it between two
 * windows, so what was scored was scored in every mode. */
enum status eval_score_document(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                                int64_t tokens_left);
