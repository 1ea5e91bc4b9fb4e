/* drt_generate.h -- the parts of drt-generate: options, the running text, printing, statistics. */
#pragma once
#include "base/progress.h"
#include "tools/shared/network.h"
#include "session/generation.h"
#include "tools/memory/memory_options.h"
#include "tools/trace/trace.h"
#include <stdio.h>

struct generate_options {
    struct device_choice where;
    const char *encoder;                 /* folder of an external encoder; NULL: none */
    const char *devices;                 /* GPUs that search together; NULL: one */
    const char *model, *store, *prompt, *prompt_file, *trace;
    const char *searcher;                /* landmark, lexical or hybrid */
    bool prompt_stdin, corpus, own_past, greedy, ignore_eos, echo, exact, exact_fallback, stats, interactive;
    int64_t max_tokens, top_k, repeat_last, seed, nprobe, continuation, overlap, query_ids, threads, show_retrieved;
    const char *memory;                  /* own, corpus, both or none */
    struct memory_options memory_options;
    struct worker_options workers;
    double temperature, top_p, min_p, repeat_penalty;
    struct arg_strings stops;
};

/* ---- drt_generate_options.c ---- */
/* Returns -1 to continue with these options, otherwise the exit code. `o` has the defaults on entry. */
int generate_options_parse(struct generate_options *o, int argc, char **argv, const char **operands);

/* ---- drt_generate_stats.c: where the time went, and the text's output ---- */
struct printer { FILE *file; bool ended; };               /* ended: the last line has a newline; true at first */
enum status printer_put(struct printer *p, const char *text, size_t bytes);
enum status printer_end(struct printer *p);               /* ends the last line */

struct generate_times {                  /* of one phase, in seconds */
    double total, layers, query, search, read, encode, fuse, head, mix;
    int64_t tokens, queries, cache_hits, cache_misses, copied;
};
/* Counts and times so far of everything that searches chunks. */
struct generate_sums { struct chunk_retriever_times retriever; struct memory_text_times memory; };
/* Returns the times since the last call. `search` and `encode` are sums over GCA's retriever and the token memory. */
struct generate_times generate_times_take(struct generation *g, struct generate_sums *last, double seconds,
                                          int64_t tokens);
/* searched_by: how the corpus was searched; empty: it was not. */
void generate_times_print(FILE *file, const char *searched_by, const struct generate_times *prompt,
                          const struct generate_times *generated);

/* ---- drt_generate_run.c ---- */
/* Reads the prompt, then generates. Prints to stdout, and statistics to stderr. *interrupted: a signal stopped
 * the generation. */
enum status generate_run(bool *interrupted, struct engine *e, const struct generate_options *o, const char *prompt,
                         size_t prompt_bytes, const struct progress *progress);
