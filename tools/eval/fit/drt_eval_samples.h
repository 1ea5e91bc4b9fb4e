/* drt_eval_samples.h -- what drt-eval fit-memory collected, as a file: samples, the documents they are of, and the
 * setting that they were made with. */
#pragma once
#include "session/model_folder.h"
#include "tools/eval/drt_eval_tokens.h"
#include "tools/memory/memory_samples.h"

enum status eval_samples_keep(const struct eval_result *result, const struct memory_samples *samples,
                              const struct memory_config *config, const char *path);
/* Files one after another, as if they had been collected at once. Of *config the setting is replaced; all files must
 * have the same, and be of this model (STATUS_MISMATCH). Names of texts lie in *result; a text may come in parts. */
enum status eval_samples_load(struct eval_result *result, struct memory_samples *samples, struct memory_config *config,
                              const struct model_folder *model, const struct arg_strings *paths);
/* The chunks that the file's collection found are the read OTHER of the samples (memory_samples_other). The file must
 * be of the setting *config. */
enum status eval_samples_other(struct memory_samples *samples, const struct memory_config *config, const char *path);
