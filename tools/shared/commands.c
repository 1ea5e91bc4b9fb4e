/* commands.c -- see commands.h. */
#include "tools/shared/commands.h"
#include "base/memory.h"
#include "session/build_version.h"
#include "tools/shared/log.h"
#include "tools/shared/streams.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void print_help(FILE *out, const struct command_program *p) {
    fprintf(out, "Usage: %s COMMAND ...\n\n%s\nCommands:\n", p->name, p->about);
    for (size_t i = 0; i < p->n_commands; i++)
        fprintf(out, "  %-10s  %s\n", p->commands[i].name, p->commands[i].what);
    fprintf(out,
            "\n%sResults go to standard output, progress and errors to standard error. Exit code: 0 done, 1 failed\n"
            "(or stopped, or problems found), 2 wrong usage. %s COMMAND --help describes a command,\n"
            "%s --version prints the versions of the program and its libraries.\n",
            p->examples ? p->examples : "", p->name, p->name);
}

/* Returns the exit code: a failure if standard output could not be written. A command that failed has already printed
 * its error. Under `ulimit -v` idle threads of OpenBLAS may repeat an allocation for ever, and OpenBLAS' exit handler
 * waits for them. So with such a limit the program exits without exit handlers. */
static int commands_end(const char *program, int code) {
    struct rlimit space;
    if (code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        log_line(LOG_ERROR, "error", program,
                 "standard output cannot be written (is the disk full, or ulimit -f reached?)");
        code = 1;
    }
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur == RLIM_INFINITY) return code;
    fflush(NULL);
    _exit(code);
}

int commands_run(const char *program, int (*run)(int argc, char **argv, const char **operands), int argc, char **argv) {
    const char **operands;
    streams_reserve();
    if (memory_allocate(&operands, (size_t)argc) != STATUS_OK) {
        fprintf(stderr, "%s: %s\n", program, status_message());
        return commands_end(program, 1);
    }
    int code = run(argc, argv, operands);
    memory_free(operands);
    return commands_end(program, code);
}

int commands_main(const struct command_program *p, int argc, char **argv) {
    streams_reserve();
    if (argc < 2) {
        print_help(stderr, p);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout, p);
        return commands_end(p->name, 0);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        build_version_print(stdout, p->name);
        return commands_end(p->name, 0);
    }
    for (size_t i = 0; i < p->n_commands; i++)
        if (strcmp(argv[1], p->commands[i].name) == 0)
            return commands_run(p->name, p->commands[i].run, argc - 1, argv + 1);
    streams_printf(stderr, "%s: there is no command \"%s\" (see %s --help)\n", p->name, argv[1], p->name);
    return 2;
}
