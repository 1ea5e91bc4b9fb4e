/* drt_eval_fit_memory.c -- drt-eval fit-memory: temperatures and gates for a model and a store. */
#include "base/memory.h"
#include "base/system/processors.h"
#include "kernels/search/topk.h"
#include "session/memory_folder.h"
#include "tools/eval/drt_eval.h"
#include "tools/eval/drt_eval_run.h"
#include "tools/eval/fit/drt_eval_fit.h"
#include "tools/eval/fit/drt_eval_processes.h"
#include "tools/eval/fit/drt_eval_samples.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include <math.h>
#include <string.h>

static int eval_fit_memory_parse(struct eval_options *o, const char **out, int argc, char **argv,
                                 const char **operands) {
    const struct arg_option options[] = {
        OPTION_MODEL(o->model),
        {"data", ARG_STRINGS, &o->data, "FILE",
         "held-out texts (required unless --samples is given; may be given several times)", 0, 0},
        {"out", ARG_PATH, out, "FILE",
         "configuration to write, such as memory.json of a model's folder (required unless --apply is given)", 0, 0},
        {"memory", ARG_STRING, &o->memory, "LIST",
         "memories to fit: any of own,corpus,both. random: also fit the gates of corpus and both to close on random "
         "chunks, and report random chunks with the gate of corpus",
         0, 0},
        {"oracle", ARG_CHOICE, &o->oracle, "none|next-chunk",
         "also report chunks that are found by the words of the chunk to come, with their own gate", 0, 0},
        {"knn-lm", ARG_FLAG, &o->knn_lm, NULL,
         "also report exact kNN-LM over every token of the store, with its own gate: texts are read twice, the store "
         "is encoded once",
         0, 0},
        {"knn-entries", ARG_INT, &o->knn_entries, "N", "entries that kNN-LM mixes for each token", 1, TOPK_SAMPLE_MAX},
        {"keep", ARG_PATH, &o->keep, "FILE", "also write the samples of the texts, for --samples", 0, 0},
        {"samples", ARG_STRINGS, &o->samples, "FILE",
         "fit to samples that --keep wrote, instead of reading texts (may be given several times)", 0, 0},
        {"other", ARG_PATH, &o->other, "FILE",
         "samples that --keep wrote of the same texts with a store of other text: also fit the gates of corpus and "
         "both to close on its chunks, and report them (modes memory-other, memory-other-both)",
         0, 0},
        {"apply", ARG_PATH, &o->apply, "FILE", "report this configuration on the texts instead of fitting one", 0, 0},
        {"store", ARG_PATH, &o->store, "DIR", "store with the model's tokenizer and chunk size", 0, 0},
        {"gca", ARG_CHOICE, &o->gca, "none|self|corpus|both",
         "what the model retrieves by GCA while the token memory is fitted and reported; mode none is then the model "
         "with that retrieval",
         0, 0},
        {"store-parts", ARG_STRING, &o->store_parts, "LIST",
         "also read only a first part of the store: any of 1/64,1/32,1/16,1/8,1/4,1/2,1 (each with its own fit)", 0, 0},
        {"plot", ARG_PATH, &o->plot, "FILE", "draw the gain by part of the store, with intervals (.svg)", 0, 0},
        MEMORY_SEARCH_OPTIONS(o->memory_options),
        {"memory-order", ARG_PATH, &o->memory_options.order, "FILE",
         "configuration whose order of candidates (drt-eval fit-order) the searches take (default: chunks are read as "
         "found)",
         0, 0},
        OPTIONS_OF_WORKERS(o->workers),
        {"base", ARG_STRINGS, &o->base, "DIR",
         "a Base LM of the same tokenizer, also reported (mode base; several: base-2 and so on)", 0, 0},
        {"exclude", ARG_STRING, &o->exclude, "doc|none",
         "doc: a text that is also in the store does not find its own document; none: it may", 0, 0},
        OPTIONS_OF_WINDOWS(*o),
        OPTION_FORMAT(o->format, "--data"),
        OPTION_TEXT_FIELD(o->text_field),
        {"seed", ARG_INT, &o->seed, "N", "seed of random chunks", 0, INFINITY},
        OPTIONS_OF_MACHINE(o->where, o->threads),
        OPTION_DEVICES(o->devices, "divide the documents among several GPUs, each by a process with the model"),
        OPTION_JSON_TABLES(o->json),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-eval fit-memory",
        .synopsis = "--data FILE --out FILE [--model DIR] [--store DIR] [options]",
        .about =
            "Fits how a model's distribution is mixed with those of token memories: temperatures and a small gate for "
            "each choice of memories. No weight of the model changes, and the model may be a Base LM.\n\n"
            "In the figures, odd documents of each file (counted from 0) are scored with a fit to the even ones, and "
            "even ones with a fit to the odd ones: no text is scored with a gate that was fitted on it. The "
            "configuration is fitted on all documents.",
        .examples = "  drt-eval fit-memory --data valid.jsonl.xz --store docs.store \\\n"
                    "    --memory own,corpus,both,random --model base-lm --out base-lm/memory.json\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0;
    return args_parse(&program, argc, argv, operands, &n_operands);
}

/* Collects the states of the texts, then finds the nearest entries of the store for each. eval_run reads the texts
 * again with these entries. */
static enum status search_knn(struct eval_machine *m, const struct eval_options *o, const struct progress *progress) {
    const struct memory_knn_config config = {
        .engine = &m->model, .key_layer = m->engines.memory.key_layer, .m = (int)o->knn_entries};
    struct eval_result *queries = NULL;
    TRY(memory_knn_create(&m->engines.knn, &config));
    TRY(memory_allocate_zero(&queries, 1));
    queries->mode[EVAL_MEMORY_KNN] = true;
    enum status s = eval_run(queries, &m->engines, o, NULL, progress);
    if (s == STATUS_OK && queries->partial) s = fail(STATUS_INTERRUPTED, "stopped by a signal: nothing was fitted");
    eval_result_free(queries);
    memory_free(queries);
    return s == STATUS_OK ? memory_knn_search(m->engines.knn, progress) : s;
}

/* Gets the samples from texts or from files, and sets *config to their setting. */
static enum status eval_fit_memory_collect(struct eval_result *result, struct memory_samples *samples,
                                           struct memory_config *config, struct eval_machine *m,
                                           const struct eval_options *o, const struct progress *progress) {
    *config = m->engines.memory;
    if (o->samples.count > 0) return eval_samples_load(result, samples, config, &m->model.model, &o->samples);
    if (result->mode[EVAL_MEMORY_KNN]) TRY(search_knn(m, o, progress));
    TRY(eval_run(result, &m->engines, o, samples, progress));
    if (result->partial) return fail(STATUS_INTERRUPTED, "stopped by a signal: nothing was fitted");
    if (o->processes) TRY(eval_processes_collect(o->processes, result, samples));
    if (result->n_documents == 0) return eval_nothing_scored(o);
    return o->keep ? eval_samples_keep(result, samples, config, o->keep) : STATUS_OK;
}

static enum status fit_memory(struct eval_result *result, struct eval_machine *m, const struct eval_options *o,
                              const char *out, const struct progress *progress) {
    struct memory_samples samples = {0};
    struct memory_config *config; /* too large for a small stack */
    struct threads *own = NULL, *threads = m->model.device->threads;
    TRY(memory_allocate(&config, 1));
    enum status s = eval_fit_memory_collect(result, &samples, config, m, o, progress);
    if (s == STATUS_OK && o->processes) s = threads_create(&own, (int)o->threads * eval_processes_count(o->processes));
    if (own) threads = own;
    if (s == STATUS_OK && o->other) s = eval_samples_other(&samples, config, o->other);
    if (s == STATUS_OK && o->apply) {
        const int k = config->k, every = config->every;
        const enum memory_searcher searcher = config->searcher;
        const struct order_weights order = config->order;
        s = memory_folder_load(config, &m->model.model, o->apply, false);
        if (s == STATUS_OK) s = memory_searcher_agrees(o->apply, config->searcher, searcher);
        if (s == STATUS_OK && (order.candidates != config->order.candidates ||
                               memcmp(order.weights, config->order.weights, sizeof order.weights) != 0))
            s = fail(STATUS_INVALID,
                     "%s: the texts were not read with its order of candidates: read them with --memory-order %s, "
                     "or without that option if it has no order",
                     o->apply, o->apply);
        if (s == STATUS_OK && (config->k != k || config->every != every))
            log_line(LOG_INFO, "note", "drt-eval", "note: %s: fitted with k %d every %d, applied with k %d every %d",
                     o->apply, config->k, config->every, k, every);
        if (s == STATUS_OK) s = eval_fit_apply(result, config, &samples, o);
    } else if (s == STATUS_OK) {
        s = eval_fit_crossed(config, result, &samples, threads);
        if (s == STATUS_OK) s = memory_config_save(config, out);
    }
    threads_free(own);
    memory_samples_free(&samples);
    memory_free(config);
    return s;
}

/* Scores this process's documents for process 0. */
static _Noreturn void fit_process(struct eval_result *result, const struct engine_config *config,
                                  const struct eval_options *o) {
    struct eval_machine *machine = NULL;
    struct memory_samples samples = {0};
    enum status status = eval_machine_open(&machine, config, o);
    if (status == STATUS_OK) status = eval_run(result, &machine->engines, o, &samples, NULL);
    eval_processes_finish(o->processes, status, result, &samples);
}

/* Starts a process for each GPU of --devices, which divide the threads. */
static enum status processes_start(struct eval_options *o) {
    if (!o->devices) return STATUS_OK;
    const int n = o->where.devices < 0 ? eval_processes_gpus() : o->where.devices;
    o->where.devices = 0; /* each process has one */
    if (n < 2) return STATUS_OK;
    const int64_t threads = (o->threads > 0 ? o->threads : processors_available()) / n;
    o->threads = threads > 1 ? threads : 1;
    TRY(eval_processes_start(&o->processes, n, true));
    if (eval_processes_number(o->processes) > 0) o->where.report = NULL;
    return STATUS_OK;
}

/* Fails if an output would replace a file that is read. */
static enum status outputs_apart(const struct eval_options *o, const char *out) {
    const char *const written[] = {out, o->keep, o->plot};
    for (size_t i = 0; i < ARRAY_LEN(written); i++)
        TRY(eval_fit_apart(o, written[i]));
    return STATUS_OK;
}

static int eval_fit_memory_check(struct eval_options *o, const struct eval_result *result, const char *out) {
    const bool *mode = result->mode;
    if (o->samples.count > 0 && (o->data.count > 0 || o->store || o->base.count > 0 || o->workers.addresses ||
                                 memory_options_given(&o->memory_options)))
        return eval_usage("fit-memory", "--samples has texts, store and setting: leave out --data, --store, --base, "
                                        "--workers and --memory-...");
    if (mode[EVAL_MEMORY_RANDOM] && !mode[EVAL_MEMORY_CORPUS])
        return eval_usage("fit-memory", "--memory random takes the gate of corpus: name both");
    if (o->other && !mode[EVAL_MEMORY_CORPUS] && !mode[EVAL_MEMORY_BOTH])
        return eval_usage("fit-memory",
                          "the chunks of --other are read with the gates of corpus and both: name one in --memory");
    if (o->devices && (o->samples.count > 0 || mode[EVAL_MEMORY_KNN]))
        return eval_usage("fit-memory", "--devices divides the texts: leave it out with --samples, which reads none, "
                                        "and with --knn-lm, which searches for all of them together");
    if (o->samples.count > 0 && o->keep) return eval_usage("fit-memory", "--keep needs --data");
    int code = o->samples.count > 0 ? -1 : eval_check("fit-memory", o, mode);
    if (code >= 0) return code;
    if (!out && !o->apply) return eval_usage("fit-memory", "--out FILE is missing");
    if (o->apply && mode[EVAL_MEMORY_KNN])
        return eval_usage("fit-memory", "--knn-lm needs a gate of its own, which --apply does not fit: leave one out");
    if (out && o->apply) return eval_usage("fit-memory", "--apply fits nothing: leave out --out");
    if (!eval_has_memory(result)) return eval_usage("fit-memory", "--memory none: there is nothing to fit");
    return -1;
}

int eval_fit_memory(int argc, char **argv, const char **operands) {
    struct eval_options o = {EVAL_OPTIONS_DEFAULT, .memory = "own,corpus,both", .knn_entries = MEMORY_KNN_ENTRIES,
                             .context = 2048};
    struct eval_result result = {0};
    const char *out = NULL;
    int code = eval_fit_memory_parse(&o, &out, argc, argv, operands);
    if (code < 0) code = eval_modes("fit-memory", result.mode, &o);
    result.mode[EVAL_NONE] = false; /* the samples contain its losses */
    result.mode[EVAL_MEMORY_OTHER] = o.other && result.mode[EVAL_MEMORY_CORPUS];
    result.mode[EVAL_MEMORY_OTHER_BOTH] = o.other && result.mode[EVAL_MEMORY_BOTH];
    if (code < 0) code = eval_fit_memory_check(&o, &result, out);
    o.memory_options.unfitted = true;
    if (code >= 0) return code;
    enum status status = outputs_apart(&o, out);
    if (status == STATUS_OK) status = processes_start(&o);
    if (status != STATUS_OK) return eval_failed(status);
    const struct engine_config config = {.model = o.model,
                                         .store = o.store,
                                         .where = o.where,
                                         .threads = (int)o.threads,
                                         .memory = true,
                                         .retrieval = eval_gca_mode(&o) != EVAL_NONE};
    struct eval_machine *machine = NULL;
    struct progress_line *line = NULL;
    if (eval_processes_number(o.processes) > 0) fit_process(&result, &config, &o);
    status = progress_line_start(&line, "drt-eval");
    if (status != STATUS_OK) return eval_failed(status);
    status = eval_machine_open(&machine, &config, &o);
    if (status == STATUS_OK) status = fit_memory(&result, machine, &o, out, progress_line_progress(line));
    progress_line_end(line);
    if (status == STATUS_OK) status = eval_report(&result, &machine->model, &o);
    eval_machine_close(machine);
    eval_result_free(&result);
    eval_processes_end(o.processes);
    return status == STATUS_OK ? 0 : eval_failed(status);
}
