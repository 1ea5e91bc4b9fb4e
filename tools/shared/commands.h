/* commands.h -- programs made of commands ("drt-index build ..."): the overview, the way to a command, and the last look at
 * standard output. */
#pragma once
#include <stddef.h>

/* `run` gets argv from its own name on, with room for argc operands, and gives the exit code. */
struct command { const char *name, *what; int (*run)(int argc, char **argv, const char **operands); };
/* about: what the program is; examples may be NULL. Lines are printed as they are. */
struct command_program { const char *name, *about, *examples; const struct command *commands; size_t n_commands; };

/* 2 without a command, or with one that there is not; 1 when standard output could not be written. */
int commands_main(const struct command_program *program, int argc, char **argv);
/* Runs one command with room for its operands, then looks at standard output: what commands_main does with the one it
 * found, and all there is to do for a program without commands. */
int commands_run(const char *program, int (*run)(int argc, char **argv, const char **operands), int argc, char **argv);
