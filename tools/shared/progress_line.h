/* progress_line.h -- prints a library's progress on stderr, and turns SIGINT, SIGTERM and SIGHUP into a request to
 * stop.
 *
 * On a terminal one line is rewritten. Otherwise a line is written every few seconds, so that logs stay readable; with
 * --log-json it is an object (tools/shared/log.h). The rate is measured from the first step of a stage, and the
 * remaining time follows from it, so a resumed build does not count earlier work.
 *
 * The first signal requests a stop at the next safe point. The second ends the program at once, which is safe, because
 * nothing incomplete is ever published. A closing terminal sends SIGHUP more than once, so SIGHUP only requests a stop
 * and never ends the program. Signals that the program was started to ignore (nohup) stay ignored. */
#pragma once
#include "base/progress.h"
#include <signal.h>

/* Handles the signals that request a stop, except those that the program was started to ignore. */
void progress_line_signals(sigset_t *out);
struct progress_line;
/* At most one may exist in a process. `program` is printed before notes. */
enum status progress_line_start(struct progress_line **out, const char *program);
const struct progress *progress_line_progress(struct progress_line *line);
void progress_line_end(struct progress_line *line);       /* completes the current line; NULL is fine */

/* For an interactive program: after this call SIGINT stops the running work, not the program. It prints nothing, ends
 * progress_line_wait_input, and is a request to stop until progress_line_take_interrupt. */
enum status progress_line_converse(struct progress_line *line);
bool progress_line_take_interrupt(void);                  /* whether SIGINT was received since the last call */
/* Waits until `fd` can be read. *interrupted: any thread has received a signal since the last wait. */
enum status progress_line_wait_input(int fd, bool *interrupted);

/* Formats for reports: "12.3 MB", "4.56 GB"; "1 h 02 min", "3 min 05 s", "12 s". */
const char *progress_bytes_text(char out[32], uint64_t bytes);
const char *progress_time_text(char out[32], double seconds);
