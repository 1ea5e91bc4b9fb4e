/* drt_index_workers.c -- drt-index worker: searches a slice for another process; and how drt-index search starts such
 * processes. A worker's standard input and output are one socket. */
#include "tools/index/drt_index_workers.h"
#include "base/memory.h"
#include "base/system/processors.h"
#include "base/system/threads.h"
#include "tools/index/drt_index.h"
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the worker ---------------------------------------------------------------------------------------------------
 */

struct options {
    const char *store, *slice;
    int64_t threads;
    struct store_slice parsed;
};

static bool worker_parse(struct options *o) {
    char rest;
    int i, n;
    if (!o->slice || sscanf(o->slice, "%d/%d%c", &i, &n, &rest) != 2 || i < 1 || i > n || n > SLICES_MAX) return false;
    o->parsed = (struct store_slice){i - 1, n};
    return true;
}

static enum status worker_run(const struct options *o) {
    struct opened_store store = {0};
    struct threads *threads = NULL;
    enum status s = opened_store_open(&store, o->store);
    if (s == STATUS_OK) s = threads_create(&threads, (int)o->threads);
    if (s == STATUS_OK)
        s = slice_serve(STDIN_FILENO, STDOUT_FILENO, store.view, o->parsed, threads);
    else
        slice_refuse(STDOUT_FILENO, s); /* the searching process prints it */
    threads_free(threads);
    opened_store_close(&store);
    return s;
}

int drt_index_worker(int argc, char **argv, const char **operands) {
    struct options o = {0};
    const struct arg_option options[] = {
        {"store", ARG_PATH, &o.store, "STORE", "the store's folder: the same generation as the searching process", 0,
         0},
        {"slice", ARG_STRING, &o.slice, "i/N", "which of N slices this worker searches, from 1 to N", 0, 0},
        {"threads", ARG_INT, &o.threads, "N",
         "threads to use; 0: one for each processor that the affinity mask and CPU quota allow", 0, THREADS_MAX},
    };
    const struct arg_program program = {
        .name = "drt-index worker",
        .synopsis = "--store STORE --slice i/N [--threads N]",
        .about = "Searches a slice of a store for drt-index search, which starts it: requests come on standard input, "
                 "hits go to standard output, in a binary form. A slice has 1/N of the chunks, and the segments of the "
                 "index that lie in it. It ends when its standard input does.",
        .examples = "  drt-index search --queries q.npy --store /nfs/store \\\n"
                    "      --worker 'ssh a drt-index worker --store /nfs/store --slice 1/2' \\\n"
                    "      --worker 'ssh b drt-index worker --store /nfs/store --slice 2/2'\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("worker", "--store STORE is missing");
    if (!worker_parse(&o)) return drt_index_usage("worker", "--slice takes i/N, with i from 1 to N, N at most 1024");
    /* Output alone may be one: srun --unbuffered gives its tasks a pseudo terminal that changes no byte. */
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        return drt_index_usage("worker", "this is a terminal: drt-index search --workers starts workers");
    return worker_run(&o) == STATUS_OK ? 0 : 1;
}

/* ---- the processes of a search ------------------------------------------------------------------------------------
 */

int workers_options_check(const struct workers_options *o) {
    if (o->local > 0 && o->commands.count > 0)
        return drt_index_usage("search", "--workers N starts workers on this host, --worker COMMAND others: give one");
    return -1;
}

/* The child's end is its standard input and output; nobody else keeps it, so that its end is seen. */
static enum status workers_start(struct workers *w, int i, char *const *arguments) {
    int pair[2];
    posix_spawn_file_actions_t actions;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("a socket for worker %d", i + 1);
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        error = posix_spawn_file_actions_adddup2(&actions, pair[1], STDIN_FILENO);
        if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, pair[1], STDOUT_FILENO);
        if (error == 0) error = posix_spawn(&w->pids[i], arguments[0], &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(pair[1]);
    w->peers[i].socket = pair[0];
    w->n = i + 1;
    errno = error;
    if (error == 0) return STATUS_OK;
    w->pids[i] = 0;
    return fail_errno("worker %d: %s", i + 1, arguments[0]);
}

static enum status workers_start_local(struct workers *w, int i, int n, const char *store, int64_t threads) {
    char program[FILE_PATH_MAX], slice[40], count[24];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (bytes < 0) return fail_errno("/proc/self/exe");
    program[bytes] = 0;
    snprintf(slice, sizeof slice, "%d/%d", i + 1, n);
    snprintf(count, sizeof count, "%lld", (long long)(threads / n > 1 ? threads / n : 1));
    char *arguments[] = {program,
                         (char *)"worker",
                         (char *)"--store",
                         (char *)store,
                         (char *)"--slice",
                         slice,
                         (char *)"--threads",
                         count,
                         NULL};
    TRY(workers_start(w, i, arguments));
    snprintf(w->names[i], sizeof w->names[i], "pid %d", (int)w->pids[i]);
    return STATUS_OK;
}

static enum status workers_start_command(struct workers *w, int i, const char *command) {
    char *arguments[] = {(char *)"/bin/sh", (char *)"-c", (char *)command, NULL};
    snprintf(w->names[i], sizeof w->names[i], "%s", command);
    return workers_start(w, i, arguments);
}

static enum status workers_start_all(struct workers *w, const struct workers_options *o, int n, const char *store,
                                     int64_t threads) {
    TRY(memory_allocate_zero(&w->peers, (size_t)n));
    TRY(memory_allocate_zero(&w->names, (size_t)n));
    TRY(memory_allocate_zero(&w->pids, (size_t)n));
    if (threads == 0) threads = processors_available();
    for (int i = 0; i < n; i++) {
        w->peers[i].name = w->names[i];
        TRY(o->local > 0 ? workers_start_local(w, i, n, store, threads)
                         : workers_start_command(w, i, o->commands.items[i]));
    }
    return STATUS_OK;
}

enum status workers_open(struct workers *out, const struct workers_options *o, const char *store,
                         struct store_view *view, int64_t threads) {
    const int n = o->local > 0 ? (int)o->local : o->commands.count;
    *out = (struct workers){0};
    if (n == 0) return STATUS_OK;
    enum status s = workers_start_all(out, o, n, store, threads);
    if (s == STATUS_OK) s = slices_open(&out->slices, view, out->peers, n, (int)o->timeout);
    if (s != STATUS_OK) workers_close(out);
    return s;
}

/* The end of their input ends them; one that hangs must not hold this process. */
void workers_close(struct workers *w) {
    enum { STEP_US = 2000, STEPS = 500 };
    for (int i = 0; i < w->n; i++)
        close(w->peers[i].socket);
    for (int i = 0; i < w->n; i++) {
        int status, step = 0;
        while (w->pids[i] > 0 && waitpid(w->pids[i], &status, WNOHANG) == 0 && step++ < STEPS)
            usleep(STEP_US);
        if (w->pids[i] <= 0 || step <= STEPS) continue;
        kill(w->pids[i], SIGKILL);
        (void)waitpid(w->pids[i], &status, 0);
    }
    slices_close(w->slices);
    memory_free(w->peers);
    memory_free(w->names);
    memory_free(w->pids);
    *w = (struct workers){0};
}
