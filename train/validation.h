/* validation.h -- the loss on text that is not trained on, per token and per byte. */
#pragma once
#include "base/status.h"
#include "data/tokenizer.h"
#include "train/config.h"
#include "train/step.h"

struct validation;
/* *out NULL where the config names no files. `first_document`: behind those that are trained on. */
enum status validation_open(struct validation **out, const struct train_config *config, const struct tokenizer *tokenizer,
                            int64_t first_document);
void validation_close(struct validation *v);              /* NULL is fine */
int64_t validation_windows(const struct validation *v);
/* loss: nats a token. bits_per_byte: of the text that the scored ids decode to. */
enum status validation_run(double *loss, double *bits_per_byte, struct validation *v, struct step *step, enum pool_kind pool);
