/* memory_fit.h -- temperatures and gate of a choice of memories, from what the model and the memories gave to tokens of
 * known text.
 *
 * First a temperature for each memory, by the best of some fixed weights; then the gate: the mean over files of the
 * loss (each file counts the same), Adam over all tokens at once. Where chunks that do not help were read too (random
 * ones, those of a store of other text), each token counts half with the chunks found and half with these instead, so
 * that the gate learns to close. A penalty on the squares of its weights keeps a gate of few tokens from opening by
 * chance; its strength is the best of some on held-out documents of the part itself. The same bits whatever the number
 * of threads. */
#pragma once
#include "base/system/threads.h"
#include "tools/memory/memory_samples.h"

/* Which tokens: those of documents d with use[d]; file[d] is their file. */
struct memory_part { const bool *use; const int *file; int n_documents, n_files; };

/* What is fitted: the memories of `kind`, those of side i being the samples' read reads[i]; negative[negatives]:
 * reads that stand in for the corpus, each in an equal part of half of the loss. */
enum { MEMORY_NEGATIVES_MAX = 2 };
struct memory_fit_config {
    enum memory_kind kind; enum memory_reads reads[MEMORY_SIDES], negative[MEMORY_NEGATIVES_MAX]; int negatives;
};

/* What a fit chose, beside the mixture. */
struct memory_fit_report { double penalty; int64_t tokens; };

/* STATUS_INVALID: no token is used. report NULL: not wanted. */
enum status memory_fit(struct memory_mixture *out, struct memory_fit_report *report, const struct memory_samples *s,
                       const struct memory_part *part, const struct memory_fit_config *config,
                       struct threads *threads);
/* log of the mixed probability of token i. */
double memory_fit_mixed(const struct memory_mixture *m, const struct memory_samples *s,
                        const struct memory_fit_config *config, int64_t i);
