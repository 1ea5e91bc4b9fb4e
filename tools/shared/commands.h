/* commands.h -- programs that consist of commands ("drt-index build ..."): prints the overview, runs a command, and
 * checks that standard output was written. */
#pragma once
#include <stddef.h>

/* `run` gets argv from its own name on, and an array of argc operands to fill. It returns the exit code. */
struct command { const char *name, *what; int (*run)(int argc, char **argv, const char **operands); };
/* about: a description of the program; examples may be NULL. Lines are printed unchanged. */
struct command_program { const char *name, *about, *examples; const struct command *commands; size_t n_commands; };

/* Returns 2 without a command or for an unknown one; 1 if standard output could not be written; else the command's exit
 * code. */
int commands_main(const struct command_program *program, int argc, char **argv);
/* For programs without commands: allocates `operands`, runs the one command, then checks standard output. commands_main
 * calls it for the command that argv names. */
int commands_run(const char *program, int (*run)(int argc, char **argv, const char **operands), int argc, char **argv);
