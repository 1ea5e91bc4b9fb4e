/* drt_eval_ablation.c -- drt-eval ablation: makes a table of many models and modes, which a config lists
 * (docs/ablation.md).
 *
 * It runs sibling programs as separate processes, for the reasons given in tools/ablation/ablation_run.h. */
#include "base/memory.h"
#include "tools/ablation/ablation_run.h"
#include "tools/ablation/ablation_table.h"
#include "tools/eval/drt_eval.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <string.h>
#include <unistd.h>

struct ablation_options {
    const char *out, *corpus;
    double max_minutes;
    bool estimate, list_rows;
};

static int eval_ablation_parse(struct ablation_options *o, const char **operands, int argc, char **argv) {
    const struct arg_option options[] = {
        {"out", ARG_PATH, &o->out, "RUN", "the run's folder; made if it is missing (required)", 0, 0},
        {"corpus", ARG_PATH, &o->corpus, "DIR",
         "folder that the files of the config are relative to (default: the config's own)", 0, 0},
        {"estimate", ARG_FLAG, &o->estimate, NULL, "check the config, print the time of the missing parts, and end", 0,
         0},
        {"max-minutes", ARG_DOUBLE, &o->max_minutes, "T", "stop cleanly after T minutes; 0: no limit", 0, 1e7},
        {"list-rows", ARG_FLAG, &o->list_rows, NULL, "print the rows that a config may select, and end", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-eval ablation",
        .synopsis = "CONFIG --out RUN [options]",
        .about =
            "Trains models or uses finished ones, builds their stores, scores all rows that CONFIG selects on the "
            "same positions, and writes RUN/table.txt, table.json and table.html: the change of every row against the "
            "Base LM, with 95 % intervals, by text and by overlap with the store. A run that was stopped (Ctrl-C, "
            "--max-minutes) or killed continues when the same command is run again, and gives the same table. "
            "docs/ablation.md has the rows and the keys of CONFIG.",
        .examples = "  drt-eval ablation docs/examples/ablation/small.json --out run --estimate\n"
                    "  drt-eval ablation docs/examples/ablation/small.json --out run --max-minutes 10\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .max_operands = 1,
    };
    int n = 0, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0 || o->list_rows) return code;
    if (n == 0) return eval_usage("ablation", "CONFIG is missing");
    return o->out ? -1 : eval_usage("ablation", "--out RUN is missing");
}

static void list_rows(void) {
    const char *part = "";
    for (int row = 0; row < ABLATION_ROWS; row++) {
        if (strcmp(part, ablation_rows[row].part) != 0) printf("%s\n", part = ablation_rows[row].part);
        printf("  %-18s %s%s\n", ablation_rows[row].name, ablation_rows[row].title,
               ablation_rows[row].always ? " (in every table)" : "");
    }
}

static const char *time_text(char out[32], double seconds) {
    if (seconds < 2 * 86400) return progress_time_text(out, seconds);
    snprintf(out, 32, "%.0f days", seconds / 86400);
    return out;
}

/* Prints a note for evaluations that take longer than the time limit. An evaluation begins again after a stop, so it
 * would never be finished. */
static void note_long_parts(const struct ablation_plan *plan, double rate, double max_minutes) {
    double longest = 0;
    const char *name = NULL;
    char time[32];
    for (size_t i = 0; i < plan->n_parts; i++) {
        const struct ablation_part *p = &plan->parts[i];
        double seconds = p->done || p->kind < ABLATION_SCORE ? 0 : ablation_part_seconds(plan, p, rate);
        if (seconds > longest) name = p->name, longest = seconds;
    }
    if (max_minutes > 0 && longest > max_minutes * 60)
        fprintf(stderr,
                "drt-eval: note: %s takes about %s and begins again after a stop: give more --max-minutes for it\n",
                name, time_text(time, longest));
}

/* Prints the parts that are missing and their estimated time. Before a training starts, refuses a budget of seconds
 * that is too small. */
