/* drt_eval_processes.h -- divides the documents of a run among processes of this host, each with a GPU of its own.
 *
 * All processes read all texts, and count the tokens that would be scored of each document. So without communication
 * they agree on limits such as --max-tokens, and on the process that scores a document: the one that has the fewest
 * tokens so far. A document is scored whole by one process, as one process alone would. At the end the other processes
 * send their results through pipes, and process 0 puts the documents into the order of the texts. So the result does
 * not depend on the number of processes, except for what a GPU rounds differently when chunks of another document are
 * encoded already. */
#pragma once
#include "tools/eval/drt_eval.h"

enum { EVAL_PROCESSES_MAX = 64 };
/* Returns how many GPUs this process would see. It uses a child process, because a process that has used CUDA cannot
 * fork. */
int eval_processes_gpus(void);

/* Starts n - 1 copies of this process, of which copy i sees only GPU i (gpus false: sees what this process sees). Call
 * it before any thread is started and before CUDA is used. It returns in all of them, in the copies with
 * processes->number > 0. A copy ends when this process ends. */
enum status eval_processes_start(struct eval_processes **out, int n, bool gpus);
int eval_processes_number(const struct eval_processes *processes);   /* 0 .. n - 1; NULL: 0 */
int eval_processes_count(const struct eval_processes *processes);    /* n; NULL: 1 */
/* Whether this process scores the next document, of which `tokens` would be scored. NULL: it scores all. */
bool eval_processes_take(struct eval_processes *processes, int64_t tokens);
/* In process 0: the failure of another process, if there was one so far. */
enum status eval_processes_check(struct eval_processes *processes);

/* In a copy: sends the result, or the failure, to process 0, and ends the process. */
_Noreturn void eval_processes_finish(struct eval_processes *processes, enum status status, struct eval_result *result,
                                     struct memory_samples *samples);
/* In process 0: waits for the others, and adds their documents to result and samples. */
enum status eval_processes_collect(struct eval_processes *processes, struct eval_result *result,
                                   struct memory_samples *samples);
/* In process 0: ends copies that still run. NULL is fine. */
void eval_processes_end(struct eval_processes *processes);
