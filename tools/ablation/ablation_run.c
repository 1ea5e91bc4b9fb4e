/* ablation_run.c -- see ablation_run.h. Only this file starts processes and waits for them. */
#include "tools/ablation/ablation_run.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/system/fault.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SLOTS_MAX = ABLATION_FILES_MAX };
struct ablation_slot {
    pid_t process;
    size_t part;
    double start;
};
struct ablation_work {
    struct ablation_plan *plan;
    const struct ablation_run_options *options;
    struct ablation_slot slots[SLOTS_MAX];
    int n_slots, running;
    sigset_t signals, before;
    double begin, rate;
    bool stopping, failed;
    size_t made; /* number of parts that this call has finished */
};

/* ---- one process ----------------------------------------------------------------------------------------- */

/* The data that the child needs. It is made before the fork, because after it only functions that are safe in a signal
 * handler may be called. */
struct child {
    char program[FILE_PATH_MAX], log[FILE_PATH_MAX], out[FILE_PATH_MAX];
    char **argv, **env, visible[64];
};

static enum status child_argv(struct child *c, const struct ablation_part *part, bool resume) {
    size_t n = 0;
    TRY(memory_allocate(&c->argv, part->command.count + 1));
    for (size_t i = 0; i < part->command.count; i++) {
        char *word = part->command.items[i];
        if (resume && strcmp(word, "--config") == 0) {
            static char option[] = "--resume";
            c->argv[n++] = option;
            i++;
        } else
            c->argv[n++] = word;
    }
    c->argv[n] = NULL;
    return STATUS_OK;
}

/* Makes the environment, with one visible GPU if the config names GPUs. */
static enum status child_environment(struct child *c, const char *gpu) {
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    TRY(memory_allocate(&c->env, n + 2));
    for (size_t i = 0; i < n; i++)
        if (!gpu || strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) != 0) c->env[kept++] = environ[i];
    snprintf(c->visible, sizeof c->visible, "CUDA_VISIBLE_DEVICES=%.40s", gpu ? gpu : "");
    if (gpu) c->env[kept++] = c->visible;
    c->env[kept] = NULL;
    return STATUS_OK;
}

static void child_free(struct child *c) {
    memory_free(c->argv);
    memory_free(c->env);
}

/* Runs in the child. The result of an evaluation is written to a temporary file, which is renamed when it is complete.
 * All other output is written to the log. */
static void child_execute(const struct child *c, const char *folder, const sigset_t *mask, pid_t parent) {
    setpgid(0, 0); /* so that a terminal's Ctrl-C reaches it only through the parent */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);
    int null = open("/dev/null", O_RDONLY);
    int log = open(c->log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    int out = c->out[0] ? open(c->out, O_WRONLY | O_CREAT | O_TRUNC, 0666) : log;
    if (log < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0 || chdir(folder) != 0)
        _exit(126);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve(c->program, c->argv, c->env);
    _exit(127);
}

static enum status child_describe(struct child *c, const struct ablation_work *w, const struct ablation_part *part,
                                  int slot) {
    const struct ablation_run_options *o = w->options;
    const struct object_list *gpus = &w->plan->config->gpus;
    char config[FILE_PATH_MAX];
    bool resume = false;
    TRY(file_join(c->program, o->programs, part->command.items[0]));
    TRY(ablation_path(c->log, o->folder, "logs/%s.log", part->name));
    if (part->kind >= ABLATION_SCORE) TRY(ablation_path(c->out, o->folder, "scores/%s.json.tmp", part->name));
    if (part->kind == ABLATION_TRAIN) {
        TRY(ablation_path(config, o->folder, "models/%s/config.json", w->plan->models[part->of].name));
        resume = file_exists(config);
    }
    TRY(child_argv(c, part, resume));
    return child_environment(c, gpus->count > 0 ? gpus->items[slot] : NULL);
}

static enum status part_start(struct ablation_work *w, int slot, size_t at) {
    struct ablation_part *part = &w->plan->parts[at];
    struct child c = {0};
    const pid_t parent = getpid();
    TRY(ablation_part_prepare(w->plan, part, w->options->folder));
    enum status s = child_describe(&c, w, part, slot);
    if (s == STATUS_OK) {
        pid_t process = fork();
        if (process == 0) child_execute(&c, w->options->folder, &w->before, parent);
        if (process < 0) s = fail_errno("%s cannot be started", part->command.items[0]);
        w->slots[slot] = (struct ablation_slot){process, at, clock_seconds()};
        w->running += s == STATUS_OK;
    }
    child_free(&c);
    return s;
}

/* ---- the end of a process ------------------------------------------------------------------------------------ */

