/* validation.h -- the loss on text that is not trained on, per token and per byte, of all of it and of each file. */
#pragma once
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "train/run/config.h"
#include "train/step/step.h"

struct validation;
/* loss: nats a token. bits_per_byte: of the text that the scored ids decode to. NaN where nothing was scored. */
struct validation_figure { double loss, bits_per_byte; };
/* *out NULL where the config names no files. `first_document`: behind those that are trained on. */
enum status validation_open(struct validation **out, const struct train_config *config, const struct tokenizer *tokenizer,
                            int64_t first_document);
void validation_close(struct validation *v);              /* NULL is fine */
/* Each window counts for the file in which it begins: *all, and files [n], one for each of the config's; borrowed until the
 * next call. */
enum status validation_run(struct validation_figure *all, const struct validation_figure **files, struct validation *v,
                           struct step *step, enum pool_kind pool);
