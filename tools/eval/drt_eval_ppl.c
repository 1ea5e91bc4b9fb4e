/* drt_eval_ppl.c -- drt-eval ppl: perplexity with and without retrieval and token memory, on the same positions. */
#include "tools/eval/drt_eval.h"
#include "tools/eval/drt_eval_tokens.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include "tools/shared/search_options.h"
#include <math.h>

static int eval_ppl_parse(struct eval_options *o, int argc, char **argv, const char **operands) {
    const struct arg_option options[] = {
        {NULL, ARG_FLAG, NULL, NULL, "What to measure", 0, 0},
        OPTION_MODEL(o->model),
        {"data", ARG_STRINGS, &o->data, "FILE", "texts to predict (required; may be given several times)", 0, 0},
        {"store", ARG_PATH, &o->store, "DIR", "store to retrieve from (see --exclude)", 0, 0},
        OPTION_ENCODER(o->encoder),
        {"corpus-retrieval", ARG_FLAG, &o->corpus, NULL, "measure retrieval from the store", 0, 0},
        {"self-retrieval", ARG_FLAG, &o->own_past, NULL,
         "measure retrieval from the window's own past; with --corpus-retrieval: also both together", 0, 0},
        {"random-retrieval", ARG_FLAG, &o->random, NULL, "measure random chunks, with their real scores", 0, 0},
        {"modes", ARG_STRING, &o->modes, "LIST",
         "instead of the three options above: any of none,self,corpus,both,random (default: none, and theirs)", 0, 0},
        {"base", ARG_STRINGS, &o->base, "DIR",
         "a Base LM of the same tokenizer, scored at the same positions: gains are against it (mode base; up to four: "
         "base-2 and so on)",
         0, 0},
        {"memory", ARG_STRING, &o->memory, "LIST",
         "also mix token memories: any of own,corpus,both,random (modes memory-own and so on; none: no memory)", 0, 0},
        {"oracle", ARG_CHOICE, &o->oracle, "none|next-chunk",
         "also read chunks that are found by the words of the chunk to come, with the gate of corpus (mode "
         "memory-oracle)",
         0, 0},
        {"gca", ARG_CHOICE, &o->gca, "none|self|corpus|both",
         "what the model retrieves by GCA while a token memory is mixed", 0, 0},
        {"store-parts", ARG_STRING, &o->store_parts, "LIST",
         "also read only a first part of the store: any of 1/64,1/32,1/16,1/8,1/4,1/2,1 (with the gates of the whole "
         "store)",
         0, 0},
        {"plot", ARG_PATH, &o->plot, "FILE", "draw the gain by part of the store, with intervals (.svg)", 0, 0},
        MEMORY_SEARCH_OPTIONS(o->memory_options),
        MEMORY_MIX_OPTIONS(o->memory_options),
        {"exclude", ARG_STRING, &o->exclude, "doc|window=N|none",
         "chunks that a query must not find if its document is also in the store: the whole document, the chunks "
         "at most N away from the query's own, or none",
         0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Which tokens", 0, 0},
        {"documents", ARG_CHOICE, &o->documents, "all|even|odd",
         "which documents of each file, counted from 0 (drt-eval fit-memory fits what it writes on all of them)", 0, 0},
        OPTIONS_OF_WINDOWS(*o),
        OPTION_FORMAT(o->format, "--data"),
        OPTIONS_OF_TEXTS(*o),
        OPTION_EOD_ID(o->eod_id),
        {NULL, ARG_FLAG, NULL, NULL, "Search and machine", 0, 0},
        OPTIONS_OF_SEARCH(*o),
        OPTIONS_OF_WORKERS(o->workers),
        {"seed", ARG_INT, &o->seed, "N", "seed of random retrieval", 0, INFINITY},
        OPTIONS_OF_MACHINE(o->where, o->threads),
        OPTION_DEVICES(o->devices, DEVICES_SEARCH),
        {"no-overlap", ARG_FLAG, &o->no_overlap, NULL, "leave out the overlap of the documents with the store", 0, 0},
        OPTION_JSON_TABLES(o->json),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-eval ppl",
        .synopsis = "--data FILE [--model DIR] [--store DIR --corpus-retrieval] [--self-retrieval] [options]",
        .about = "Perplexity per token and bits per byte, with 95 % intervals over documents. Every mode scores "
                 "exactly the same "
                 "positions with the same text before them, so differences between modes are paired.",
        .examples = "  drt-eval ppl --data valid.jsonl.xz\n"
                    "  drt-eval ppl --data valid.jsonl.xz --store docs.store --modes none,corpus,random\n",
        .options = options,
        .n_options = ARRAY_LEN(options)};
    int n_operands = 0;
    return args_parse(&program, argc, argv, operands, &n_operands);
}

int eval_ppl(int argc, char **argv, const char **operands) {
    struct eval_options o = {EVAL_OPTIONS_DEFAULT, .context = 4032};
    struct eval_result result = {0};
    int code = eval_ppl_parse(&o, argc, argv, operands);
    if (code < 0) code = eval_modes("ppl", result.mode, &o);
    if (code < 0) code = eval_check("ppl", &o, result.mode);
    if (code >= 0) return code;
    bool retrieval = false;
    for (int mode = EVAL_OWN_PAST; mode < EVAL_GCA_MODES; mode++)
        retrieval = retrieval || result.mode[mode];
    const struct engine_config config = {.model = o.model,
                                         .store = o.store,
                                         .encoder = o.encoder,
                                         .where = o.where,
                                         .threads = (int)o.threads,
                                         .retrieval = retrieval || eval_gca_mode(&o) != EVAL_NONE,
                                         .memory = eval_has_memory(&result)};
    struct eval_machine *machine = NULL;
    struct progress_line *line = NULL;
    enum status status = progress_line_start(&line, "drt-eval");
    if (status != STATUS_OK) return eval_failed(status);
    status = eval_machine_open(&machine, &config, &o);
    if (status == STATUS_OK) status = eval_run(&result, &machine->engines, &o, NULL, progress_line_progress(line));
    progress_line_end(line);
    if (status == STATUS_OK) status = eval_report(&result, &machine->model, &o);
    eval_machine_close(machine);
    eval_result_free(&result);
    if (status != STATUS_OK) return eval_failed(status);
    if (result.partial)
        log_line(LOG_WARNING, "note", "drt-eval", "stopped by a signal: the report covers the documents scored so far");
    return result.partial ? 1 : 0;
}