/* Gets the last line of the log that is not empty. */
static void log_last_line(char out[512], const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    out[0] = 0;
    if (streams_read_file(&text, &bytes, path) == STATUS_OK) {
        while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
            bytes--;
        size_t begin = bytes;
        while (begin > 0 && text[begin - 1] != '\n' && text[begin - 1] != '\r' && bytes - begin < 511)
            begin--;
        memcpy(out, text + begin, bytes - begin);
        out[bytes - begin] = 0;
    }
    memory_free(text);
}

static enum status part_failed(const struct ablation_work *w, const struct ablation_part *part, int how) {
    char path[FILE_PATH_MAX], line[512];
    TRY(ablation_path(path, w->options->folder, "logs/%s.log", part->name));
    log_last_line(line, path);
    if (WIFSIGNALED(how))
        return fail(STATUS_IO, "%s: %s was killed by signal %d%s (its log: %s); the same command continues", part->name,
                    part->command.items[0], WTERMSIG(how), WTERMSIG(how) == SIGKILL ? ", out of memory perhaps" : "",
                    path);
    if (WEXITSTATUS(how) == 127)
        return fail(STATUS_NOT_FOUND, "%s: %s/%s cannot be executed: build it, beside drt-eval", part->name,
                    w->options->programs, part->command.items[0]);
    return fail(STATUS_INVALID, "%s: %s (its log: %s)", part->name, line[0] ? line : "failed", path);
}

/* Renames the result, then records that the part is finished. */
static enum status part_publish(struct ablation_work *w, struct ablation_part *part) {
    const char *folder = w->options->folder;
    char path[FILE_PATH_MAX], written[FILE_PATH_MAX];
    TRY(fault_point("ablation:publish"));
    if (part->kind >= ABLATION_SCORE) {
        TRY(ablation_path(written, folder, "scores/%s.json.tmp", part->name));
        TRY(ablation_path(path, folder, "scores/%s.json", part->name));
        int fd = open(written, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return fail_errno("%s", written);
        bool synced = fsync(fd) == 0;
        close(fd);
        if (!synced || rename(written, path) != 0) return fail_errno("%s", path);
        TRY(fault_point("ablation:renamed"));
        TRY(ablation_path(path, folder, "scores"));
        TRY(file_sync_directory(path));
    }
    return ablation_record_write(part, folder);
}

static enum status part_end(struct ablation_work *w, struct ablation_slot *slot, int how) {
    struct ablation_part *part = &w->plan->parts[slot->part];
    char time[32];
    part->seconds = clock_seconds() - slot->start;
    slot->process = 0;
    w->running--;
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) return w->stopping ? STATUS_OK : part_failed(w, part, how);
    TRY(part_publish(w, part));
    w->made++;
    fprintf(stderr, "drt-eval: %s: done in %s\n", part->name, progress_time_text(time, part->seconds));
    return STATUS_OK;
}

/* ---- the next part ---------------------------------------------------------------------------------- */

static bool part_ready(const struct ablation_work *w, size_t at) {
    const struct ablation_part *part = &w->plan->parts[at];
    bool ready = !part->done;
    for (int i = 0; i < part->n_after; i++)
        ready = ready && w->plan->parts[part->after[i]].done;
    for (int i = 0; i < w->n_slots; i++)
        ready = ready && !(w->slots[i].process > 0 && w->slots[i].part == at);
    return ready;
}

/* An evaluation that is stopped begins again. So it is not started if the time does not suffice, unless this call has
 * made no part yet. */
static bool part_fits(const struct ablation_work *w, const struct ablation_part *part) {
    const double limit = w->options->max_seconds, left = limit - (clock_seconds() - w->begin);
    if (limit <= 0 || part->kind < ABLATION_SCORE || (w->made == 0 && w->running == 0)) return true;
    return ablation_part_seconds(w->plan, part, w->rate) <= left;
}

static void say_start(const struct ablation_work *w, size_t at) {
    size_t done = 0;
    char one[32], all[32];
    double by_kind[ABLATION_KINDS], left = ablation_seconds_left(w->plan, w->rate, by_kind);
    for (size_t i = 0; i < w->plan->n_parts; i++)
        done += w->plan->parts[i].done;
    fprintf(stderr, "drt-eval: %s: about %s (%zu of %zu parts are done; about %s left)\n", w->plan->parts[at].name,
            progress_time_text(one, ablation_part_seconds(w->plan, &w->plan->parts[at], w->rate)), done,
            w->plan->n_parts, progress_time_text(all, left));
}

/* Makes the parts that have no command. */
static enum status fill_slots(struct ablation_work *w) {
    for (size_t at = 0; at < w->plan->n_parts && w->running < w->n_slots; at++) {
        struct ablation_part *part = &w->plan->parts[at];
        if (!part_ready(w, at) || !part_fits(w, part)) continue;
        if (part->kind == ABLATION_VIEW) {
            TRY(ablation_part_prepare(w->plan, part, w->options->folder));
            TRY(ablation_record_write(part, w->options->folder));
            continue;
        }
        int slot = 0;
        while (w->slots[slot].process > 0)
            slot++;
        say_start(w, at);
        TRY(part_start(w, slot, at));
    }
    return STATUS_OK;
}