static enum status eval_ablation_estimate(double *rate, const struct ablation_plan *plan,
                                          const struct ablation_options *o) {
    const struct ablation_config *c = plan->config;
    double by_kind[ABLATION_KINDS], spent = 0;
    char all[32], train[32], build[32], score[32];
    bool begun = false;
    size_t done = 0;
    for (size_t i = 0; i < plan->n_parts; i++) {
        done += plan->parts[i].done;
        spent += plan->parts[i].done ? plan->parts[i].seconds : 0;
        begun = begun || (plan->parts[i].done && plan->parts[i].kind == ABLATION_TRAIN);
    }
    if (done == plan->n_parts) return STATUS_OK;
    TRY(ablation_measure(rate, c));
    const double left = ablation_seconds_left(plan, *rate, by_kind);
    streams_printf(o->estimate ? stdout : stderr,
                   "%s%zu of %zu parts are left: about %s (%s of training, %s of stores, %s of scoring)\n",
                   o->estimate ? "" : "drt-eval: ", plan->n_parts - done, plan->n_parts, time_text(all, left),
                   time_text(train, by_kind[ABLATION_TRAIN]), time_text(build, by_kind[ABLATION_BUILD]),
                   time_text(score, by_kind[ABLATION_SCORE] + by_kind[ABLATION_MEMORY]));
    note_long_parts(plan, *rate, o->max_minutes);
    if (c->seconds == 0 || begun || left + spent <= (double)c->seconds) return STATUS_OK;
    return fail(STATUS_INVALID,
                "%s: budget.seconds is %lld, and all parts take about %.0f s here: raise it, or lower "
                "budget.steps, score.max_tokens or the number of rows",
                c->path, (long long)c->seconds, left + spent);
}

static enum status programs_folder(char out[FILE_PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", out, FILE_PATH_MAX - 1);
    if (n < 0) return fail_errno("/proc/self/exe");
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash) *slash = 0;
    return STATUS_OK;
}

static enum status make_table(const struct ablation_plan *plan, const char *folder) {
    struct ablation_table *table; /* too large for a small stack */
    TRY(memory_allocate_zero(&table, 1));
    enum status s = ablation_table_make(table, plan, folder);
    if (s == STATUS_OK && table->n_rows > 0) s = ablation_table_write(table, folder);
    if (s == STATUS_OK && table->n_rows > 0) ablation_text_write(stdout, table);
    ablation_table_free(table);
    memory_free(table);
    return s;
}

static enum status make_run(bool *finished, struct ablation_plan *plan, const struct ablation_options *o) {
    char programs[FILE_PATH_MAX];
    struct ablation_run_options run = {.folder = o->out, .programs = programs, .max_seconds = o->max_minutes * 60};
    int lock;
    TRY(programs_folder(programs));
    TRY(ablation_run_open(&lock, plan, o->out));
    enum status s = eval_ablation_estimate(&run.rate, plan, o);
    if (s == STATUS_OK && !o->estimate) s = ablation_run_parts(finished, plan, &run);
    if (s == STATUS_OK && !o->estimate) s = make_table(plan, o->out);
    close(lock);
    return s;
}

int eval_ablation(int argc, char **argv, const char **operands) {
    struct ablation_options o = {0};
    struct ablation_config config = {0};
    struct ablation_plan *plan = NULL;
    bool finished = false;
    int code = eval_ablation_parse(&o, operands, argc, argv);
    if (code >= 0) return code;
    if (o.list_rows) {
        list_rows();
        return 0;
    }
    enum status s = memory_allocate_zero(&plan, 1);
    if (s == STATUS_OK) s = ablation_config_load(&config, operands[0], o.corpus);
    if (s == STATUS_OK) s = ablation_plan_make(plan, &config);
    if (s == STATUS_OK) s = make_run(&finished, plan, &o);
    if (plan) ablation_plan_free(plan);
    memory_free(plan);
    ablation_config_free(&config);
    if (s != STATUS_OK) return eval_failed(s);
    if (o.estimate || finished) return 0;
    fprintf(stderr, "drt-eval: not finished: the same command continues\n");
    return 1;
}
