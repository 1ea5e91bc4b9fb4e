/* args.h -- one table per program gives parsing, help text and defaults.
 *
 * `--name value` or `--name=value`; flags take no value. A number must be valid as a whole, or it is refused. A few
 * options also have a letter: `-n 5`, whose value is always a separate argument, so that "-nice" is not a number.
 * Every program has --help (-h) and --version. A usage error prints one line that names --help, and the program
 * exits with 2. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ARG_CHOICE: a string that is one of the words of its placeholder, as "auto|cpu|cuda". ARG_PATH: a string that is not
 * empty (an empty one usually comes from an unset variable of a script). ARG_BYTES: 8G, 512M, 100k; powers of 1024.
 * ARG_REMOVED: an option of earlier versions, which is not in the help text and gives a usage error with the text
 * `help`. */
enum arg_kind { ARG_FLAG, ARG_STRING, ARG_PATH, ARG_STRINGS, ARG_CHOICE, ARG_INT, ARG_DOUBLE, ARG_BYTES,
                ARG_REMOVED };
struct arg_strings { const char *items[64]; int count; };   /* a repeated option, in order */

struct arg_option {
    const char *name;                    /* without "--"; NULL: `help` is a heading for the options that follow */
    enum arg_kind kind;
    void *value;                         /* bool, const char *, struct arg_strings, int64_t, double, uint64_t */
    const char *placeholder;             /* "N", "DIR", "auto|jsonl|txt" */
    const char *help;                    /* the default is appended, if there is one */
    double min, max;                     /* numbers; both 0: no limits */
};
struct arg_letter { char letter; const char *name; };     /* -n is --name */
struct arg_program {
    const char *name;                    /* "drt-index build" */
    const char *synopsis;                /* "CORPUS... --out STORE [options]" */
    const char *about;                   /* what the program does; an empty line begins a paragraph */
    const char *examples;                /* shown at the end of --help; may be NULL */
    const struct arg_option *options; int n_options;
    int min_operands, max_operands;      /* max < 0: any number */
    /* Without operands: an option (ARG_PATH) whose value may be an argument of its own; NULL: none */
    const char *operand;
    const struct arg_letter *letters;    /* ends with letter 0; NULL: only -h */
};
/* Parses argv. operands [max_operands], or [argc] if there is no maximum, get pointers into argv. Returns -1 if the
 * program should continue, else its exit code (0 after --help and --version). */
int args_parse(const struct arg_program *program, int argc, char **argv, const char **operands, int *n_operands);
void args_help(const struct arg_program *program, FILE *out);
