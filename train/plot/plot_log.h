/* plot_log.h -- a training log, read: one row a line.
 *
 * A line is a JSON object with "step" and "tokens" (whole numbers, counted from the run's begin) and any of the values
 * below; other keys are passed over. null is a value that was not finite, an absent key one that was not measured.
 * A run that went back to a checkpoint writes smaller steps again: what the log had from there on is forgotten.
 * A last line that is cut off (the run is writing it) is passed over; any other damaged line is an error. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum plot_value {
    PLOT_LOSS, PLOT_VALID_LOSS, PLOT_MLM_LOSS, PLOT_CONTRASTIVE_LOSS, PLOT_CONTRASTIVE_ACCURACY, PLOT_LEARNING_RATE,
    PLOT_GRADIENT_NORM, PLOT_TOKENS_PER_SECOND, PLOT_VALID_BITS_PER_BYTE, PLOT_DEVICE_BYTES, PLOT_VALUES,
};
extern const char *const plot_value_keys[PLOT_VALUES];      /* "loss", "valid_loss", ... as the log has them */

struct plot_row {
    int64_t step, tokens;
    uint32_t has;                               /* bit 1 << value: the line had that key */
    double values[PLOT_VALUES];                 /* NaN: null */
};
struct plot_log { struct plot_row *rows; size_t n_rows, capacity; };     /* steps and tokens never fall */

/* `path` is a run's folder or a log file. Free with plot_log_free, also after a failure. */
enum status plot_log_read(struct plot_log *out, const char *path);
/* The same from memory; `name` is for messages. */
enum status plot_log_parse(struct plot_log *out, const char *name, const char *text, size_t bytes);
void plot_log_free(struct plot_log *log);       /* a zeroed log is fine */
