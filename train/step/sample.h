/* sample.h -- text that a model in training writes, to look at: on the CPU, from its own head alone (no retrieval). */
#pragma once
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "model/params.h"
#include "train/run/config.h"

/* Writes a file: each prompt of the config (none: a new document), and what the model goes on with. Equal weights and
 * seed give equal text. `cpu`: a CPU device. */
enum status sample_write(const char *path, struct device *cpu, const struct train_config *config,
                         const struct params *params, const struct tokenizer *tokenizer);
