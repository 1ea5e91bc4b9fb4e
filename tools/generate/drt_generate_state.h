/* drt_generate_state.h -- the state of one run of drt-generate, for its set-up and its loop. */
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
    struct memory_search *memory_search; /* NULL: no chunks are read by a token memory */
    bool memory;                /* a token memory is mixed in */
    double memory_share;        /* of the tokens generated so far */
    struct generate_sums last;
    struct generate_times prompt, generated;
};

enum status generate_prepare(struct generate_state *r);   /* `r` has engine, options and progress; the rest is zero */
/* Passes the token memory's part in the last generated token to the trace. */
enum status generate_trace_token(struct generate_state *r, const struct generation_token *token);
void generate_release(struct generate_state *r);          /* call it also after a failure */

/* drt_generate_interactive.c: continues the prompt, if there is one, then reads lines until the input ends.
 * *interrupted: SIGTERM or SIGHUP ended it. */
enum status generate_interactive(struct generate_state *r, bool *interrupted, const char *prompt, size_t bytes);
