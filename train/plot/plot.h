/* plot.h -- draws training logs: loss, learning rate, gradient norm and more, of one run or of several in one plot.
 *
 * A run is a folder with a log.jsonl (one JSON object a line, see plot_log.h), or such a file itself. The result is one
 * file without outside resources: a page (.html), which shows values under the pointer and can hide runs and switch
 * between tokens and steps, or a picture (.svg). Both follow the system's light or dark colours. The size of the file
 * depends on the number of runs and not on the length of the logs. The file is published whole or not at all. One
 * thread at a time for each file. */
#pragma once
#include "base/status.h"

enum { PLOT_RUNS_MAX = 28 };                    /* seven colours times four line styles */
enum plot_along { PLOT_TOKENS, PLOT_STEPS };    /* the horizontal axis; a page offers both and starts with this one */

struct plot_config {
    const char *title;                          /* NULL: the run's name, or "N runs" */
    enum plot_along along;
};

/* path: ends in .html or .svg. The legend names each run by the last components of its path, as many as tell the runs
 * apart. A run whose log is still empty is drawn without points. STATUS_NOT_FOUND: a run has no log. STATUS_CORRUPT: a
 * damaged line; the message names file and line. STATUS_INVALID: another suffix, or more than PLOT_RUNS_MAX runs. */
enum status plot_write(const char *path, const char *const *runs, int n_runs, const struct plot_config *config);

/* Writes RUN/plot.html from RUN/log.jsonl. drt-train calls this after each checkpoint. */
enum status plot_refresh(const char *run);
