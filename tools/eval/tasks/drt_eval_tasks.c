/* drt_eval_tasks.c -- drt-eval tasks: answers to the prompts of files, scored by the outputs that they
 * contain, or by ROUGE. */
#include "tools/eval/tasks/drt_eval_tasks.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "tools/shared/log.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/tasks/task_file.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct tasks_state {
    const struct tasks_options *options;
    struct task_run run;
    FILE *answers; /* NULL: not given */
    char *answer;
    size_t capacity;
    bool rouge;
    const char *metric; /* of the report; NULL: ROUGE's */
    const struct progress *progress;
};

static int eval_tasks_parse(struct tasks_options *o, int argc, char **argv, const char **operands, int *n_operands) {
    const struct arg_option options[] = {
        {NULL, ARG_FLAG, NULL, NULL, "Task", 0, 0},
        {"metric", ARG_CHOICE, &o->metric, "auto|ruler|ruler-part|rouge",
         "ruler: share of the outputs that the answer contains; ruler-part: whether it contains one of them (RULER's "
         "score of its qa tasks); rouge: ROUGE-1, -2 and -L of the answer against the "
         "first output; auto: ruler if a sample has \"outputs\", otherwise rouge",
         0, 0},
        {"answers", ARG_PATH, &o->answers, "FILE", "write each answer to FILE, one object per line", 0, 0},
        {"max-samples", ARG_INT, &o->max_samples, "N", "samples of each file at most; 0: all", 0, INFINITY},
        {"max-tokens", ARG_INT, &o->max_tokens, "N", "tokens of an answer at most", 1, 1 << 20},
        {"stop", ARG_STRINGS, &o->stops, "STR", "an answer ends before this string; may be given several times", 0, 0},
        {"align", ARG_FLAG, &o->align, NULL,
         "put padding before a prompt, so that a query has read all of it except its last token (for a model that was "
         "trained with the key align)",
         0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Model and machine", 0, 0},
        OPTIONS_OF_TASK_RUN(o->run),
    };
    const struct arg_program program = {
        .name = "drt-eval tasks",
        .synopsis = "FILE... [--model DIR] [--self-retrieval] [--store DIR --corpus-retrieval] [options]",
        .about = "Answers the prompts of jsonl files (also .gz .zst .xz, and - for standard input) greedily and scores "
                 "the answers, with 95 % intervals over samples. A line is {\"input\", \"outputs\"} with an optional "
                 "\"answer_prefix\" as RULER writes it, {\"document\", \"summary\"} or {\"article\", \"highlights\"}.",
        .examples =
            "  drt-eval tasks niah_single_1-4096.jsonl.xz vt-4096.jsonl.xz --self-retrieval --max-tokens 32\n"
            "  drt-eval tasks xsum-test.jsonl --metric rouge --self-retrieval --max-tokens 128 --answers a.jsonl\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = 64};
    return args_parse(&program, argc, argv, operands, n_operands);
}

static enum status tasks_write_answer(struct tasks_state *s, const char *path, const struct task_sample *sample,
                                      size_t bytes, const double figures[ROUGE_KINDS]) {
    struct json_writer w;
    if (!s->answers) return STATUS_OK;
    json_write_open(&w, s->answers, 0);
    json_write_object(&w);
    json_write_key(&w, "file");
    json_write_string(&w, path);
    json_write_key(&w, "line");
    json_write_int(&w, sample->line);
    json_write_key(&w, "answer");
    json_write_bytes(&w, s->answer, bytes);
    json_write_key(&w, "outputs");
    json_write_array(&w);
    for (int i = 0; i < sample->n_outputs; i++)
        json_write_string(&w, sample->outputs[i]);
    json_write_array_end(&w);
    for (int k = 0; k < (s->rouge ? ROUGE_KINDS : 1); k++) {
        json_write_key(&w, s->rouge ? rouge_names[k] : "score");
        json_write_double(&w, figures[k]);
    }
    json_write_object_end(&w);
    fputc('\n', s->answers);
    return ferror(s->answers) ? fail_errno("%s", s->options->answers) : STATUS_OK;
}

static double tasks_contained(const struct tasks_state *s, const struct task_sample *sample, size_t bytes) {
    const double share = task_contained(sample, s->answer, bytes);
    return strcmp(s->options->metric, "ruler-part") == 0 ? share > 0 : share;
}

static enum status tasks_sample(struct tasks_state *s, struct tasks_file_result *r, const struct task_sample *sample) {
    struct rouge_score rouges[ROUGE_KINDS] = {0};
    double figures[ROUGE_KINDS] = {0};
    size_t bytes = 0;
    if (strcmp(s->options->metric, "auto") == 0 && sample->summary != s->rouge)
        return fail(STATUS_INVALID,
                    "%s: line %lld has \"%s\", unlike the first sample, which determined the metric: give --metric, or "
                    "one command for each kind of file",
                    r->path, (long long)sample->line, sample->summary ? "summary\" or \"highlights" : "outputs");
    if (!s->rouge && sample->outputs[0][0] == 0)
        return fail(STATUS_INVALID,
                    "%s: line %lld: the summary is empty, and %s asks whether an answer contains it: give --metric "
                    "rouge, or take the line out",
                    r->path, (long long)sample->line, s->metric);
    TRY(task_run_answer(&s->run, sample->prompt, sample->prompt_bytes, &s->answer, &s->capacity, &bytes, s->progress));
    if (s->rouge) TRY(rouge(rouges, sample->outputs[0], strlen(sample->outputs[0]), s->answer, bytes));
    for (int k = 0; k < ROUGE_KINDS; k++)
        figures[k] = s->rouge ? rouges[k].f : tasks_contained(s, sample, bytes);
    for (int k = 0; k < ROUGE_KINDS; k++) {
        TRY(memory_grow(&r->scores[k], &r->capacity[k], r->n + 1));
        r->scores[k][r->n] = figures[k];
    }
    r->n++;
    return tasks_write_answer(s, r->path, sample, bytes, figures);
}

static enum status tasks_samples(struct tasks_state *s, struct tasks_file_result *r, struct task_file *file) {
    const double start = clock_seconds();
    struct task_sample sample;
    bool more;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (s->options->max_samples == 0 || (int64_t)r->n < s->options->max_samples)) {
        TRY(task_file_next(file, &sample, &more));
        if (!more) break;
        status = tasks_sample(s, r, &sample);
        progress_step(s->progress, r->path, "samples", (int64_t)r->n, -1);
    }
    r->seconds = clock_seconds() - start;
    if (status == STATUS_OK && r->n == 0) return fail(STATUS_INVALID, "%s: has no samples", r->path);
    return status;
}

/* Determines the metric `auto` by the first sample of the first file. */
static enum status tasks_metric(struct tasks_state *s, const char *path) {
    struct task_file *file;
    struct task_sample sample;
    bool more = false;
    s->rouge = strcmp(s->options->metric, "rouge") == 0;
    if (strcmp(s->options->metric, "auto") != 0) return STATUS_OK;
    if (strcmp(path, "-") == 0)
        return fail(STATUS_INVALID, "standard input cannot be read twice: give --metric ruler, ruler-part or rouge");
    TRY(task_file_open(&file, path));
    enum status status = task_file_next(file, &sample, &more);
    if (status == STATUS_OK && more) s->rouge = sample.summary;
    task_file_close(file);
    return status;
}

static enum status tasks_run(struct tasks_state *s, struct tasks_file_result *results, const char **paths, int n) {
    TRY(file_apart(s->options->answers, paths, n));
    TRY(tasks_metric(s, paths[0]));
    s->metric = s->rouge ? NULL : strcmp(s->options->metric, "auto") == 0 ? "ruler" : s->options->metric;
    TRY(task_run_open(&s->run, &s->options->run, s->options->max_tokens, &s->options->stops, s->progress));
    s->run.align = s->options->align;
    if (s->run.align && s->run.engine.model.config.base_lm)
        return fail(STATUS_INVALID, "--align: the model is a Base LM, which has no queries: leave it out");
    if (s->options->answers) {
        s->answers = fopen(s->options->answers, "we");
        if (!s->answers) return fail_errno("%s", s->options->answers);
    }
    for (int i = 0; i < n; i++) {
        struct task_file *file;
        results[i].path = paths[i];
        TRY(task_file_open(&file, paths[i]));
        enum status status = tasks_samples(s, &results[i], file);
        task_file_close(file);
        TRY(status);
    }
    return STATUS_OK;
}

int eval_tasks(int argc, char **argv, const char **operands) {
    struct tasks_options o = {.run = TASK_RUN_DEFAULT, .metric = "auto", .max_tokens = 64};
    struct tasks_state s = {.options = &o};
    struct tasks_file_result results[64] = {0};
    struct progress_line *line = NULL;
    int n = 0;
    int code = eval_tasks_parse(&o, argc, argv, operands, &n);
    const char *wrong = code < 0 ? task_run_usage(&o.run) : NULL;
    if (wrong) return eval_usage("tasks", wrong);
    if (code >= 0) return code;
    enum status status = progress_line_start(&line, "drt-eval");
    if (status != STATUS_OK) return eval_failed(status);
    s.progress = progress_line_progress(line);
    status = tasks_run(&s, results, operands, n);
    progress_line_end(line);
    if (s.answers && fclose(s.answers) != 0 && status == STATUS_OK) status = fail_errno("%s", o.answers);
    report_missing("drt-eval", &s.run.engine, o.run.exact_fallback);
    /* the samples that were scored before a signal or a bad line are reported */
    if (status == STATUS_OK || results[0].n > 0) (o.run.json ? tasks_print_json : tasks_print)(results, n, s.metric);
    task_run_close(&s.run);
    memory_free(s.answer);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < ROUGE_KINDS; k++)
            memory_free(results[i].scores[k]);
    return status == STATUS_OK ? 0 : eval_failed(status);
}
