/* drt_train.c -- drt-train: trains a model; `drt-train plot` draws what runs logged. */
#include "tools/train/drt_train.h"
#include "tools/shared/commands.h"
#include <string.h>

/* Without one of these names, a run. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv, const char **operands);
} commands[] = {
    {"run", drt_train_run},
    {"plot", drt_train_plot},
};

int drt_train_exit(enum status status) {
    if (status == STATUS_OK) return 0;
    fflush(stdout);
    fprintf(stderr, "drt-train: %s\n", status_message());
    return 1;
}

int main(int argc, char **argv) {
    int (*run)(int, char **, const char **) = drt_train_run, skip = 0;
    for (size_t i = 0; i < ARRAY_LEN(commands) && argc > 1; i++)
        if (strcmp(argv[1], commands[i].name) == 0) run = commands[i].run, skip = 1;
    return commands_run("drt-train", run, argc - skip, argv + skip);
}
