/* run_log.h -- RUN/log.jsonl: one JSON object a step, each step once (train/plot/plot_log.h reads it). */
#pragma once
#include "base/status.h"
#include "train/step/step.h"
#include "train/run/validation.h"
#include <stdint.h>

struct run_log;
struct run_log_line {
    int64_t step, tokens;                /* of the whole run so far */
    struct step_report report;           /* NaN: not measured, left out; but loss and gradient_norm are then null */
    double lr;
    const char *pool;
    bool skipped;                        /* says why, for a number that is none is null */
    double tokens_per_second, seconds;   /* of this step alone */
    size_t device_bytes;
    bool validated;
    double valid_loss, valid_bits_per_byte;
    const char *const *valid_files;      /* [n_valid_files] their names, and bits a byte of each; left out where there is one alone */
    const struct validation_figure *valid_figures;
    int n_valid_files;
};
/* Cuts off lines behind step `keep` (and a line that a killed run left half-written), then appends. */
enum status run_log_open(struct run_log **out, const char *path, int64_t keep);
enum status run_log_write(struct run_log *log, const struct run_log_line *line);
enum status run_log_sync(struct run_log *log);            /* to the disk: with a checkpoint */
void run_log_close(struct run_log *log);                  /* NULL is fine */
