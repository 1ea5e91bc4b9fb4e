/* run_log.h -- RUN/log.jsonl: one JSON object for every step (train/plot/plot_log.h reads it). The same numbers are
 * written beside it for TensorBoard (event_file.h). One thread at a time. */
#pragma once
#include "base/status.h"
#include "train/step/step.h"
#include "train/run/validation.h"
#include <stdint.h>

struct run_log;
struct run_log_line {
    int64_t step, tokens;                /* of the whole run so far */
    /* NaN is left out, except for loss and norms, which become null; a norm of -1 is left out */
    struct step_report report;
    double lr;
    const char *pool;
    bool skipped;                        /* whether the update was skipped; adds the reason */
    double tokens_per_second, seconds;   /* of this step alone */
    size_t device_bytes;
    bool validated;
    double valid_loss, valid_bits_per_byte;
    /* NaN: the run has no token memory */
    double valid_memory_loss, valid_memory_bits_per_byte, valid_memory_gain_95;
    /* names and figures of the files, written if there are several: [n_valid_files] */
    const char *const *valid_files;
    const struct validation_figure *valid_figures;
    int n_valid_files;
};
/* Removes the lines after step `keep`, and the incomplete line of a killed run; then appends. */
enum status run_log_open(struct run_log **out, const char *path, int64_t keep);
enum status run_log_write(struct run_log *log, const struct run_log_line *line);
enum status run_log_sync(struct run_log *log);            /* fsync; called with each checkpoint */
void run_log_close(struct run_log *log);                  /* NULL is fine */
