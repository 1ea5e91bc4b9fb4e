/* drt_eval_niah.c -- drt-eval niah: needles in a text's own past or in a store. This file has the options;
 * drt_eval_niah_run.c runs the trials, and drt_eval_niah_report.c prints the results. */
#include "tools/eval/tasks/drt_eval_niah.h"
#include "tools/eval/drt_eval.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int eval_niah_parse(struct niah_options *o, int argc, char **argv, const char **operands) {
    const struct arg_option options[] = {
        {NULL, ARG_FLAG, NULL, NULL, "Samples", 0, 0},
        {"data", ARG_STRINGS, &o->data, "FILE",
         "text to hide needles in (required; of several files each gives an equal share)", 0, 0},
        OPTION_FORMAT(o->format, "--data"),
        OPTION_TEXT_FIELD(o->text_field),
        {"tasks", ARG_STRING, &o->tasks, "LIST", "any of single,multi-key,multi-value,two-hop", 0, 0},
        {"context", ARG_STRING, &o->contexts, "LIST", "tokens of a text: 4K,16K,1M (powers of 1024)", 0, 0},
        {"wording", ARG_CHOICE, &o->wording, "papers|ruler",
         "papers: keys and values are random ids; ruler: words and numbers, as RULER words them", 0, 0},
        {"trials", ARG_STRING, &o->trials, "LIST",
         "samples of each task and context: one number, or one for each context: 200,200,50", 0, 0},
        {"value-ids", ARG_INT, &o->value_ids, "N",
         "wording papers: random ids of a value; a model learns more from long values in the same time", 1,
         NEEDLE_ANSWER_MAX},
        {"keys", ARG_INT, &o->keys, "N", "statements of a multi-key sample, each with a key of its own", 2,
         NEEDLE_STATEMENTS},
        {"seed", ARG_INT, &o->run.seed, "N", "seed of the samples", 0, INFINITY},
        {"write", ARG_PATH, &o->write, "FILE",
         "write the samples with their answers to FILE and run no model: .u32 (token ids, for drt-train) or .jsonl "
         "(text in RULER's layout; with --wording ruler)",
         0, 0},
        {"write-documents", ARG_PATH, &o->write_documents, "FILE",
         "write a document with the needles of each sample to FILE (.u32, for drt-index add) and run no model; then "
         "--corpus-retrieval retrieves them from the store",
         0, 0},
        {"answers", ARG_PATH, &o->answers, "FILE",
         "write one object per line for each sample: positions of its values, chunks read, its answer", 0, 0},
        {"heat-map", ARG_PATH, &o->heat_map, "FILE", "draw the shares by context and depth (.svg)", 0, 0},
        {"plot", ARG_PATH, &o->plot, "FILE", "draw microseconds and bytes per token against the context (.svg)", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Model and machine", 0, 0},
        OPTIONS_OF_TASK_RUN(o->run),
    };
    const struct arg_program program = {
        .name = "drt-eval niah",
        .synopsis = "--data FILE [--model DIR] --self-retrieval | --store DIR --corpus-retrieval [options]",
        .about =
            "Inserts statements into a long text and asks a question about them (needle in a haystack). An answer is "
            "found if each of its ids is the most probable one after the text and the ids before it. With "
            "--corpus-retrieval the statements are in documents of the store (see --write-documents), not in the "
            "text. The task single has no keys, so with several passkeys in a store no answer is correct.",
        .examples =
            "  drt-eval niah --data books.jsonl.xz --self-retrieval --context 4K,16K,64K --trials 50 --heat-map n.svg\n"
            "  drt-eval niah --data books.jsonl.xz --tasks multi-key --write-documents needles.u32 --trials 100\n"
            "  drt-index add needles.u32 --store books.store\n"
            "  drt-eval niah --data books.jsonl.xz --tasks multi-key --store books.store --corpus-retrieval --trials "
            "100\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0;
    return args_parse(&program, argc, argv, operands, &n_operands);
}

static const char *niah_tasks(struct niah_options *o) {
    char list[128], *rest = NULL;
    if ((size_t)snprintf(list, sizeof list, "%s", o->tasks) >= sizeof list) return "--tasks: too long";
    for (const char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int task = 0, i = 0;
        while (task < NEEDLE_TASKS && strcmp(word, needle_task_names[task]) != 0)
            task++;
        while (i < o->n_tasks && o->task[i] != (enum needle_task)task)
            i++;
        if (task == NEEDLE_TASKS) return "--tasks takes single, multi-key, multi-value and two-hop";
        if (i < o->n_tasks) return "--tasks names one twice";
        o->task[o->n_tasks++] = (enum needle_task)task;
    }
    return o->n_tasks ? NULL : "--tasks is empty";
}

static const char *niah_contexts(struct niah_options *o) {
    for (const char *p = o->contexts; *p;) {
        char *end;
        double value = strtod(p, &end);
        if (end == p) return "--context takes numbers of tokens: 4K,16K,1M";
        if (*end == 'K' || *end == 'k')
            value *= 1024, end++;
        else if (*end == 'M' || *end == 'm')
            value *= 1 << 20, end++;
        if (*end && *end != ',') return "--context takes numbers of tokens: 4K,16K,1M";
        if (!(value >= 256 && value <= 1 << 28)) return "--context: from 256 tokens to 256M";
        if (o->n_contexts == NIAH_CONTEXTS) return "--context takes at most 16 numbers";
        if (o->n_contexts && value <= (double)o->context[o->n_contexts - 1])
            return "--context: each number must be greater than the one before";
        o->context[o->n_contexts++] = (int64_t)value;
        p = end + (*end == ',');
    }
    return o->n_contexts ? NULL : "--context is empty";
}

static const char *niah_trials(struct niah_options *o) {
    int n = 0;
    for (const char *p = o->trials; *p; n++) {
        char *end;
        const long long value = strtoll(p, &end, 10);
        if (end == p || (*end && *end != ',') || value < 1 || value > 1 << 24)
            return "--trials takes one number of samples, or one for each context: 200,200,50";
        if (n < o->n_contexts) o->n_trials[n] = value;
        p = end + (*end == ',');
    }
    if (n != 1 && n != o->n_contexts) return "--trials takes one number, or as many as --context";
    for (int c = n; c < o->n_contexts; c++)
        o->n_trials[c] = o->n_trials[0];
    return NULL;
}

static bool niah_ends(const char *path, const char *with) {
    const size_t n = strlen(path), m = strlen(with);
    return n > m && strcmp(path + n - m, with) == 0;
}

static const char *niah_usage(struct niah_options *o) {
    const char *wrong = niah_tasks(o);
    if (!wrong) wrong = niah_contexts(o);
    if (!wrong) wrong = niah_trials(o);
    if (!wrong) wrong = task_run_usage(&o->run);
    if (wrong) return wrong;
    const bool writes = o->write || o->write_documents;
    if (o->data.count == 0) return "--data FILE is missing";
    if (o->write && o->write_documents) return "only one of --write and --write-documents can be given";
    if (writes && (o->run.corpus || o->run.own_past || o->heat_map || o->plot || o->answers))
        return "--write and --write-documents run no model: leave out retrieval, --answers, --heat-map and --plot";
    if (o->write && !niah_ends(o->write, ".u32") && !niah_ends(o->write, ".jsonl"))
        return "--write FILE ends in .u32 or .jsonl";
    if (o->write && niah_ends(o->write, ".jsonl") && strcmp(o->wording, "ruler") != 0)
        return "--write FILE.jsonl needs --wording ruler: random ids are no text (FILE.u32 holds them)";
    if (o->write_documents && !niah_ends(o->write_documents, ".u32")) return "--write-documents FILE ends in .u32";
    if (o->run.corpus && o->run.own_past) return "needles are in the text or in the store: give one kind of retrieval";
    if (o->heat_map && !niah_ends(o->heat_map, ".svg")) return "--heat-map FILE ends in .svg";
    if (o->plot && !niah_ends(o->plot, ".svg")) return "--plot FILE ends in .svg";
    return NULL;
}

int eval_niah(int argc, char **argv, const char **operands) {
    struct niah_options o = {.run = TASK_RUN_DEFAULT,
                             .format = "auto",
                             .text_field = "text",
                             .tasks = "single",
                             .contexts = "4K",
                             .wording = "papers",
                             .trials = "20",
                             .value_ids = 5,
                             .keys = NEEDLE_KEYS};
    struct niah_result result = {0};
    struct progress_line *line = NULL;
    int code = eval_niah_parse(&o, argc, argv, operands);
    const char *wrong = code < 0 ? niah_usage(&o) : NULL;
    if (wrong) return eval_usage("niah", wrong);
    if (code >= 0) return code;
    enum status status = progress_line_start(&line, "drt-eval");
    if (status != STATUS_OK) return eval_failed(status);
    status = niah_run(&result, &o, progress_line_progress(line));
    progress_line_end(line);
    if (result.cell[0][0].trials > 0) (o.run.json ? niah_print_json : niah_print)(&result, &o);
    if (status == STATUS_OK && o.heat_map) status = niah_draw(&result, &o);
    if (status == STATUS_OK && o.plot) status = niah_plot(&result, &o);
    return status == STATUS_OK ? 0 : eval_failed(status);
}
