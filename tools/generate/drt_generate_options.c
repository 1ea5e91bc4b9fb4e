/* drt_generate_options.c -- the option table of drt-generate, and options that exclude each other. */
#include "tools/generate/drt_generate.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/search_options.h"

#include <math.h>
#include <string.h>

static int generate_options_usage(const char *what) {
    fprintf(stderr, "drt-generate: %s; see drt-generate --help\n", what);
    return 2;
}

static const struct arg_letter letters[] = {
    {'p', "prompt"}, {'f', "prompt-file"}, {'n', "max-tokens"}, {'i', "interactive"}, {0, NULL}};

static const char about[] =
    "Generates text. At the end of each chunk a DRT model retrieves chunks from the store or from the text's own past, "
    "and reads them while it generates the next chunk. Any model, also a Base LM, reads them by a token memory "
    "(--memory). The text is written to standard output as it is generated; - reads the prompt from standard "
    "input.\n\n"
    "With --interactive it reads lines from a terminal or a pipe and continues the text after each. Ctrl-C stops an "
    "answer, Ctrl-D ends; /help lists the commands.";

static int generate_options_read(struct generate_options *o, int argc, char **argv, const char **operands) {
    const struct arg_option options[] = {
        {NULL, ARG_FLAG, NULL, NULL, "Model and store", 0, 0},
        OPTION_MODEL(o->model),
        OPTION_STORE_OF_MODEL(o->store),
        OPTION_ENCODER(o->encoder),
        {"corpus-retrieval", ARG_FLAG, &o->corpus, NULL, "retrieve from the store", 0, 0},
        {"self-retrieval", ARG_FLAG, &o->own_past, NULL,
         "retrieve from the text's own past; with --corpus-retrieval: the best of both", 0, 0},
        OPTIONS_OF_SEARCH(*o),
        OPTIONS_OF_WORKERS(o->workers),
        {NULL, ARG_FLAG, NULL, NULL, "Token memory (docs/token-memory.md)", 0, 0},
        {"memory", ARG_CHOICE, &o->memory, "none|own|corpus|both",
         "mix in the tokens of the text's own past, of chunks of the store, or of both", 0, 0},
        MEMORY_SEARCH_OPTIONS(o->memory_options),
        MEMORY_MIX_OPTIONS(o->memory_options),
        {NULL, ARG_FLAG, NULL, NULL, "Prompt (without one, a new document begins)", 0, 0},
        {"prompt", ARG_STRING, &o->prompt, "TEXT", "the text to continue; special tokens are recognised", 0, 0},
        {"prompt-file", ARG_PATH, &o->prompt_file, "FILE", "the same, from a file of any length", 0, 0},
        {"interactive", ARG_FLAG, &o->interactive, NULL, "then read lines, and continue the text after each", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Generation", 0, 0},
        {"max-tokens", ARG_INT, &o->max_tokens, "N", "generate at most N tokens", 0, INFINITY},
        {"temperature", ARG_DOUBLE, &o->temperature, "T",
         "logits are divided by T: below 1 less random, above 1 more; 0: greedy", 0, 1000},
        {"top-k", ARG_INT, &o->top_k, "K", "sample from the K most probable tokens; 0: off", 0, 1 << 22},
        {"top-p", ARG_DOUBLE, &o->top_p, "P", "sample from the fewest tokens whose probabilities sum to P; 1: off",
         1e-6, 1},
        {"min-p", ARG_DOUBLE, &o->min_p, "P", "drop tokens less probable than P times the most probable; 0: off", 0, 1},
        {"repeat-penalty", ARG_DOUBLE, &o->repeat_penalty, "X",
         "above 1: the last tokens of the text become less probable; 1: off", 0.01, 100},
        {"repeat-last-n", ARG_INT, &o->repeat_last, "N", "number of tokens that --repeat-penalty applies to", 0,
         1 << 22},
        {"greedy", ARG_FLAG, &o->greedy, NULL, "always take the most probable token", 0, 0},
        {"seed", ARG_INT, &o->seed, "N", "seed of sampling; the same seed on the same machine gives the same text", 0,
         INFINITY},
        {"stop", ARG_STRINGS, &o->stops, "STR", "end before this string; may be given several times", 0, 0},
        {"ignore-eos", ARG_FLAG, &o->ignore_eos, NULL, "continue after an end-of-document token", 0, 0},
        {"echo", ARG_FLAG, &o->echo, NULL, "print the prompt before the text", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Inspection", 0, 0},
        {"show-retrieved", ARG_INT, &o->show_retrieved, "N",
         "print to standard error the N best neighbours of each chunk: document, weight, score, offset, text", 0, 64},
        {"trace", ARG_PATH, &o->trace, "FILE", "write what each token could read to FILE: .jsonl, or .html, a page", 0,
         0},
        {"stats", ARG_FLAG, &o->stats, NULL, "print to standard error how long each part took", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Machine", 0, 0},
        OPTION_DEVICE(o->where.device, "where to compute"),
        OPTION_DEVICES(o->devices, DEVICES_SEARCH),
        {"dtype", ARG_CHOICE, &o->where.dtype, "auto|f32|bf16|i8",
         "a GPU computes in bf16 (auto) or float32; a CPU computes in float32 and, with auto, reads weights as bf16 if "
         "they are the same, and rounds passages of a token memory to bf16 if it has instructions for it; i8: as "
         "auto, with the decoder's weights rounded to 8 bits: less time, slightly other probabilities. A GPU has to be "
         "a Hopper or newer, and computes prompts and several texts with these weights in bf16",
         0, 0},
        OPTION_THREADS(o->threads),
    };
    const struct arg_program program = {
        .name = "drt-generate",
        .synopsis = "[--model DIR] [--store DIR] [--corpus-retrieval | --memory both] "
                    "[--prompt TEXT | --prompt-file FILE | -] [options]",
        .about = about,
        .examples =
            "  drt-generate -p 'The history of the lighthouse' -n 100\n"
            "  drt-generate --store docs.store --corpus-retrieval --prompt-file question.txt --show-retrieved 3\n"
            "  drt-generate --model data/models/base-28m --store docs.store --memory both -p 'The kernel'\n"
            "  drt-generate --interactive --self-retrieval -n 80\n"
            "  drt-generate --store docs.store --corpus-retrieval --self-retrieval --trace t.html - < book.txt\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .max_operands = 1,
        .letters = letters};
    int n_operands = 0;
    int code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code >= 0) return code;
    if (n_operands && strcmp(operands[0], "-") != 0)
        return generate_options_usage("the prompt is given with --prompt TEXT or --prompt-file FILE");
    o->prompt_stdin = n_operands == 1;
    return -1;
}

static int generate_options_check(const struct generate_options *o) {
    if ((o->prompt != NULL) + (o->prompt_file != NULL) + o->prompt_stdin > 1)
        return generate_options_usage("only one of --prompt, --prompt-file and - can be given");
    if (o->interactive && o->prompt_stdin)
        return generate_options_usage("--interactive reads standard input: leave out -");
    if (o->interactive && o->stats) return generate_options_usage("--stats measures one text: leave out --interactive");
    if (o->corpus && !o->store) return generate_options_usage("--corpus-retrieval needs --store DIR");
    if (o->encoder && !o->corpus) return generate_options_usage("--encoder needs --corpus-retrieval");
    bool memory = strcmp(o->memory, "none") != 0, found = memory && strcmp(o->memory, "own") != 0;
    if (memory && (o->corpus || o->own_past))
        return generate_options_usage(
            "--memory is read without GCA: leave out --corpus-retrieval and --self-retrieval");
    if (found && !o->store) return generate_options_usage("--memory corpus and both need --store DIR");
    if (!memory && memory_options_given(&o->memory_options))
        return generate_options_usage("--memory-... options need --memory own, corpus or both");
    if (o->store && !o->corpus && !found)
        return generate_options_usage("--store needs --corpus-retrieval, or --memory corpus or both (without one of "
                                      "them the store is not used)");
    if (SEARCH_OPTIONS_GIVEN(*o) && !o->corpus)
        return generate_options_usage(
            "--searcher, --exact, --exact-fallback, --nprobe, --continuation, --overlap and --query-tokens need "
            "--store DIR --corpus-retrieval");
    if (SEARCH_OPTIONS_WRONG(*o)) return generate_options_usage(SEARCH_OPTIONS_WRONG(*o));
    if (o->devices && (!o->corpus || o->workers.addresses))
        return generate_options_usage(
            "--devices share the landmarks of a store: give --store DIR --corpus-retrieval, and no workers");
    if (o->workers.addresses && !o->store) return generate_options_usage("--workers search a store: give --store DIR");
    if (o->workers.addresses && corpus_search_kind(o->searcher) == SEARCHER_LEXICAL)
        return generate_options_usage("--searcher lexical searches in this process: leave out the workers");
    if (worker_options_wrong(&o->workers)) return generate_options_usage(worker_options_wrong(&o->workers));
    for (int i = 0; i < o->stops.count; i++)
        if (!o->stops.items[i][0]) return generate_options_usage("--stop '': the string is empty");
    return -1;
}

int generate_options_parse(struct generate_options *o, int argc, char **argv, const char **operands) {
    int code = generate_options_read(o, argc, argv, operands);
    if (code < 0) code = generate_options_check(o);
    if (code < 0 && devices_choose(&o->where, o->devices) != STATUS_OK) return generate_options_usage(status_message());
    return code;
}
