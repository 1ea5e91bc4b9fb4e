/* args.h -- one table per program gives parsing, help text and defaults.
 *
 * Long options only, plus -h. `--name value` or `--name=value`; flags take no value. Numbers are parsed whole or
 * refused. Usage errors print one line and the way to --help, and the program leaves with 2. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ARG_CHOICE: a string that is one of the words of its placeholder, "auto|cpu|cuda"; ARG_PATH: one that is not empty, as a
 * script's unset variable is; else a usage error. */
enum arg_kind { ARG_FLAG, ARG_STRING, ARG_PATH, ARG_STRINGS, ARG_CHOICE, ARG_INT, ARG_DOUBLE, ARG_BYTES /* 8G, 512M, 100k: powers of 1024 */ };
struct arg_strings { const char *items[64]; int count; };   /* a repeated option, in order */

struct arg_option {
    const char *name;                    /* without "--"; NULL: `help` is a heading for the options behind it */
    enum arg_kind kind;
    void *value;                         /* bool, const char *, struct arg_strings, int64_t, double, uint64_t; holds the default */
    const char *placeholder;             /* "N", "DIR", "auto|jsonl|txt" */
    const char *help;                    /* the default is appended where there is one */
    double min, max;                     /* numbers; both 0: no limits */
};
struct arg_program {
    const char *name;                    /* "drt-index build" */
    const char *synopsis;                /* "CORPUS... --out STORE [options]" */
    const char *about;                   /* what it does; an empty line begins a paragraph */
    const char *examples;                /* shown at the end of --help; may be NULL */
    const struct arg_option *options; int n_options;
    int min_operands, max_operands;      /* max < 0: any number */
};
/* operands[] gets pointers into argv: room for max_operands, or for argc when there is no maximum. Returns -1 to go on,
 * else the exit code to leave with (0 after --help). */
int args_parse(const struct arg_program *program, int argc, char **argv, const char **operands, int *n_operands);
void args_help(const struct arg_program *program, FILE *out);
