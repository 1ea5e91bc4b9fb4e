/* plot_log.h -- reads a training log: one row for each line.
 *
 * A line is a JSON object with "step" and "tokens" (whole numbers, counted from the start of the run) and any of the
 * values below. Other keys are ignored. null stands for a value that was not finite; an absent key was not measured. A
 * resumed run writes smaller steps again: they replace the rows from that step on. An incomplete last line is ignored,
 * because the run may be writing it; any other damaged line is an error. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum plot_value {
    PLOT_LOSS, PLOT_VALID_LOSS, PLOT_MLM_LOSS, PLOT_CONTRASTIVE_LOSS, PLOT_CONTRASTIVE_ACCURACY, PLOT_LEARNING_RATE,
    PLOT_GRADIENT_NORM, PLOT_TOKENS_PER_SECOND, PLOT_VALID_BITS_PER_BYTE, PLOT_DEVICE_BYTES, PLOT_VALUES,
};
extern const char *const plot_value_keys[PLOT_VALUES];      /* "loss", "valid_loss", ...: the keys of the log */

struct plot_row {
    int64_t step, tokens;
    uint32_t has;                               /* bit 1 << value: the line had that key */
    double values[PLOT_VALUES];                 /* NaN: null */
};
struct plot_log { struct plot_row *rows; size_t n_rows, capacity; };     /* steps and tokens never decrease */

/* `path` is a run's folder or a log file. Free with plot_log_free, also after a failure. STATUS_NOT_FOUND: no log;
 * STATUS_CORRUPT: a damaged line; the message names file and line. */
enum status plot_log_read(struct plot_log *out, const char *path);
/* The same from a buffer of `bytes` bytes; messages use `name` as the file's name. */
enum status plot_log_parse(struct plot_log *out, const char *name, const char *text, size_t bytes);
void plot_log_free(struct plot_log *log);       /* a zeroed log is fine */
