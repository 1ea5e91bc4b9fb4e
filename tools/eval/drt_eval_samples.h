/* drt_eval_samples.h -- what drt-eval fit-memory collects: of each scored token, what the model and each memory gave
 * to it. */
#pragma once
#include "tools/eval/drt_eval.h"
#include "tools/memory/memory_fit.h"
#include "tools/memory/memory_window.h"

struct eval_samples {
    int64_t n;                           /* tokens; those of the last eval_samples_lm begin at `first` */
    int64_t first;
    int32_t *document;                   /* of result->documents */
    float *log_lm, *entropy, *largest;
    struct { float *nearest, *log_p[MEMORY_TAUS], *lse[MEMORY_TAUS], *squares[MEMORY_TAUS]; } memory[EVAL_MEMORY_MODES];
    int64_t capacity;                    /* of every array */
};
void eval_samples_free(struct eval_samples *s);           /* what it holds */
/* Adds n tokens of a document. */
enum status eval_samples_lm(struct eval_samples *s, const struct memory_lm *lm, int64_t n, int32_t document);
/* What a mode's memory, reads[t] of temperature t, gave to the tokens that were added last. */
void eval_samples_memory(struct eval_samples *s, int mode, const struct memory_read reads[MEMORY_TAUS]);
/* All of it for one mode. */
struct memory_samples eval_samples_of(const struct eval_samples *s, int mode);
