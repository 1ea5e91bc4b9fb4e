/* plot.h -- training logs as a picture: loss, learning rate, gradient norm, ... of one or several runs over each other.
 *
 * A run is a folder with log.jsonl (one JSON object a line, see plot_log.h), or such a file itself. The result needs
 * nothing beside it: a page (.html: values under the pointer, runs switched on and off, tokens or steps along the
 * bottom) or a picture (.svg). Both follow the system's light or dark colours. Its size depends on the number of runs
 * and not on the length of the logs. It appears under its name whole or not at all. */
#pragma once
#include "base/status.h"

enum { PLOT_RUNS_MAX = 28 };                    /* seven colours times four line styles */
enum plot_along { PLOT_TOKENS, PLOT_STEPS };    /* what runs along the bottom; a page begins with it and offers both */

struct plot_config {
    const char *title;                          /* NULL: the run's name, or "N runs" */
    enum plot_along along;
};

/* Names of runs in the legend are the last parts of their paths, or the whole paths where those are the same. A run
 * without a line yet is fine. STATUS_NOT_FOUND: no log; STATUS_CORRUPT: a damaged line, named by file and line. */
enum status plot_write(const char *path, const char *const *runs, int n_runs, const struct plot_config *config);

/* RUN/plot.html from RUN/log.jsonl: updated after each checkpoint of a run. */
enum status plot_refresh(const char *run);
