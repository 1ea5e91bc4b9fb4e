/* validation.h -- loss on validation text, per token and per byte, for all files together and for each. One thread at a
 * time. */
#pragma once
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "train/run/config.h"
#include "train/run/run_memory.h"
#include "train/step/step.h"

struct validation;
/* loss: nats a token. bits_per_byte: relative to the bytes of the text that the scored ids decode to. NaN if nothing
 * was scored. memory_*: the same for the mixture with a token memory; NaN without one. memory_gain_95: half the width
 * of the 95 % interval of loss - memory_loss over windows; set for all files together only. */
struct validation_figure { double loss, bits_per_byte, memory_loss, memory_bits_per_byte, memory_gain_95; };
/* *out is NULL if the config names no validation files. `first_document`: the first number after those of the training
 * data. */
enum status validation_open(struct validation **out, const struct train_config *config,
                            const struct tokenizer *tokenizer, int64_t first_document);
void validation_close(struct validation *v);              /* NULL is fine */
const struct batches *validation_batches(const struct validation *v);
/* pool: what queries retrieve from. mixed: a token memory is read too; its passages come from `memory` (NULL: no
 * passages). */
struct validation_reads { enum pool_kind pool; bool mixed; struct run_memory *memory; };
/* Writes the figures of all files to *all, and sets *files to an array with one entry for each file of the config,
 * valid until the next call. A window counts for the file in which it begins. */
enum status validation_run(struct validation_figure *all, const struct validation_figure **files, struct validation *v,
                           struct step *step, const struct validation_reads *reads);
