/* validation.h -- loss on validation text, per token and per byte, of all files and of each. */
#pragma once
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "train/run/config.h"
#include "train/run/run_memory.h"
#include "train/step/step.h"

struct validation;
/* loss: nats a token. bits_per_byte: of the text that the scored ids decode to. NaN where nothing was scored.
 * memory_*: the same of the mixture with a token memory; NaN without one. */
struct validation_figure { double loss, bits_per_byte, memory_loss, memory_bits_per_byte; };
/* *out NULL if the config names no files. `first_document`: a number after those of the training data. */
enum status validation_open(struct validation **out, const struct train_config *config,
                            const struct tokenizer *tokenizer, int64_t first_document);
void validation_close(struct validation *v);              /* NULL is fine */
const struct batches *validation_batches(const struct validation *v);
/* How a validation retrieves: `pool` for the neighbours of queries; with `mixed` a token memory is read, whose passages
 * come from `memory` (NULL: none). */
struct validation_reads { enum pool_kind pool; bool mixed; struct run_memory *memory; };
/* Each window counts for the file in which it begins: *all, and files [n] for the config's files, borrowed until
 * the next call. */
enum status validation_run(struct validation_figure *all, const struct validation_figure **files, struct validation *v,
                           struct step *step, const struct validation_reads *reads);
