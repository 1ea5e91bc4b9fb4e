/* drt_tokenizer.c -- drt-tokenizer: makes tokenizers and token files. The subcommands are in drt_tokenizer_<name>.c. */
#include "tools/tokenizer/drt_tokenizer.h"
#include "tools/shared/commands.h"
#include "tools/shared/progress_line.h"
#include <string.h>

static const struct command commands[] = {
    {"train", "make a byte-level BPE tokenizer.json from a corpus", drt_tokenizer_train},
    {"encode", "turn a corpus into a token file, for drt-train", drt_tokenizer_encode},
    {"samples", "turn samples of tasks (prompts and answers) into a token file, for fine-tuning",
     drt_tokenizer_samples},
    {"decode", "print the text of a token file", drt_tokenizer_decode},
    {"count", "count the documents and tokens of a token file", drt_tokenizer_count},
};
static const struct command_program program = {.name = "drt-tokenizer",
                                               .about = "Makes tokenizers, and token files with them.\n",
                                               .commands = commands,
                                               .n_commands = ARRAY_LEN(commands)};

int drt_tokenizer_exit(enum status status) {
    if (status == STATUS_OK) return 0;
    fflush(stdout);
    fprintf(stderr, "drt-tokenizer: %s\n", status_message());
    return 1;
}

int drt_tokenizer_run(drt_tokenizer_work *work, const void *options, const char *const *inputs, int n) {
    struct progress_line *line = NULL;
    enum status s = progress_line_start(&line, "drt-tokenizer");
    if (s == STATUS_OK) s = work(options, inputs, n, progress_line_progress(line));
    progress_line_end(line);
    return drt_tokenizer_exit(s);
}

int drt_tokenizer_usage(const char *command, const char *what) {
    fprintf(stderr, "drt-tokenizer %s: %s; see drt-tokenizer %s --help\n", command, what, command);
    return 2;
}

enum status drt_tokenizer_end(int32_t *out, const struct tokenizer *t, const char *path, int64_t wanted) {
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "<|eos|>", "</s>", "<eos>"};
    if (wanted >= tokenizer_vocab_size(t))
        return fail(STATUS_INVALID, "--eod-id %lld: %s has ids up to %d", (long long)wanted, path,
                    tokenizer_vocab_size(t) - 1);
    *out = (int32_t)wanted;
    for (size_t i = 0; i < ARRAY_LEN(names) && *out < 0; i++)
        *out = tokenizer_id(t, names[i]);
    if (*out >= 0) return STATUS_OK;
    return fail(STATUS_NOT_FOUND, "%s: has no end-of-document token of a known name: give its id with --eod-id", path);
}

enum status drt_tokenizer_corpus(struct reader **out, const struct corpus_options *o, const char *written,
                                 const char *const *inputs, int n, const struct progress *progress) {
    struct reader_config config = {.inputs = inputs,
                                   .n_inputs = n,
                                   .text_field = o->text_field,
                                   .eod_id = -1,
                                   .skip_bad_lines = o->skip_bad_lines,
                                   .no_follow = o->no_follow,
                                   .progress = progress};
    TRY(reader_format_parse(&config.format, o->format));
    TRY(reader_apart(written, &config));
    return reader_open(out, &config);
}

enum status drt_tokenizer_width(int *out, const char *path) {
    size_t n = strlen(path);
    *out = n > 4 && strcmp(path + n - 4, ".u16") == 0 ? 2 : n > 4 && strcmp(path + n - 4, ".u32") == 0 ? 4 : 0;
    return *out ? STATUS_OK : fail(STATUS_INVALID, "%s: a token file's name ends in .u16 or .u32", path);
}

enum status drt_tokenizer_output(struct token_output *t, const char *path, const char *out, int64_t end) {
    TRY(drt_tokenizer_width(&t->width, out));
    TRY(tokenizer_open(&t->tokenizer, path));
    TRY(drt_tokenizer_end(&t->end, t->tokenizer, path, end));
    if (t->width == 2 && tokenizer_vocab_size(t->tokenizer) > 1 << 16)
        return fail(STATUS_INVALID, "%s: has %d ids, too many for 16 bits: write a .u32 file", path,
                    tokenizer_vocab_size(t->tokenizer));
    return STATUS_OK;
}

int main(int argc, char **argv) {
    return commands_main(&program, argc, argv);
}
