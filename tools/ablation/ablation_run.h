/* ablation_run.h -- makes the parts of a plan, in a folder, and continues after a stop.
 *
 *   RUN/parts/NAME.json    a finished part: what it depends on, and its seconds. It is written last. A part without it
 *                          is made again or continued
 *   RUN/configs RUN/models RUN/stores RUN/tokens RUN/scores RUN/logs
 *
 * Each part is a separate process, which runs a sibling of this program in the folder RUN. So a leak of memory, also of
 * device memory, or a crash in one part does not affect the others, and a user can repeat the command of each figure
 * (RUN/commands.txt). Trainings and stores continue where they were stopped. An evaluation begins again. If this
 * process is killed, the kernel kills the running parts. */
#pragma once
#include "base/status.h"
#include "tools/ablation/ablation_plan.h"
#include <stdbool.h>

struct ablation_run_options {
    const char *folder, *programs;       /* folder of the run; folder of drt-train and the other programs */
    double max_seconds;                  /* stop cleanly after this time; 0: no limit */
    double rate;                         /* as ablation_measure returns it */
};
/* Opens and locks the run, which is made if it is missing, and marks the finished parts. STATUS_BUSY: another process
 * uses it. STATUS_MISMATCH: a model or store was made with other settings (an evaluation is repeated instead). Close
 * *lock at the end. */
enum status ablation_run_open(int *lock, struct ablation_plan *plan, const char *folder);
/* Makes all missing parts. *finished: all are made. A stop by a signal or by the time limit gives STATUS_OK. Prints a
 * line for each part on stderr. SIGINT, SIGTERM and SIGHUP stop the running parts; a second signal kills them. */
enum status ablation_run_parts(bool *finished, struct ablation_plan *plan, const struct ablation_run_options *o);

/* ---- ablation_record.c ---- */
/* Records that the part is finished. The record is durable when the function returns. */
enum status ablation_record_write(struct ablation_part *part, const char *folder);
/* Writes the configs and views that a part needs before its command runs. */
enum status ablation_part_prepare(const struct ablation_plan *plan, const struct ablation_part *part,
                                  const char *folder);
/* Makes the path of a file below the run's folder. */
enum status ablation_path(char out[FILE_PATH_MAX], const char *folder, const char *format, ...) PRINTF_LIKE(3, 4);

/* ---- ablation_time.c ---- */
/* Estimates the seconds of a part from finished parts of its kind, or from `rate`, which is how many operations of
 * matrix products this machine computes per second. */
double ablation_part_seconds(const struct ablation_plan *plan, const struct ablation_part *part, double rate);
double ablation_seconds_left(const struct ablation_plan *plan, double rate, double by_kind[ABLATION_KINDS]);
/* Measures the rate on the device of the config. Fails if the device does not exist. */
enum status ablation_measure(double *rate, const struct ablation_config *config);
/* Returns the number of parts that may run at the same time: one for each of `gpus`. */
int ablation_slots(const struct ablation_config *config);
