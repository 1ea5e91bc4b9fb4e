/* progress_line.c -- see progress_line.h.
 *
 * A handler counts the signals that request a stop. Blocking them and waiting in a separate thread would not work:
 * OpenBLAS starts threads before main, and a signal to one of these would end the process. The counts are mutable
 * globals, because a handler has no other data. */
#include "tools/shared/progress_line.h"
#include "base/clock.h"
#include "base/memory.h"
#include "tools/shared/log.h"
#include "tools/shared/streams.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct progress_line {
    struct progress progress;
    const char *program;
    bool terminal;
    char stage[64], unit[32], detail[128];
    int64_t first, last, total;
    double stage_start, drawn;
    bool open_line;             /* terminal: the cursor is at the end of an unfinished line */
    bool dirty;                 /* the last step was not drawn */
    struct sigaction before[3]; /* of stop_signals */
};

static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

void progress_line_signals(sigset_t *out) {
    sigemptyset(out);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++) {
        struct sigaction now;
        sigaction(stop_signals[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(out, stop_signals[i]);
    }
}

const char *progress_bytes_text(char out[32], uint64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t u = 0;
    while (value >= 1000 && u + 1 < ARRAY_LEN(units)) {
        value /= 1000;
        u++;
    }
    snprintf(out, 32, u == 0 ? "%.0f %s" : "%.3g %s", value, units[u]);
    return out;
}

const char *progress_time_text(char out[32], double seconds) {
    if (!(seconds >= 0) || seconds > 1e8)
        snprintf(out, 32, "unknown");
    else if (seconds < 9.95)
        snprintf(out, 32, "%.1f s", seconds);
    else if (seconds < 60)
        snprintf(out, 32, "%.0f s", seconds);
    else if (seconds < 3600)
        snprintf(out, 32, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(out, 32, "%d h %02d min", (int)(seconds / 3600), (int)seconds % 3600 / 60);
    return out;
}

/* Writes "1.2 MB" if the unit is bytes, otherwise "3.2 chunks" (a rate) or "12345 chunks". */
static void progress_line_quantity(char out[64], const char *unit, double value) {
    char bytes[32];
    if (strcmp(unit, "bytes") == 0)
        snprintf(out, 64, "%s", progress_bytes_text(bytes, value > 0 ? (uint64_t)value : 0));
    else
        snprintf(out, 64, value > 0 && value < 10 && value != (double)(int64_t)value ? "%.1f %s" : "%.0f %s", value,
                 unit);
}

static void draw_json(const struct progress_line *line, double seconds) {
    struct json_writer *w = log_begin(LOG_INFO, "progress");
    log_string(w, "stage", line->stage);
    log_string(w, "detail", line->detail[0] ? line->detail : NULL);
    log_int(w, "done", line->last);
    json_write_key(w, "total");
    if (line->total >= 0)
        json_write_int(w, line->total);
    else
        json_write_null(w);
    log_string(w, "unit", line->unit);
    log_double(w, "seconds", seconds);
    log_double(w, "per_second", seconds > 0.2 ? (double)(line->last - line->first) / seconds : 0);
    log_end();
}

static void progress_line_draw(struct progress_line *line, double now) {
    char done[64], total[64], rate[64], left[32], text[400];
    double seconds = now - line->stage_start;
    line->drawn = now;
    line->dirty = false;
    if (*log_json()) {
        draw_json(line, seconds);
        return;
    }
    double per_second = seconds > 0.2 ? (double)(line->last - line->first) / seconds : 0;
    if (line->total > 0 && strcmp(line->unit, "bytes") != 0)
        snprintf(done, sizeof done, "%lld", (long long)line->last); /* "3 of 60 steps" */
    else
        progress_line_quantity(done, line->unit, (double)line->last);
    int n = snprintf(text, sizeof text, "%s%s%s: %s", line->stage, line->detail[0] ? ", " : "", line->detail, done);
    if (line->total > 0) {
        progress_line_quantity(total, line->unit, (double)line->total);
        n += snprintf(text + n, sizeof text - (size_t)n, " of %s (%.1f %%)", total,
                      100.0 * (double)line->last / (double)line->total);
    }
    if (per_second > 0 && strcmp(line->unit, "seconds") != 0) {
        progress_line_quantity(rate, line->unit, per_second);
        n += snprintf(text + n, sizeof text - (size_t)n, ", %s/s", rate);
        if (line->total > line->last)
            snprintf(text + n, sizeof text - (size_t)n, ", %s left",
                     progress_time_text(left, (double)(line->total - line->last) / per_second));
    }
    if (line->terminal) fputs("\r\033[K", stderr);
    streams_printf(stderr, line->terminal ? "%s" : "%s\n", text);
    fflush(stderr);
    line->open_line = line->terminal;
}

static void close_line(struct progress_line *line) {
    /* A log gets the last count of every stage. On a terminal a very short stage is not printed. */
    if (line->dirty && (*log_json() || line->drawn > line->stage_start)) progress_line_draw(line, clock_seconds());
    if (line->open_line) fputc('\n', stderr);
    line->open_line = false;
}

static void start_stage(struct progress_line *line, const struct progress_event *e, double now) {
    close_line(line);
    snprintf(line->stage, sizeof line->stage, "%s", e->stage);
    snprintf(line->unit, sizeof line->unit, "%s", e->unit ? e->unit : "");
    line->first = e->done;
    line->stage_start = now;
    line->drawn = now;
}

static void progress_line_report(void *context, const struct progress_event *e) {
    struct progress_line *line = context;
    double now = clock_seconds();
    if (e->note) {
        if (line->open_line) fputs("\r\033[K", stderr);
        line->open_line = false;
        log_line(LOG_INFO, "note", line->program, "%s", e->note);
        return;
    }
    if (!e->stage) return;
    if (strncmp(line->stage, e->stage, sizeof line->stage - 1) != 0) start_stage(line, e, now);
    if (e->detail)
        snprintf(line->detail, sizeof line->detail, "%s", e->detail);
    else
        line->detail[0] = 0; /* not by snprintf, as a build reports each document */
    line->last = e->done;
    line->total = e->total;
    line->dirty = true;
    if (now - line->drawn >= (line->terminal ? 0.2 : 5.0)) progress_line_draw(line, now);
}

/* signals that end the program; signals that stop the running work */
static volatile sig_atomic_t signals_seen, interrupts_seen;
static atomic_bool stop_logged;
static volatile sig_atomic_t wake = -1; /* an eventfd, by which a signal ends progress_line_wait_input */

/* A signal may arrive in any thread, also between a test of the counts and a read. So the reader waits for a
 * descriptor, too. */
static void wake_reader(void) {
    const uint64_t one = 1;
    int error = errno;
    if (wake >= 0) {
        ssize_t ignored = write(wake, &one, sizeof one);
        (void)ignored;
    }
    errno = error;
}

static void count_signal(int signal) {
    if (signals_seen++ > 0) {
        if (signal == SIGHUP) return;
        _exit(128 + signal);
    }
    static const char text[] = "\nstopping at the next safe point; a second signal exits at once\n";
    int error = errno;
    /* with --log-json stop_requested writes the line, because a handler cannot format the time */
    if (!*log_json()) {
        ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
        (void)ignored;
    }
    errno = error;
    wake_reader();
}

static bool stop_requested(void *context) {
    (void)context;
    if (signals_seen > 0 && *log_json() && !atomic_exchange(&stop_logged, true))
        log_line(LOG_WARNING, "stopping", NULL, "stopping at the next safe point; a second signal exits at once");
    return signals_seen > 0 || interrupts_seen > 0;
}

static void count_interrupt(int signal) {
    (void)signal;
    interrupts_seen = 1;
    wake_reader();
}

enum status progress_line_converse(struct progress_line *line) {
    (void)line;
    struct sigaction action = {.sa_handler = count_interrupt, .sa_flags = SA_RESTART}, now;
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0) return fail_errno("eventfd");
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, NULL, &now);
    if (now.sa_handler != SIG_IGN) sigaction(SIGINT, &action, NULL);
    return STATUS_OK;
}

