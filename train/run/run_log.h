/* run_log.h -- RUN/log.jsonl: one JSON object a step, for every step (train/plot/plot_log.h reads it).
 * Beside it the same numbers for TensorBoard (event_file.h). */
#pragma once
#include "base/status.h"
#include "train/step/step.h"
#include "train/run/validation.h"
#include <stdint.h>

struct run_log;
struct run_log_line {
    int64_t step, tokens;                /* of the whole run so far */
    struct step_report report;           /* NaN is left out, but null for loss and norms; a norm of -1 is left out */
    double lr;
    const char *pool;
    bool skipped;                        /* adds the reason */
    double tokens_per_second, seconds;   /* of this step alone */
    size_t device_bytes;
    bool validated;
    double valid_loss, valid_bits_per_byte;
    double valid_memory_loss, valid_memory_bits_per_byte, valid_memory_gain_95;    /* NaN: no memory */
    const char *const *valid_files;      /* [n_valid_files] names and figures; written if there are several */
    const struct validation_figure *valid_figures;
    int n_valid_files;
};
/* Removes lines after step `keep` (and an incomplete line of a killed run), then appends. */
enum status run_log_open(struct run_log **out, const char *path, int64_t keep);
enum status run_log_write(struct run_log *log, const struct run_log_line *line);
enum status run_log_sync(struct run_log *log);            /* fsync, with each checkpoint */
void run_log_close(struct run_log *log);                  /* NULL is fine */
