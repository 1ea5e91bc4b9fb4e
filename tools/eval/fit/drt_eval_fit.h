/* drt_eval_fit.h -- what the commands that fit share, and the modes of drt-eval fit-memory from samples: losses of
 * every mode, and the fits. */
#pragma once
#include "tools/eval/drt_eval_run.h"

/* Fails if the output `out` (NULL: none) would replace a file that is read. */
enum status eval_fit_apart(const struct eval_options *o, const char *out);

/* Computes the losses of mode none and of each memory mode of result->mode: those of odd documents with a fit to the
 * even ones, and the reverse. Then fits the mixtures of *config to all documents. */
enum status eval_fit_crossed(struct memory_config *config, struct eval_result *result,
                             const struct memory_samples *samples, struct threads *threads);
/* Computes the same losses with the mixtures of *config. */
enum status eval_fit_apply(struct eval_result *result, const struct memory_config *config,
                           const struct memory_samples *samples, const struct eval_options *o);
