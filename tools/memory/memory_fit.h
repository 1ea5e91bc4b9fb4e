/* memory_fit.h -- fits temperatures and a gate for selected memories, to the probabilities that model and memories give
 * to the tokens of a known text.
 *
 * First the best temperature of each memory is found; each one is tried with the best of some fixed weights. Then Adam,
 * over all tokens at once, minimises the loss of the gate, a mean over files in which each file counts once. If chunks
 * that do not help were read, too (random ones, or those of a store of other text), half of a token's loss is that with
 * the chunks found and half that with these, so that the gate learns to close. A penalty on the squares of the gate's
 * weights prevents a fit to few tokens from opening it by chance. Of several penalties, the best on held-out documents
 * of the fitted part is used. Any number of threads gives the same bits. */
#pragma once
#include "base/system/threads.h"
#include "tools/memory/memory_samples.h"

/* The tokens to fit: those of documents d with use[d]; file[d] is the file of d. */
struct memory_part { const bool *use; const int *file; int n_documents, n_files; };

/* What is fitted: the memories of `kind`; side i is the samples' read reads[i]. negative [negatives]: reads that
 * replace the corpus; each has an equal part of half of the loss. */
enum { MEMORY_NEGATIVES_MAX = 2 };
struct memory_fit_config {
    enum memory_kind kind; enum memory_reads reads[MEMORY_SIDES], negative[MEMORY_NEGATIVES_MAX]; int negatives;
};

/* Results of a fit in addition to the mixture. */
struct memory_fit_report { double penalty; int64_t tokens; };

/* STATUS_INVALID: no token is used. report NULL: not wanted. */
enum status memory_fit(struct memory_mixture *out, struct memory_fit_report *report, const struct memory_samples *s,
                       const struct memory_part *part, const struct memory_fit_config *config,
                       struct threads *threads);
/* Returns the log of the mixed probability of token i. */
double memory_fit_mixed(const struct memory_mixture *m, const struct memory_samples *s,
                        const struct memory_fit_config *config, int64_t i);
