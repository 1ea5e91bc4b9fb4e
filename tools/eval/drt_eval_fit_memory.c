/* drt_eval_fit_memory.c -- drt-eval fit-memory: temperature and gate for a model and a store, fitted on one half of the
 * documents and reported on the other, both ways. */
#include "base/memory.h"
#include "tools/eval/drt_eval_samples.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include <math.h>
#include <string.h>

static int parse(struct eval_options *o, const char **out, int argc, char **argv, const char **operands) {
    const struct arg_option options[] = {
        {"model", ARG_PATH, &o->model, "DIR", "model folder (default: the bundled model)", 0, 0},
        {"data", ARG_STRINGS, &o->data, "FILE", "held-out texts (required; may be given several times)", 0, 0},
        {"out", ARG_PATH, out, "FILE", "configuration to write, memory.json of a model's folder, say (required)", 0, 0},
        {"memory", ARG_STRING, &o->memory, "LIST",
         "memories to fit: any of own,corpus,both; random: report random chunks with corpus' gate", 0, 0},
        {"store", ARG_PATH, &o->store, "DIR", "store of a tokenizer and a chunk size like the model's", 0, 0},
        MEMORY_SEARCH_OPTIONS(o->memory_options),
        {"base", ARG_PATH, &o->base, "DIR", "a Base LM of the same tokenizer, reported beside (mode base)", 0, 0},
        {"exclude", ARG_STRING, &o->exclude, "doc|none", "whether a text that is in the store too may find itself", 0,
         0},
        {"context", ARG_INT, &o->context, "N", "tokens in a window; documents are cut into windows", 2, 1 << 28},
        {"skip", ARG_INT, &o->skip, "N", "tokens at the start of each window that are read but not scored", 0, 1 << 28},
        {"max-documents", ARG_INT, &o->max_documents, "N", "score at most N documents of each file; 0: all", 0,
         INFINITY},
        {"max-tokens", ARG_INT, &o->max_tokens, "N", "score at most N tokens of each file; 0: all", 0, INFINITY},
        {"document-tokens", ARG_INT, &o->document_tokens, "N", "scored tokens of each document at most; 0: all", 0,
         INFINITY},
        {"format", ARG_CHOICE, &o->format, "auto|jsonl|txt|u16|u32|megatron|parquet|arrow",
         "format of --data; auto: by name, then by content", 0, 0},
        {"text-field", ARG_STRING, &o->text_field, "NAME",
         "jsonl, parquet, arrow: the field or column that holds the text; in structs: a.b", 0, 0},
        {"seed", ARG_INT, &o->seed, "N", "seed of random chunks", 0, INFINITY},
        {"device", ARG_CHOICE, &o->where.device, "auto|cpu|cuda", "where to compute; auto: a GPU if there is one", 0,
         0},
        {"dtype", ARG_CHOICE, &o->where.dtype, "auto|f32|bf16", "a GPU computes in bf16 (auto) or float32", 0, 0},
        {"threads", ARG_INT, &o->threads, "N",
         "threads to use; 0: one for each processor that the affinity mask and CPU quota allow", 0, THREADS_MAX},
        {"json", ARG_FLAG, &o->json, NULL, "print one JSON object instead of tables", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-eval fit-memory",
        .synopsis = "--data FILE --out FILE [--model DIR] [--store DIR --lexical DIR] [options]",
        .about =
            "Fits how a model's distribution is mixed with those of token memories: a temperature and a small gate for "
            "each. No weight of the model changes, and a Base LM will do.\n\n"
            "The configuration is fitted on the even documents of each file (counted from 0). The figures are of "
            "the odd ones, and of the even ones with a fit to the odd ones: no text is scored with a gate that saw "
            "it.",
        .examples = "  drt-eval fit-memory --data valid.jsonl.xz --store docs.store --lexical docs.lexical \\\n"
                    "    --model base-lm --out base-lm/memory.json\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0;
    return args_parse(&program, argc, argv, operands, &n_operands);
}

/* Fits on the documents of one parity and scores the others with it. */
static enum status fit_half(struct memory_mixture *out, struct eval_result *result, const struct eval_samples *samples,
                            int mode, bool odd, struct threads *threads) {
    bool *use = NULL;
    int *file = NULL;
    struct memory_samples s = eval_samples_of(samples, mode);
    enum status status = memory_allocate(&use, result->n_documents);
    if (status == STATUS_OK) status = memory_allocate(&file, result->n_documents);
    for (size_t i = 0; i < result->n_documents && status == STATUS_OK; i++) {
        use[i] = result->documents[i].number % 2 == odd;
        file[i] = result->documents[i].file;
    }
    const struct memory_part part = {use, file, (int)result->n_documents, result->n_files};
    if (status == STATUS_OK && mode != EVAL_MEMORY_RANDOM) status = memory_fit(out, &s, &part, threads);
    for (int64_t i = 0; i < s.n && status == STATUS_OK; i++)
        if (!use[s.document[i]]) result->documents[s.document[i]].nll[mode] -= memory_fit_mixed(out, &s, i);
    memory_free(use);
    memory_free(file);
    return status;
}

/* Both halves of each mode; random chunks are mixed as found ones are, so corpus comes first. */
static enum status fit_all(struct memory_config *config, struct eval_result *result, const struct eval_samples *samples,
                           struct threads *threads) {
    struct memory_mixture odd[MEMORY_KINDS] = {0}, *even = config->mixture;
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        int mode = EVAL_MEMORY_OWN + kind;
        even[kind] = (struct memory_mixture){0};
        if (!result->mode[mode]) continue;
        TRY(fit_half(&even[kind], result, samples, mode, false, threads));
        TRY(fit_half(&odd[kind], result, samples, mode, true, threads));
    }
    if (result->mode[EVAL_MEMORY_RANDOM]) {
        TRY(fit_half(&even[MEMORY_CORPUS], result, samples, EVAL_MEMORY_RANDOM, false, threads));
        TRY(fit_half(&odd[MEMORY_CORPUS], result, samples, EVAL_MEMORY_RANDOM, true, threads));
    }
    for (int64_t i = 0; i < samples->n; i++)
        result->documents[samples->document[i]].nll[EVAL_NONE] -= (double)samples->log_lm[i];
    result->mode[EVAL_NONE] = true;
    return STATUS_OK;
}

static enum status fit_memory(struct eval_result *result, struct eval_machine *m, const struct eval_options *o,
                              const char *out, const struct progress *progress) {
    struct eval_samples samples = {0};
    struct memory_config config = m->engines.memory;
    enum status s = eval_run(result, &m->engines, o, &samples, progress);
    if (s == STATUS_OK && result->partial) s = fail(STATUS_INTERRUPTED, "stopped by a signal: nothing was fitted");
    if (s == STATUS_OK) s = fit_all(&config, result, &samples, m->model.device->threads);
    if (s == STATUS_OK) s = memory_config_save(&config, out);
    for (int kind = 0; kind < MEMORY_KINDS && s == STATUS_OK; kind++)
        if (config.mixture[kind].given)
            fprintf(stderr, "drt-eval: %s: tau %g\n", memory_kind_names[kind], config.mixture[kind].tau);
    eval_samples_free(&samples);
    return s;
}

int eval_fit_memory(int argc, char **argv, const char **operands) {
    struct eval_options o = {.where = DEVICE_CHOICE_DEFAULT,
                             .format = "auto",
                             .exclude = "doc",
                             .documents = "all",
                             .text_field = "text",
                             .memory = "own,corpus,both",
                             .context = 2048,
                             .skip = 256,
                             .eod_id = -1};
    struct eval_result result = {0};
    const char *out = NULL;
    int code = parse(&o, &out, argc, argv, operands);
    if (code < 0) code = eval_modes("fit-memory", result.mode, &o);
    result.mode[EVAL_NONE] = false; /* its losses come with the samples */
    if (code < 0) code = eval_check("fit-memory", &o, result.mode);
    if (code < 0 && !out) code = eval_usage("fit-memory", "--out FILE is missing");
    if (code < 0 && !eval_has_memory(&result))
        code = eval_usage("fit-memory", "--memory none: there is nothing to fit");
    if (code < 0 && result.mode[EVAL_MEMORY_RANDOM] && !result.mode[EVAL_MEMORY_CORPUS])
        code = eval_usage("fit-memory", "--memory random takes the gate of corpus: name both");
    if (code >= 0) return code;
    const struct engine_config config = {
        .model = o.model, .store = o.store, .where = o.where, .threads = (int)o.threads, .memory = true};
    struct eval_machine machine;
    struct progress_line *line = NULL;
    if (progress_line_start(&line, "drt-eval") != STATUS_OK) return eval_failed();
    enum status status = eval_machine_open(&machine, &config, &o);
    if (status == STATUS_OK) status = fit_memory(&result, &machine, &o, out, progress_line_progress(line));
    progress_line_end(line);
    if (status == STATUS_OK) status = (o.json ? eval_print_json : eval_print_text)(&result, &machine.model, &o);
    eval_machine_close(&machine);
    eval_result_free(&result);
    return status == STATUS_OK ? 0 : eval_failed();
}
