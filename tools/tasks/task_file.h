/* task_file.h -- reads the samples of a task, one JSON object per line, from a plain, gzip, zstd or xz file or from
 * standard input ("-").
 *
 * There are three layouts, recognised by their members: RULER's {"input": text, "outputs": [text, ...],
 * "answer_prefix": text or absent}, XSum's {"document": text, "summary": text} and CNN/DailyMail's {"article": text,
 * "highlights": text}. Other members are ignored. For one thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TASK_LINE_MAX = 1 << 30 };        /* bytes */
#define TASK_SUMMARY "|Summary:"         /* the text between a document and its summary */

/* prompt: the text that the answer continues. That is RULER's input and prefix, or a document and TASK_SUMMARY, the
 * words of the papers' code (docs/tasks.md). Borrowed until the next call. */
struct task_sample {
    const char *prompt; size_t prompt_bytes;
    const char *const *outputs; int n_outputs;            /* n_outputs >= 1 strings that the answer should contain */
    int64_t line;                                         /* line number, from 1 */
    bool summary;                                         /* the output is a summary of the prompt's document */
};
struct task_file;
enum status task_file_open(struct task_file **out, const char *path);
void task_file_close(struct task_file *f);                /* NULL is fine */
/* Reads the next sample; *more false: there is none. STATUS_INVALID: the message names the file, the line and the
 * member that is missing or wrong. Blank lines are ignored. */
enum status task_file_next(struct task_file *f, struct task_sample *out, bool *more);

/* Returns the share of the outputs that the answer contains, without regard to the case of A-Z. This is RULER's
 * score of a sample, but for an empty output, which RULER's data never has: it is in no answer. */
double task_contained(const struct task_sample *s, const char *answer, size_t bytes);
