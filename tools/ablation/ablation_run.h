/* ablation_run.h -- makes the parts of a plan, in a folder, and continues after a stop.
 *
 *   RUN/parts/NAME.json    a part that is done: what it depends on, and its seconds. It is written last: a part without
 *                          it is made again or continued
 *   RUN/configs RUN/models RUN/stores RUN/tokens RUN/scores RUN/logs
 *
 * Each part runs as a process of its own, a sibling of this program, in the folder RUN: memory that one part leaks,
 * on the device too, or a crash of it cannot harm the others, and each figure of the table is that of a command which
 * a user can repeat by hand (RUN/commands.txt). Trainings and stores continue where they were stopped; an evaluation
 * begins again. When this process dies, the kernel kills the parts in work. */
#pragma once
#include "base/status.h"
#include "tools/ablation/ablation_plan.h"
#include <stdbool.h>

struct ablation_run_options {
    const char *folder, *programs;       /* the run; the folder of drt-train and the others */
    double max_seconds;                  /* stop cleanly after so many; 0: no limit */
    double rate;                         /* as ablation_measure has it */
};
/* Opens and locks the run (made where it is missing) and marks the parts that are done. STATUS_BUSY: another process
 * works on it; STATUS_MISMATCH: a model or store was made with other settings (an evaluation is repeated). *lock: to
 * close at the end. */
enum status ablation_run_open(int *lock, struct ablation_plan *plan, const char *folder);
/* Makes all parts that are missing; *finished: there are none left. Stopped by a signal or by time is STATUS_OK.
 * Prints a line for each part on stderr. SIGINT, SIGTERM and SIGHUP stop the parts in work, a second one kills them. */
enum status ablation_run_parts(bool *finished, struct ablation_plan *plan, const struct ablation_run_options *o);

/* ---- ablation_record.c ---- */
/* The part is done: durable when this returns. */
enum status ablation_record_write(struct ablation_part *part, const char *folder);
/* Writes configs and views: what a part needs before its command runs. */
enum status ablation_part_prepare(const struct ablation_plan *plan, const struct ablation_part *part,
                                  const char *folder);
/* "a/b" below the run. */
enum status ablation_path(char out[FILE_PATH_MAX], const char *folder, const char *format, ...) PRINTF_LIKE(3, 4);

/* ---- ablation_time.c ---- */
/* Seconds of a part, from parts of its kind that are done, else from `rate`: products a second of this machine. */
double ablation_part_seconds(const struct ablation_plan *plan, const struct ablation_part *part, double rate);
double ablation_seconds_left(const struct ablation_plan *plan, double rate, double by_kind[ABLATION_KINDS]);
/* Measures the rate on the device of the config; STATUS_UNSUPPORTED and others: there is no such device. */
enum status ablation_measure(double *rate, const struct ablation_config *config);
/* Parts that may run at once: one for each of `gpus`. */
int ablation_slots(const struct ablation_config *config);
