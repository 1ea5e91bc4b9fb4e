/* drt_eval_niah.h -- the parts of drt-eval niah: samples, their trials, and what is shown of them. */
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
    int64_t value_ids;
    enum needle_task task[NEEDLE_TASKS]; int n_tasks;     /* what `tasks` says */
    int64_t context[NIAH_CONTEXTS]; int n_contexts;       /* what `contexts` says: ids, rising */
    int64_t n_trials[NIAH_CONTEXTS];                      /* what `trials` says, of each context */
};

/* Of one task at one context. depth_whole: whole answers of samples whose needle lies in that tenth of the text. */
struct niah_cell {
    int64_t trials;
    int64_t whole, scored;               /* each id of the answer was the likeliest; the papers' one id was */
    int64_t retrieved;                   /* every chunk with an id of a requested value was a neighbour of the answer */
    int64_t depth_trials[NIAH_DEPTHS], depth_whole[NIAH_DEPTHS];
    double seconds;
    int64_t tokens;                      /* read in that time */
    int64_t past_bytes;                  /* of one text's own past: landmarks and ids of its chunks */
    size_t resident;                     /* bytes of this process after it, at their peak */
};
struct niah_result { struct niah_cell cell[NEEDLE_TASKS][NIAH_CONTEXTS]; };

/* drt_eval_niah_run.c: with --write or --write-documents, samples are written and no model is asked. */
enum status niah_run(struct niah_result *out, const struct niah_options *o, const struct progress *progress);

/* drt_eval_niah_report.c */
void niah_print(const struct niah_result *r, const struct niah_options *o);
void niah_print_json(const struct niah_result *r, const struct niah_options *o);
/* An SVG picture: a map for each task, contexts across, depths down, the share of whole answers as colour and as
 * number. */
enum status niah_draw(const struct niah_result *r, const struct niah_options *o);
double niah_bytes(const struct niah_cell *cell);          /* of its own past, for each token of a text */
/* drt_eval_niah_plot.c: seconds and bytes a token against the context, a line for each task; an SVG picture. */
enum status niah_plot(const struct niah_result *r, const struct niah_options *o);
/* An SVG picture's first line, for text of 12 pixels on white. */
void niah_svg_begin(FILE *f, int width, int height);
void niah_context_text(char out[24], int64_t n);          /* "4K", "1M", "1000" */
