/* run_memory.h -- what a run's batches read from a token memory besides themselves: neighbours, and the order of
 * windows (training-keys.md, memory). */
#pragma once
#include "train/memory/similar.h"
#include "train/run/run.h"

struct run_memory;
struct run_memory_texts { struct batches *text; const struct batches *pool, *valid; };
/* *out NULL if no passages are read. Collective: rank 0 searches the neighbours if their file is missing, the others
 * read the file. Sets the order of texts.text with memory.pack. Both are borrowed until run_memory_close. */
enum status run_memory_open(struct run_memory **out, const struct run_options *options,
                            const struct run_memory_texts *texts);
void run_memory_close(struct run_memory *m);              /* NULL is fine */
/* Adds a batch's passages, which are valid until the same number is prepared again. m NULL: does nothing. */
void run_memory_prepare(struct run_memory *m, struct batch *batch, int number);
void run_memory_prepare_valid(struct run_memory *m, struct batch *batch);
