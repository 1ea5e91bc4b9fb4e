/* drt_eval_tasks.h -- the parts of drt-eval tasks: options, figures, reports. */
#pragma once
#include "tools/eval/drt_eval.h"
#include "tools/tasks/rouge.h"
#include "tools/tasks/task_run.h"

struct tasks_options {
    struct task_run_options run;
    const char *metric, *answers;
    struct arg_strings stops;
    int64_t max_samples, max_tokens;
    bool align;
};
/* One figure per sample: RULER's score, or F of each kind of ROUGE. */
struct tasks_file_result {
    const char *path;
    double *scores[ROUGE_KINDS];
    size_t n, capacity[ROUGE_KINDS];
    double seconds;
};

/* drt_eval_tasks_report.c: print to standard output. metric: the name of the one figure of a
 * sample; NULL: the figures are those of ROUGE. */
void tasks_print(const struct tasks_file_result *results, int n, const char *metric);
void tasks_print_json(const struct tasks_file_result *results, int n, const char *metric);