/* ---- all parts ----------------------------------------------------------------------------------------- */

static void stop_parts(struct ablation_work *w, int signal) {
    w->stopping = true;
    for (int i = 0; i < w->n_slots; i++)
        if (w->slots[i].process > 0) kill(w->slots[i].process, signal);
}

/* Waits for a child or a signal, at most until the time limit. */
static void wait_event(struct ablation_work *w) {
    const double limit = w->options->max_seconds;
    double left = limit > 0 && !w->stopping ? limit - (clock_seconds() - w->begin) : 3600;
    struct timespec t = {left > 0 ? (time_t)left : 0, left > 0 ? (long)((left - (double)(time_t)left) * 1e9) : 0};
    int signal = sigtimedwait(&w->signals, NULL, &t);
    if (signal > 0 && signal != SIGCHLD) {
        if (w->stopping && signal == SIGHUP) return;
        fprintf(stderr, "drt-eval: %s\n", w->stopping ? "killing the parts in work" : "stopping the parts in work");
        stop_parts(w, w->stopping ? SIGKILL : SIGTERM);
    } else if (signal < 0 && limit > 0 && !w->stopping && clock_seconds() - w->begin >= limit) {
        fprintf(stderr, "drt-eval: the time is over: stopping the parts in work\n");
        stop_parts(w, SIGTERM);
    }
}

static enum status collect_ended(struct ablation_work *w) {
    enum status s = STATUS_OK;
    int how;
    for (pid_t ended; (ended = waitpid(-1, &how, WNOHANG)) > 0;)
        for (int i = 0; i < w->n_slots; i++)
            if (w->slots[i].process == ended && s == STATUS_OK) {
                s = part_end(w, &w->slots[i], how);
            } else if (w->slots[i].process == ended) {
                w->slots[i].process = 0;
                w->running--;
            }
    return s;
}

static enum status parts_loop(struct ablation_work *w) {
    enum status s = STATUS_OK;
    for (;;) {
        if (s == STATUS_OK && !w->stopping) s = fill_slots(w);
        if (s != STATUS_OK && !w->failed && w->running > 0) {
            char message[1024];
            snprintf(message, sizeof message, "%s", status_message());
            w->failed = true;
            stop_parts(w, SIGTERM);
            while (w->running > 0) {
                wait_event(w);
                enum status ignored = collect_ended(w);
                (void)ignored;
            }
            return fail(s, "%s", message);
        }
        if (w->running == 0) return s;
        wait_event(w);
        if (s == STATUS_OK) s = collect_ended(w);
    }
}

/* Writes the commands of all parts, which a user can run in the folder of the run. */
static enum status write_commands(const struct ablation_plan *plan, const char *folder) {
    char path[FILE_PATH_MAX];
    TRY(ablation_path(path, folder, "commands.txt"));
    struct file_writer *w;
    TRY(file_create(&w, path));
    enum status s = STATUS_OK;
    for (size_t i = 0; i < plan->n_parts && s == STATUS_OK; i++) {
        const struct ablation_part *p = &plan->parts[i];
        for (size_t j = 0; j < p->command.count && s == STATUS_OK; j++) {
            const char *word = p->command.items[j];
            const bool plain =
                word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=")] == 0;
            s = file_write(w, j == 0 ? "" : " ", j > 0);
            if (s == STATUS_OK && !plain) s = file_write(w, "'", 1);
            for (; *word && s == STATUS_OK; word++)
                s = *word == '\'' ? file_write(w, "'\\''", 4) : file_write(w, word, 1);
            if (s == STATUS_OK && !plain) s = file_write(w, "'", 1);
        }
        if (s == STATUS_OK && p->command.count > 0) s = file_write(w, "\n", 1);
    }
    if (s == STATUS_OK) return file_publish(w);
    file_discard(w);
    return s;
}

static void no_action(int signal) {
    (void)signal;
}

enum status ablation_run_parts(bool *finished, struct ablation_plan *plan, const struct ablation_run_options *o) {
    struct ablation_work w = {.plan = plan, .options = o, .begin = clock_seconds(), .rate = o->rate};
    w.n_slots = ablation_slots(plan->config);
    TRY(write_commands(plan, o->folder));
    progress_line_signals(&w.signals);
    sigaddset(&w.signals, SIGCHLD);
    /* a handler is needed, because a wait does not return a signal whose default action is to ignore it */
    signal(SIGCHLD, no_action);
    sigprocmask(SIG_BLOCK, &w.signals, &w.before);
    enum status s = parts_loop(&w);
    sigprocmask(SIG_SETMASK, &w.before, NULL);
    *finished = true;
    for (size_t i = 0; i < plan->n_parts; i++)
        *finished = *finished && plan->parts[i].done;
    return s;
}
