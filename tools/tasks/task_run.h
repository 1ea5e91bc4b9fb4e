/* task_run.h -- what drt-eval tasks and drt-eval niah share: a model that continues prompts, each a text of its own. */
#pragma once
#include "session/generation.h"
#include "tools/shared/args.h"

struct task_run_options {
    const char *model, *store;
    bool corpus, self, exact, exact_fallback, json;
    struct device_choice where;
    int64_t nprobe, threads, seed;
};
/* Rows of an option table. o: struct task_run_options. */
#define TASK_RUN_OPTIONS(o)                                                                                            \
    {"model", ARG_PATH, &(o).model, "DIR", "model folder (default: the bundled model)", 0, 0},                         \
        {"store", ARG_PATH, &(o).store, "DIR", "store made by drt-index build with the same model", 0, 0},             \
        {"corpus-retrieval", ARG_FLAG, &(o).corpus, NULL, "retrieve from the store", 0, 0},                            \
        {"self-retrieval", ARG_FLAG, &(o).self, NULL, "retrieve from the text's own past", 0, 0},                      \
        {"exact", ARG_FLAG, &(o).exact, NULL, "scan all landmarks instead of using the store's index", 0, 0},          \
        {"exact-fallback", ARG_FLAG, &(o).exact_fallback, NULL,                                                        \
         "scan all landmarks for a query for which the index finds too few chunks", 0, 0},                             \
        {"nprobe", ARG_INT, &(o).nprobe, "N", "IVF lists to scan; 0: the index's default", 0, 1 << 20},                \
        {"device", ARG_CHOICE, &(o).where.device, "auto|cpu|cuda", "where to compute; auto: a GPU if there is one", 0, \
         0},                                                                                                           \
        {"dtype", ARG_CHOICE, &(o).where.dtype, "auto|f32|bf16", "a GPU computes in bf16 (auto) or float32", 0, 0},    \
        {"threads", ARG_INT, &(o).threads, "N",                                                                        \
         "threads to use; 0: one for each processor that the affinity mask and CPU quota allow", 0, THREADS_MAX},      \
        {"json", ARG_FLAG, &(o).json, NULL, "print one JSON object instead of a table", 0, 0}

/* What is wrong with the options; NULL: nothing. */
const char *task_run_usage(const struct task_run_options *o);

struct task_run { struct engine engine; struct generation *generation; };
/* Greedy, at most max_tokens ids (-1: no limit) an answer, which ends before a stop string. */
enum status task_run_open(struct task_run *out, const struct task_run_options *o, int64_t max_tokens,
                          const struct arg_strings *stops, const struct progress *progress);
void task_run_close(struct task_run *r);                  /* a zeroed struct is fine */

/* Continues the prompt in a text of its own. *answer grows as memory_grow has it; *bytes: its length, without a NUL. */
enum status task_run_answer(struct task_run *r, const char *prompt, size_t prompt_bytes, char **answer,
                            size_t *capacity, size_t *bytes, const struct progress *progress);
