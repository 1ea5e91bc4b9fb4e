/* drt_index_workers.c -- the worker processes that drt-index search starts, or connects to. The standard input and
 * output of a started worker are one socket. */
#include "tools/index/drt_index_workers.h"
#include "base/memory.h"
#include "base/system/processors.h"
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

/* ---- the processes of a search ------------------------------------------------------------------------------------
 */

bool workers_wanted(const struct workers_options *o) {
    return o->link.addresses || o->commands.count > 0;
}

int workers_options_check(struct workers_options *o) {
    const char *text = o->link.addresses;
    if (text && o->commands.count > 0)
        return drt_index_usage("search", "--workers N starts workers on this host, --worker COMMAND others: give one");
    if (o->link.key_file && (!text || !strchr(text, ':')))
        return drt_index_usage("search", "--worker-key-file needs --workers HOST:PORT");
    if (o->link.timeout && !workers_wanted(o))
        return drt_index_usage("search", "--worker-timeout needs --workers or --worker");
    if (!text || strchr(text, ':')) return -1;
    char rest;
    long long n;
    if (sscanf(text, "%lld%c", &n, &rest) != 1 || n < 1 || n > SLICES_MAX)
        return drt_index_usage("search", "--workers takes a number from 1 to 1024, or HOST:PORT,HOST:PORT");
    o->local = n;
    return -1;
}

/* The child's end of the socket is its standard input and output. No other process has it open, so that this process
 * notices when the child closes it. */
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
    const int n = o->local > 0 ? (int)o->local : o->commands.count,
              timeout = o->link.timeout > 0 ? (int)o->link.timeout : SLICES_TIMEOUT;
    struct slices_remote remote;
    char key[NETWORK_KEY_MAX];
    *out = (struct workers){0};
    TRY(worker_options_remote(&remote, key, &o->link));
    if (remote.addresses && o->local == 0) return slices_connect(&out->slices, view, &remote);
    if (n == 0) return STATUS_OK;
    enum status s = workers_start_all(out, o, n, store, threads);
    if (s == STATUS_OK) s = slices_open(&out->slices, view, out->peers, n, timeout);
    if (s != STATUS_OK) workers_close(out);
    return s;
}

/* Workers end when their input ends. This process does not wait for a worker that does not respond. */
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
