/* commands.h -- programs made of commands ("drt-index build ..."): prints the overview, runs a command, and checks that
 * standard output was written. */
#pragma once
#include <stddef.h>

/* `run` takes argv from its own name on and an array of argc operands to fill, and returns the exit code. */
struct command { const char *name, *what; int (*run)(int argc, char **argv, const char **operands); };
/* about: what the program is; examples may be NULL. Lines are printed as they are. */
struct command_program { const char *name, *about, *examples; const struct command *commands; size_t n_commands; };

/* 2 without a command or with an unknown one; 1 if standard output could not be written. */
int commands_main(const struct command_program *program, int argc, char **argv);
/* Allocates `operands`, runs one command, then checks standard output. For programs without commands; commands_main
 * calls it for the command that argv names. */
int commands_run(const char *program, int (*run)(int argc, char **argv, const char **operands), int argc, char **argv);
