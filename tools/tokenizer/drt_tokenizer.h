/* drt_tokenizer.h -- the subcommands of drt-tokenizer, and functions for several of them. */
#pragma once
#include "base/status.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "tools/shared/args.h"
#include <stdio.h>

/* Rows of a program's table of options, as in option_rows.h. */
#define OPTION_TOKENIZER(path) {"tokenizer", ARG_PATH, &(path), "FILE", "tokenizer.json (required)", 0, 0}
#define OPTION_TOKEN_FILE(path) {"out", ARG_STRING, &(path), "FILE.u16|FILE.u32", "the token file (required)", 0, 0}

/* Each gets argv with its own name first, and an array of argc operands to fill. It returns the exit code. */
int drt_tokenizer_train(int argc, char **argv, const char **operands);
int drt_tokenizer_encode(int argc, char **argv, const char **operands);
int drt_tokenizer_samples(int argc, char **argv, const char **operands);
int drt_tokenizer_decode(int argc, char **argv, const char **operands);
int drt_tokenizer_count(int argc, char **argv, const char **operands);

/* Prints "drt-tokenizer: <this thread's last message>" and returns exit code 1 (0 for STATUS_OK). */
int drt_tokenizer_exit(enum status status);
/* Prints a usage error and returns exit code 2. */
int drt_tokenizer_usage(const char *command, const char *what);

/* Runs a command with progress on standard error, and prints its failure. Returns the exit code. */
typedef enum status drt_tokenizer_work(const void *options, const char *const *inputs, int n,
                                       const struct progress *progress);
int drt_tokenizer_run(drt_tokenizer_work *work, const void *options, const char *const *inputs, int n);

/* How the text of a corpus is read: options of encode and train. */
struct corpus_options {
    const char *format, *text_field;
    bool skip_bad_lines, no_follow;
};
/* written: the output, which must not be a file of the corpus. */
enum status drt_tokenizer_corpus(struct reader **out, const struct corpus_options *o, const char *written,
                                 const char *const *inputs, int n, const struct progress *progress);

/* Gets the id that ends a document: `wanted` if it is >= 0, otherwise the token with such a spelling
 * ("<|endoftext|>", "</s>", ...). */
enum status drt_tokenizer_end(int32_t *out, const struct tokenizer *t, const char *path, int64_t wanted);
/* Gets the width of ids, 2 or 4, by the suffix .u16 or .u32. */
enum status drt_tokenizer_width(int *out, const char *path);

/* Opens the tokenizer `path`, and determines how its ids are written to the file `out`. */
struct token_output {
    struct tokenizer *tokenizer;                          /* the caller frees it, also after a failure */
    int32_t end;                                          /* as drt_tokenizer_end gives it */
    int width;                                            /* bytes of an id, as drt_tokenizer_width gives it */
};
enum status drt_tokenizer_output(struct token_output *t, const char *path, const char *out, int64_t end);
