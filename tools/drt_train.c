/* drt_train.c -- drt-train: trains a model; `drt-train plot` draws what runs logged. */
#include "tools/drt_train.h"
#include "base/memory.h"
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
    void *operands;
    enum status status = memory_allocate(&operands, (size_t)argc + 1, sizeof(char *));
    if (status != STATUS_OK) return drt_train_exit(status);
    int (*run)(int, char **, const char **) = drt_train_run, skip = 0;
    for (size_t i = 0; i < ARRAY_LEN(commands) && argc > 1; i++)
        if (strcmp(argv[1], commands[i].name) == 0) run = commands[i].run, skip = 1;
    int code = run(argc - skip, argv + skip, operands);
    memory_free(operands);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "drt-train: standard output cannot be written (is the disk full?)\n");
        return code ? code : 1;
    }
    return code;
}
