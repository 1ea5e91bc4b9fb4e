/* task_run.h -- continues prompts by a model, each as a separate text. For drt-eval tasks and drt-eval niah. */
#pragma once
#include "session/generation.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/search_options.h"

struct task_run_options {
    const char *model, *store;
    const char *searcher;                /* landmark, lexical or hybrid */
    bool corpus, own_past, exact, exact_fallback, json;
    struct device_choice where;
    int64_t nprobe, continuation, overlap, query_ids, threads, seed;
};
#define TASK_RUN_DEFAULT {.where = DEVICE_CHOICE_DEFAULT, .searcher = "landmark"}
/* Rows of an option table, as in option_rows.h. o: struct task_run_options. */
#define OPTIONS_OF_TASK_RUN(o)                                                                                         \
    OPTION_MODEL((o).model), OPTION_STORE_OF_MODEL((o).store),                                                         \
    {"corpus-retrieval", ARG_FLAG, &(o).corpus, NULL, "retrieve from the store", 0, 0},                                \
    {"self-retrieval", ARG_FLAG, &(o).own_past, NULL, "retrieve from the text's own past", 0, 0},                      \
    OPTIONS_OF_SEARCH(o), OPTIONS_OF_MACHINE((o).where, (o).threads),                                                  \
        OPTION_JSON((o).json, "print one JSON object instead of a table"), OPTION_LOG_JSON

/* Returns the error of wrong options; NULL: they are valid. */
const char *task_run_usage(const struct task_run_options *o);

struct task_run {
    struct engine engine;
    struct generation *generation;
    /* Padding ids precede each prompt, so that it ends with the first id of a chunk. A query has then read
     * everything except that id, as in a training with `align` (docs/training-keys.md). Set it after task_run_open;
     * not for a Base LM. */
    bool align;
};
/* Opens a model for greedy answers of at most max_tokens ids (-1: no limit). An answer ends before a stop string. */
enum status task_run_open(struct task_run *out, const struct task_run_options *o, int64_t max_tokens,
                          const struct arg_strings *stops, const struct progress *progress);
void task_run_close(struct task_run *r);                  /* a zeroed struct is fine */

/* Continues the prompt as a separate text. *answer grows as in memory_grow; *bytes: its length, without a NUL. */
enum status task_run_answer(struct task_run *r, const char *prompt, size_t prompt_bytes, char **answer,
                            size_t *capacity, size_t *bytes, const struct progress *progress);
