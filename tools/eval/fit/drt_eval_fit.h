/* drt_eval_fit.h -- the modes of drt-eval fit-memory from samples: losses of every mode, and what was fitted. */
#pragma once
#include "tools/eval/drt_eval_run.h"

/* Mode none, from the samples, and each memory mode of result->mode: the odd documents with a fit to the even ones, and
 * the other way round. The mixtures of *config are fitted on all documents. */
enum status eval_fit_crossed(struct memory_config *config, struct eval_result *result,
                             const struct memory_samples *samples, struct threads *threads);
/* The same losses with the mixtures of *config. */
enum status eval_fit_apply(struct eval_result *result, const struct memory_config *config,
                           const struct memory_samples *samples, const struct eval_options *o);
