/* run_internal.h -- a run while it is open (run.c, run_open.c). */
#pragma once
#include "train/run/checkpoint.h"
#include "train/step/corpus_pool.h"
#include "train/run/run.h"
#include "train/run/run_log.h"
#include "train/run/run_memory.h"
#include "train/step/sample.h"
#include "train/step/step.h"
#include "train/run/validation.h"

struct run {
    const struct run_options *options;
    const struct train_config *config;
    struct run_report *report;
    struct checkpoint_kind kind;
    char tokenizer_path[FILE_PATH_MAX];  /* the run's own copy */
    struct tokenizer *tokenizer;
    struct batches *batches, *pool;      /* pool: of pool_data, or NULL */
    struct run_memory *memory;           /* NULL: a token memory reads no passages */
    struct batch *batch;                 /* [accumulate] */
    struct validation *validation;
    struct checkpoint state;             /* state.params is the host copy of the weights; the step borrows its table */
    struct corpus_pool *corpus;
    struct step *step;
    struct run_log *log;                 /* rank 0 only */
    struct device *cpu;                  /* for samples: the run's device, or a CPU device opened beside a GPU */
    int lock;                            /* lock on the folder, held by rank 0; -1: none */
    int rank, world;                     /* 0 of 1 with one process */
    int64_t step_tokens;                 /* real ids of a step, of all processes */
    int64_t saved;                       /* step of the last checkpoint; -1: none */
    int64_t plotted;                     /* step of the last plot that this process drew; -1: none */
    int broken;                          /* skipped steps in a row */
    double reported;                     /* time of the last progress message */
    bool refreshed;                      /* this process has computed the corpus index */
};
enum status run_open(struct run *r);
size_t run_bytes(const struct run *r);                    /* device memory held */
void run_close(struct run *r);                            /* also after a failed run_open */
