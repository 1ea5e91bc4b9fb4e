/* run_memory.h -- passages of a token memory for a run's batches, and the order of windows that memory.pack wants
 * (training-keys.md, memory). */
#pragma once
#include "train/memory/similar_passages.h"
#include "train/run/run.h"

struct run_memory;
struct run_memory_texts { struct batches *text; const struct batches *pool, *valid; };
/* *out is NULL if the config reads no passages. Collective: rank 0 makes the file of search results if it is missing,
 * then the others read it. With memory.pack this sets the order of texts.text. `options` and `texts` are borrowed until
 * run_memory_close. */
enum status run_memory_open(struct run_memory **out, const struct run_options *options,
                            const struct run_memory_texts *texts);
void run_memory_close(struct run_memory *m);              /* NULL is fine */
/* Sets the passages of a batch. They are valid until a batch of the same number is prepared. m NULL: does nothing. */
void run_memory_prepare(struct run_memory *m, struct batch *batch, int number);
void run_memory_prepare_valid(struct run_memory *m, struct batch *batch);
