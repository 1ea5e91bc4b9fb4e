/* ablation_run.h -- makes the parts of a plan, in a folder, and continues after a stop.
 *
 *   RUN/parts/NAME.json    a finished part: what it depends on, and its seconds. It is written last: a part without it
 *                          is made again or continued
 *   RUN/configs RUN/models RUN/stores RUN/tokens RUN/scores RUN/logs
 *
 * Each part runs as a separate process, a sibling of this program, in the folder RUN. So a leak of memory (also of the
 * device's) or a crash in one part does not affect the others, and a user can repeat the command of each figure by hand
 * (RUN/commands.txt). Trainings and stores continue where they were stopped; an evaluation begins again. When this
 * process dies, the kernel kills the running parts. */
#pragma once
#include "base/status.h"
#include "tools/ablation/ablation_plan.h"
#include <stdbool.h>

struct ablation_run_options {
    const char *folder, *programs;       /* the run; the folder of drt-train and the others */
    double max_seconds;                  /* stop cleanly after this many; 0: no limit */
    double rate;                         /* as ablation_measure returns it */
};
/* Opens and locks the run (makes it if it is missing) and marks the finished parts. STATUS_BUSY: another process
 * uses it; STATUS_MISMATCH: a model or store was made with other settings (an evaluation is repeated). Close
 * *lock at the end. */
enum status ablation_run_open(int *lock, struct ablation_plan *plan, const char *folder);
/* Makes all missing parts; *finished: none is left. A stop by a signal or by time gives STATUS_OK. Prints a line for
 * each part on stderr. SIGINT, SIGTERM and SIGHUP stop the running parts; a second signal kills them. */
enum status ablation_run_parts(bool *finished, struct ablation_plan *plan, const struct ablation_run_options *o);

/* ---- ablation_record.c ---- */
/* Records that the part is done; the record is durable when this returns. */
enum status ablation_record_write(struct ablation_part *part, const char *folder);
/* Writes the configs and views that a part needs before its command runs. */
enum status ablation_part_prepare(const struct ablation_plan *plan, const struct ablation_part *part,
                                  const char *folder);
/* "a/b" below the run. */
enum status ablation_path(char out[FILE_PATH_MAX], const char *folder, const char *format, ...) PRINTF_LIKE(3, 4);

/* ---- ablation_time.c ---- */
/* Seconds of a part, from finished parts of its kind, else from `rate`: products a second of this machine. */
double ablation_part_seconds(const struct ablation_plan *plan, const struct ablation_part *part, double rate);
double ablation_seconds_left(const struct ablation_plan *plan, double rate, double by_kind[ABLATION_KINDS]);
/* Measures the rate on the device of the config; STATUS_UNSUPPORTED and others: this device does not exist. */
enum status ablation_measure(double *rate, const struct ablation_config *config);
/* Parts that may run at once: one for each of `gpus`. */
int ablation_slots(const struct ablation_config *config);
