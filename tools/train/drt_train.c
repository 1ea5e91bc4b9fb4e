/* drt_train.c -- drt-train: trains a model; `drt-train plot` draws the logs of runs. */
#include "tools/train/drt_train.h"
#include "tools/shared/args.h"
#include "tools/shared/commands.h"
#include "train/plot/plot.h"
#include <string.h>

static enum status train_plot(const char *const *runs, int n_runs, const char *out, const char *title,
                              const char *along) {
    struct plot_config config = {.title = title};
    if (strcmp(along, "steps") == 0) config.along = PLOT_STEPS;
    return plot_write(out, runs, n_runs, &config);
}

static int drt_train_plot(int argc, char **argv, const char **operands) {
    const char *out = "plot.html", *title = NULL, *along = "tokens";
    const struct arg_option options[] = {
        {"out", ARG_STRING, &out, "FILE.html|FILE.svg", "the page or picture to write", 0, 0},
        {"title", ARG_STRING, &title, "TEXT", "its heading, instead of the run's name", 0, 0},
        {"along", ARG_CHOICE, &along, "tokens|steps", "unit of the horizontal axis (a page offers both)", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-train plot",
        .synopsis = "RUN... [--out FILE]",
        .about =
            "Draws loss, learning rate, gradient norm, retrieval accuracy and throughput of one or several runs, laid "
            "over each other, from each RUN/log.jsonl (RUN may also be such a file). A page shows the values under "
            "the pointer and needs no other file. A run that is not finished can be drawn, too.",
        .examples = "  drt-train plot runs/base runs/wide --out compare.html\n"
                    "  drt-train plot runs/base --out figure.svg --along steps\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = -1,
    };
    int n_runs = 0, code = args_parse(&program, argc, argv, operands, &n_runs);
    return code >= 0 ? code : drt_train_exit(train_plot(operands, n_runs, out, title, along));
}

/* With any other first argument, drt-train trains. */
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
