/* drt_eval_niah.h -- the parts of drt-eval niah: samples, their trials, and the reports. */
#pragma once
#include "base/progress.h"
#include "tools/tasks/needle.h"
#include "tools/tasks/task_run.h"

enum { NIAH_CONTEXTS = 16, NIAH_DEPTHS = 10 };
struct niah_options {
    struct task_run_options run;
    struct arg_strings data;
    const char *format, *text_field, *tasks, *contexts, *wording, *write, *write_documents, *heat_map, *plot, *answers;
    const char *trials;
    int64_t value_ids, keys;
    enum needle_task task[NEEDLE_TASKS]; int n_tasks;     /* from the option `tasks` */
    int64_t context[NIAH_CONTEXTS]; int n_contexts;       /* from the option `contexts`: numbers of ids, ascending */
    int64_t n_trials[NIAH_CONTEXTS];                      /* from the option `trials`: for each context */
};

/* The results of one task at one context. depth_whole: complete answers of samples whose needle is in that
 * tenth of the text. */
struct niah_cell {
    int64_t trials;
    /* whole: each id of the answer was the most probable; scored: the id that the papers score was */
    int64_t whole, scored;
    int64_t retrieved; /* every chunk that contains an id of a requested value was a neighbour of the answer */
    double values;                       /* sum over samples: share of the values that the greedy answer contains */
    int64_t depth_trials[NIAH_DEPTHS], depth_whole[NIAH_DEPTHS];
    double seconds;
    int64_t tokens;                      /* tokens that were read in `seconds` */
    int64_t past_bytes;                  /* of one text's own past: landmarks and ids of its chunks */
    size_t resident;                     /* peak of the process's resident bytes after this cell */
};
struct niah_result { struct niah_cell cell[NEEDLE_TASKS][NIAH_CONTEXTS]; };

/* drt_eval_niah_run.c. With --write or --write-documents, samples are written and no model is run. */
enum status niah_run(struct niah_result *out, const struct niah_options *o, const struct progress *progress);

/* drt_eval_niah_report.c */
void niah_print(const struct niah_result *r, const struct niah_options *o);
void niah_print_json(const struct niah_result *r, const struct niah_options *o);
/* Draws an SVG plot: a heat map for each task, with contexts across and depths down. The share of complete answers is
 * shown as a colour and as a number. */
enum status niah_draw(const struct niah_result *r, const struct niah_options *o);
double niah_bytes(const struct niah_cell *cell);          /* bytes of the own past per token of a text */
/* drt_eval_niah_plot.c: an SVG plot of seconds and bytes per token against the context, with a line for each task. */
enum status niah_plot(const struct niah_result *r, const struct niah_options *o);
/* Writes the first line of an SVG plot, for text of 12 pixels on white. */
void niah_svg_begin(FILE *f, int width, int height);
void niah_context_text(char out[24], int64_t n);          /* "4K", "1M", "1000" */