enum status progress_line_wait_input(int fd, bool *interrupted) {
    struct pollfd files[2] = {{.fd = fd, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
    uint64_t signals;
    while (poll(files, 2, -1) < 0)
        if (errno != EINTR) return fail_errno("poll");
    *interrupted = files[1].revents != 0 && read(wake, &signals, sizeof signals) > 0;
    return STATUS_OK;
}

bool progress_line_take_interrupt(void) {
    uint64_t signals; /* read first, so that a later signal ends the next wait */
    if (wake >= 0) {
        ssize_t ignored = read(wake, &signals, sizeof signals);
        (void)ignored;
    }
    bool came = interrupts_seen;
    interrupts_seen = 0;
    return came;
}

enum status progress_line_start(struct progress_line **out, const char *program) {
    struct progress_line *line;
    TRY(memory_allocate_zero(&line, 1));
    line->program = program;
    line->terminal = isatty(STDERR_FILENO) == 1 && !*log_json();
    line->progress =
        (struct progress){.report = progress_line_report, .stop_requested = stop_requested, .context = line};
    /* SA_RESTART: interrupted reads continue, because the work checks for a stop request at safe points only. */
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    sigset_t asking;
    progress_line_signals(&asking);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++)
        sigaction(stop_signals[i], sigismember(&asking, stop_signals[i]) ? &action : NULL, &line->before[i]);
    *out = line;
    return STATUS_OK;
}

const struct progress *progress_line_progress(struct progress_line *line) {
    return line ? &line->progress : NULL;
}

void progress_line_end(struct progress_line *line) {
    if (!line) return;
    close_line(line);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++)
        sigaction(stop_signals[i], &line->before[i], NULL);
    if (wake >= 0) close(wake);
    wake = -1;
    memory_free(line);
}
