/* drt_generate.h -- the parts of drt-generate: options, the running text, printing with stop strings, statistics. */
#pragma once
#include "base/progress.h"
#include "decoder/sampler.h"
#include "tools/shared/args.h"
#include "session/memory_text.h"
#include "tools/memory/memory_options.h"
#include "session/engine.h"
#include "tools/trace/trace.h"
#include <stdio.h>

struct generate_options {
    struct device_choice where;
    const char *model, *store, *prompt, *prompt_file, *trace;
    bool prompt_stdin, corpus, self, greedy, ignore_eos, echo, exact, exact_fallback, stats;
    int64_t max_tokens, top_k, repeat_last, seed, nprobe, threads, show_retrieved;
    const char *memory;                  /* own, corpus, both or none */
    struct memory_options memory_options;
    int64_t memory_past;
    double temperature, top_p, min_p, repeat_penalty;
    struct arg_strings stops;
};

/* ---- drt_generate_print.c: text to a stream, never a part of a stop string ---- */
struct printer;
/* Stop strings are borrowed. */
enum status printer_create(struct printer **out, FILE *file, const struct arg_strings *stops);
void printer_free(struct printer *p);                     /* NULL is fine */
/* The prompt, before all else: stop strings in it stop nothing. */
enum status printer_echo(struct printer *p, const char *text, size_t bytes);
/* *stopped: the text contains a stop string; the stop string and the text after it are not printed. */
enum status printer_put(struct printer *p, const char *text, size_t bytes, bool *stopped);
/* Prints the text that was held back because a stop string could begin in it, and ends the last line. */
enum status printer_end(struct printer *p);

/* ---- drt_generate_stats.c: where the time went ---- */
struct generate_times {                  /* of one phase; seconds */
    double total, layers, query, search, read, encode, fuse, head;
    int64_t tokens, queries, cache_hits, cache_misses;
};
/* What was spent since the last call, with the retriever's own split; `last` keeps its running sums. */
struct generate_times generate_times_take(struct decoder_state *state, const struct retriever *retriever,
                                          struct chunk_retriever_times *last, double seconds, int64_t tokens);
/* searched_by: what searched the corpus; empty: nothing did. */
void generate_times_print(FILE *file, const char *searched_by, const struct generate_times *prompt,
                          const struct generate_times *generated);

/* ---- drt_generate_run.c ---- */
enum generate_end { GENERATE_LENGTH, GENERATE_EOS, GENERATE_STOP, GENERATE_INTERRUPTED };
/* Runs the prompt, then the token loop; prints to stdout, statistics to stderr. */
enum status generate_run(enum generate_end *end, struct engine *e, const struct generate_options *o, const char *prompt,
                         size_t prompt_bytes, const struct progress *progress);
