/* task_file.h -- samples of a task: an object a line, of a plain, gzip, zstd or xz file or of standard input ("-").
 *
 * Three layouts, known by their members: RULER's {"input": text, "outputs": [text, ...], "answer_prefix": text or
 * absent}, XSum's {"document": text, "summary": text} and CNN/DailyMail's {"article": text, "highlights": text}. Other
 * members are passed over. One thread at a time. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TASK_LINE_MAX = 1 << 30 };        /* bytes */
#define TASK_SUMMARY "|Summary:"         /* what stands between a document and its summary */

/* prompt: what the answer continues: RULER's input and prefix; of a document, the document and TASK_SUMMARY, the words
 * of the papers' code (docs/tasks.md). Borrowed until the next call. */
struct task_sample {
    const char *prompt; size_t prompt_bytes;
    const char *const *outputs; int n_outputs;            /* strings, n_outputs >= 1: what the answer should contain */
    int64_t line;                                         /* from 1 */
    bool summary;                                         /* the output is a summary of the prompt's document */
};
struct task_file;
enum status task_file_open(struct task_file **out, const char *path);
void task_file_close(struct task_file *f);                /* NULL is fine */
/* *more false: there are no more. STATUS_INVALID names the file, the line and what is missing in it. Blank lines are
 * passed over. */
enum status task_file_next(struct task_file *f, struct task_sample *out, bool *more);

/* Share of the outputs that the answer contains, letters A-Z as a-z: RULER's score of a sample. */
double task_contained(const struct task_sample *s, const char *answer, size_t bytes);
