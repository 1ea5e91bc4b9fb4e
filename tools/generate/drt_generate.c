/* drt_generate.c -- drt-generate: text that goes on from a prompt, with retrieval from a store, from its own past, both
 * or neither. */
#include "tools/generate/drt_generate.h"
#include "base/memory.h"
#include "tools/shared/commands.h"
#include "tools/shared/progress_line.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

int generate_usage(const char *what) {
    fprintf(stderr, "drt-generate: %s; see drt-generate --help\n", what);
    return 2;
}

static int failed(void) {
    fprintf(stderr, "drt-generate: %s\n", status_message());
    return 1;
}

static int parse(struct generate_options *o, int argc, char **argv, const char **operands) {
    const struct arg_option options[] = {
        {NULL, ARG_FLAG, NULL, NULL, "Model and store", 0, 0},
        {"model", ARG_PATH, &o->model, "DIR", "model folder (default: the bundled model)", 0, 0},
        {"store", ARG_PATH, &o->store, "DIR", "store made by drt-index build with the same model", 0, 0},
        {"corpus-retrieval", ARG_FLAG, &o->corpus, NULL, "retrieve from the store", 0, 0},
        {"self-retrieval", ARG_FLAG, &o->self, NULL,
         "retrieve from the text's own past; with --corpus-retrieval: the best of both", 0, 0},
        {"exact", ARG_FLAG, &o->exact, NULL, "scan the whole store instead of asking its index", 0, 0},
        {"exact-fallback", ARG_FLAG, &o->exact_fallback, NULL,
         "scan the whole store for a query whose hits its index does not find", 0, 0},
        {"nprobe", ARG_INT, &o->nprobe, "N",
         "lists to visit, of the store's index or on a GPU of gpu-ivf; 0: the default, or on a GPU exact search of up "
         "to 2 GiB",
         0, 1 << 20},
        {NULL, ARG_FLAG, NULL, NULL, "Token memory (docs/token-memory.md)", 0, 0},
        {"memory", ARG_CHOICE, &o->memory, "none|own|corpus|both",
         "mix in the tokens of the text's own past, of chunks of the store, or of both", 0, 0},
        {"memory-past", ARG_INT, &o->memory_past, "N", "tokens of the own past that are kept", 1, 1 << 20},
        MEMORY_SEARCH_OPTIONS(o->memory_options),
        MEMORY_MIX_OPTIONS(o->memory_options),
        {NULL, ARG_FLAG, NULL, NULL, "Prompt (none: a new document is begun)", 0, 0},
        {"prompt", ARG_STRING, &o->prompt, "TEXT", "the text to go on from; special tokens are recognised", 0, 0},
        {"prompt-file", ARG_PATH, &o->prompt_file, "FILE", "the same, from a file of any length", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Generation", 0, 0},
        {"max-tokens", ARG_INT, &o->max_tokens, "N", "tokens to generate at most", 0, INFINITY},
        {"temperature", ARG_DOUBLE, &o->temperature, "T", "below 1 safer, above 1 wilder; 0: greedy", 0, 1000},
        {"top-k", ARG_INT, &o->top_k, "K", "draw among the K likeliest tokens; 0: off", 0, 1 << 22},
        {"top-p", ARG_DOUBLE, &o->top_p, "P", "draw among the likeliest tokens that make up P in all; 1: off", 1e-6, 1},
        {"min-p", ARG_DOUBLE, &o->min_p, "P", "leave out tokens below this part of the likeliest's share; 0: off", 0,
         1},
        {"repeat-penalty", ARG_DOUBLE, &o->repeat_penalty, "X",
         "above 1: tokens of the text's last part become less likely; 1: off", 0.01, 100},
        {"repeat-last-n", ARG_INT, &o->repeat_last, "N", "tokens that this part has", 0, 1 << 22},
        {"greedy", ARG_FLAG, &o->greedy, NULL, "always take the likeliest token", 0, 0},
        {"seed", ARG_INT, &o->seed, "N", "seed of the random draws; same seed, same machine: same text", 0, INFINITY},
        {"stop", ARG_STRINGS, &o->stops, "STR", "end before this string; may be given several times", 0, 0},
        {"ignore-eos", ARG_FLAG, &o->ignore_eos, NULL, "go on behind the end of a document", 0, 0},
        {"echo", ARG_FLAG, &o->echo, NULL, "print the prompt in front of the text", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Looking inside", 0, 0},
        {"show-retrieved", ARG_INT, &o->show_retrieved, "N",
         "print to standard error the N best chunks that each chunk read: document, weight, score, offset, text", 0,
         64},
        {"trace", ARG_PATH, &o->trace, "FILE", "write the same as x.jsonl (for programs) or x.html (a page)", 0, 0},
        {"stats", ARG_FLAG, &o->stats, NULL, "print where the time went (stderr)", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Machine", 0, 0},
        {"device", ARG_CHOICE, &o->where.device, "auto|cpu|cuda", "where to compute; auto: a GPU where there is one", 0,
         0},
        {"dtype", ARG_CHOICE, &o->where.dtype, "auto|f32|bf16",
         "a GPU computes in bf16 (auto) or float32; a CPU in float32, reading weights as bf16 where that is the same "
         "(auto)",
         0, 0},
        {"threads", ARG_INT, &o->threads, "N",
         "threads to use; 0: one for each processor of its affinity mask and CPU quota", 0, THREADS_MAX},
    };
    const struct arg_program program = {
        .name = "drt-generate",
        .synopsis = "[--model DIR] [--store DIR --corpus-retrieval] [--prompt TEXT | --prompt-file FILE | -] [options]",
        .about =
            "Generates text. At the end of each chunk the model asks the store (or its own past) for chunks that help, "
            "and reads them while it writes the next one. The text goes to standard output as it comes; - reads the "
            "prompt from standard input.",
        .examples =
            "  drt-generate --prompt 'The history of the lighthouse'\n"
            "  drt-generate --store docs.store --corpus-retrieval --prompt-file question.txt --show-retrieved 3\n"
            "  drt-generate --store docs.store --corpus-retrieval --self-retrieval --trace t.html - < book.txt\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .max_operands = 1};
    int n_operands = 0;
    int code = args_parse(&program, argc, argv, operands, &n_operands);
    if (code >= 0) return code;
    if (n_operands && strcmp(operands[0], "-") != 0)
        return generate_usage("the prompt is given with --prompt TEXT or --prompt-file FILE");
    o->prompt_stdin = n_operands == 1;
    return -1;
}

/* All that a descriptor has to give; `name` is for the message. */
static enum status read_all(char **text, size_t *bytes, int fd, const char *name) {
    size_t capacity = 0;
    for (;;) {
        TRY(memory_grow(text, &capacity, *bytes + (1 << 16)));
        ssize_t n = read(fd, *text + *bytes, capacity - *bytes);
        if (n < 0) return fail_errno("%s", name);
        if (n == 0) return STATUS_OK;
        *bytes += (size_t)n;
    }
}

/* Not mapped: a shell gives pipes as files, too. */
static enum status read_file(char **text, size_t *bytes, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("%s", path);
    enum status status = read_all(text, bytes, fd, path);
    close(fd);
    return status;
}

static enum status run(const struct generate_options *o, const struct progress *progress, enum generate_end *end) {
    struct engine engine;
    char *text = NULL;
    size_t bytes = 0;
    const struct engine_config config = {.model = o->model,
                                         .store = o->store,
                                         .where = o->where,
                                         .threads = (int)o->threads,
                                         .retrieval = o->corpus || o->self,
                                         .memory = strcmp(o->memory, "none") != 0,
                                         .decoding = true};
    enum status status = engine_open(&engine, &config);
    if (status == STATUS_OK && o->prompt_file) status = read_file(&text, &bytes, o->prompt_file);
    if (status == STATUS_OK && o->prompt_stdin) status = read_all(&text, &bytes, STDIN_FILENO, "standard input");
    const char *prompt = text ? text : o->prompt ? o->prompt : "";
    if (!text) bytes = strlen(prompt);
    if (status == STATUS_OK) status = generate_run(end, &engine, o, prompt, bytes, progress);
    engine_close(&engine);
    memory_free(text);
    return status;
}

static int generate(int argc, char **argv, const char **operands) {
    struct generate_options o = {.where = DEVICE_CHOICE_DEFAULT,
                                 .memory = "none",
                                 .memory_past = 2048,
                                 .max_tokens = 256,
                                 .temperature = 0.8,
                                 .top_p = 0.95,
                                 .repeat_penalty = 1,
                                 .repeat_last = 64};
    int code = parse(&o, argc, argv, operands);
    if (code < 0) code = generate_check(&o);
    if (code >= 0) return code;
    struct progress_line *line = NULL;
    enum generate_end end = GENERATE_LENGTH;
    if (progress_line_start(&line, "drt-generate") != STATUS_OK) return failed();
    enum status status = run(&o, progress_line_progress(line), &end);
    progress_line_end(line);
    if (status != STATUS_OK) return failed();
    if (end != GENERATE_INTERRUPTED) return 0;
    fprintf(stderr, "drt-generate: stopped by a signal\n");
    return 1;
}

int main(int argc, char **argv) {
    return commands_run("drt-generate", generate, argc, argv);
}
