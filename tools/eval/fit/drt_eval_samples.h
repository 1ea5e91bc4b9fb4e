/* drt_eval_samples.h -- the file of samples of drt-eval fit-memory: the samples, their documents, and the setting with
 * which they were made. */
#pragma once
#include "session/model_folder.h"
#include "tools/eval/drt_eval_tokens.h"
#include "tools/memory/memory_samples.h"

enum status eval_samples_keep(const struct eval_result *result, const struct memory_samples *samples,
                              const struct memory_config *config, const char *path);
/* Reads files one after another into one collection. Replaces the setting of *config. STATUS_MISMATCH: the files
 * have different settings, or are of another model. Names of texts are owned by *result. A text may be divided
 * among several files. */
enum status eval_samples_load(struct eval_result *result, struct memory_samples *samples, struct memory_config *config,
                              const struct model_folder *model, const struct arg_strings *paths);
/* Adds the results of the file as the read OTHER of the samples (memory_samples_other). The file must have the setting
 * of *config. */
enum status eval_samples_other(struct memory_samples *samples, const struct memory_config *config, const char *path);
