/* drt_generate_state.h -- one run of drt-generate, shared by its set-up and its loop. */
#pragma once
#include "tools/generate/drt_generate.h"

struct generate_state {
    struct engine *engine;
    const struct generate_options *options;
    const struct progress *progress;
    struct generation *generation;
    struct printer printer;
    struct trace *trace; /* NULL: no trace is written */
    struct memory_config memory_config;
    struct memory_search *memory_search; /* NULL: no chunks are read */
    bool memory;                /* a token memory is mixed in */
    double memory_share;        /* of the tokens generated so far */
    struct generate_sums last;
    struct generate_times prompt, generated;
};

enum status generate_prepare(struct generate_state *r);   /* `r` holds engine, options and progress; else zero */
/* Passes the token memory's part of the last generated token to the trace. */
enum status generate_trace_token(struct generate_state *r, const struct generation_token *token);
void generate_release(struct generate_state *r);          /* also after a failure */

/* drt_generate_interactive.c: continues the prompt, if there is one, then reads lines until they end. *interrupted: by
 * SIGTERM or SIGHUP. */
enum status generate_interactive(struct generate_state *r, bool *interrupted, const char *prompt, size_t bytes);
