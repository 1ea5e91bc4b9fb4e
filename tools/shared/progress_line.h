/* progress_line.h -- draws a library's progress on stderr, and turns SIGINT, SIGTERM and SIGHUP into a request to stop.
 *
 * On a terminal one line is rewritten; elsewhere a plain line comes every few seconds, so that logs stay readable; with
 * --log-json an object does (tools/shared/log.h).
 * The rate is measured from the first step of a stage, and the time left follows from it: a resumed build does not
 * count what was done before. The first signal asks the work to stop at its next safe point; the second ends the
 * program at once, which is safe too: nothing half-written is ever published. A terminal that goes sends SIGHUP more
 * than once: it asks, and never ends. What the program was started to ignore (nohup) it ignores. */
#pragma once
#include "base/progress.h"
#include <signal.h>

/* The signals that ask to stop, but for those that the program was started to ignore. */
void progress_line_signals(sigset_t *out);
struct progress_line;
/* One at a time in a process. `program` is put in front of notes. */
enum status progress_line_start(struct progress_line **out, const char *program);
const struct progress *progress_line_progress(struct progress_line *line);
void progress_line_end(struct progress_line *line);       /* closes the line in hand; NULL is fine */

/* For a program that a person types to: from here on SIGINT stops what runs, not the program. It prints nothing, ends
 * progress_line_wait_input, and counts as a request to stop until it is taken. */
enum status progress_line_converse(struct progress_line *line);
bool progress_line_take_interrupt(void);                  /* whether SIGINT came since the last call */
/* Waits until `fd` can be read, or until a signal came to any thread since the last wait: *interrupted. */
enum status progress_line_wait_input(int fd, bool *interrupted);

/* "12.3 MB", "4.56 GB"; "1 h 02 min", "3 min 05 s", "12 s": for reports. */
const char *progress_bytes_text(char out[32], uint64_t bytes);
const char *progress_time_text(char out[32], double seconds);
