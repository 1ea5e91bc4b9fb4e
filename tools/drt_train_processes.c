/* drt_train_processes.c -- see drt_train_processes.h. */
#include "tools/drt_train_processes.h"
#include "base/memory.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 64 };

static bool number_of(int *out, const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return false;
    long value = strtol(text, &end, 10);
    if (*end || value < 0 || value > PROCESSES_MAX) return false;
    *out = (int)value;
    return true;
}

/* The processes of one launcher have one parent, and another launch has another: its number names the place. */
static void name_rendezvous(struct train_place *place, pid_t parent) {
    snprintf(place->rendezvous, sizeof place->rendezvous, "%s/drt-train-%ld",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)parent);
}

enum status train_place_found(struct train_place *out) {
    static const struct {
        const char *rank, *local, *world, *here;
    } launchers[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"},
        {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    };
    *out = (struct train_place){.world = 1};
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++) {
        int here;
        if (!number_of(&out->rank, launchers[i].rank) || !number_of(&out->world, launchers[i].world)) continue;
        if (number_of(&here, launchers[i].here) && here != out->world)
            return fail(STATUS_UNSUPPORTED, "%d processes on several hosts: drt-train trains on the GPUs of one host",
                        out->world);
        if (out->rank >= out->world)
            return fail(STATUS_INVALID, "%s is %d of %d: the launcher's environment is damaged", launchers[i].rank,
                        out->rank, out->world);
        name_rendezvous(out, getppid());
        return STATUS_OK;
    }
    *out = (struct train_place){.world = 1};
    return STATUS_OK;
}

/* Entry `rank` of CUDA_VISIBLE_DEVICES, or the number itself. */
static enum status show_one_gpu(int rank) {
    char one[64], *list = getenv("CUDA_VISIBLE_DEVICES");
    snprintf(one, sizeof one, "%d", rank);
    if (list && *list) {
        const char *at = list;
        for (int i = 0; i < rank && at; i++) {
            at = strchr(at, ',');
            if (at) at++;
        }
        if (!at) return fail(STATUS_INVALID, "CUDA_VISIBLE_DEVICES names fewer GPUs than there are processes");
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ","), at);
    }
    return setenv("CUDA_VISIBLE_DEVICES", one, 1) == 0 ? STATUS_OK : fail_errno("CUDA_VISIBLE_DEVICES");
}

static void signal_all(const pid_t *children, int n, int signal) {
    for (int i = 0; i < n; i++)
        if (children[i] > 0) kill(children[i], signal);
}

/* Waits for children and for signals at once, so that nothing happens in a handler. A child that failed leaves the
 * others waiting in a sum for ever: they are ended. Asked to stop, all end behind the same step, and rank 0, which
 * still writes, is left alone, until a second signal. */
static int wait_all(pid_t *children, int n, const sigset_t *signals) {
    int code = 0;
    bool stopping = false;
    for (int left = n; left > 0;) {
        int signal = sigwaitinfo(signals, NULL), how;
        if (signal > 0 && signal != SIGCHLD && !(stopping && signal == SIGHUP)) {
            signal_all(children, n, stopping ? SIGKILL : SIGTERM);
            stopping = true;
        }
        for (pid_t ended; (ended = waitpid(-1, &how, WNOHANG)) > 0;) {
            for (int i = 0; i < n; i++)
                if (children[i] == ended) children[i] = 0, left--;
            int its = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
            if (its == 0 || code != 0) continue;
            code = its;
            if (!stopping) signal_all(children, n, SIGKILL);
        }
    }
    return code;
}

/* SIGCHLD and what asks to stop, but what the program was started to ignore: blocked, it would come all the same. */
static void set_of_signals(sigset_t *out) {
    static const int asking[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(out);
    sigaddset(out, SIGCHLD);
    for (size_t i = 0; i < ARRAY_LEN(asking); i++) {
        struct sigaction now;
        sigaction(asking[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(out, asking[i]);
    }
}

enum status train_processes_start(struct train_place *out, int *code, int processes) {
    pid_t children[PROCESSES_MAX], parent = getpid();
    sigset_t signals, before;
    if (processes > PROCESSES_MAX)
        return fail(STATUS_UNSUPPORTED, "%d processes: at most %d train together", processes, PROCESSES_MAX);
    *out = (struct train_place){.world = processes};
    *code = -1;
    name_rendezvous(out, parent);
    set_of_signals(&signals);
    sigprocmask(SIG_BLOCK, &signals, &before);
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        if (children[i] < 0) {
            enum status s = fail_errno("process %d of %d cannot be started", i + 1, processes);
            signal_all(children, i, SIGKILL);
            return s;
        }
        if (children[i] > 0) continue;
        setpgid(0, 0);                    /* a terminal's Ctrl-C comes once, through the parent */
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* a parent killed hard takes its children along */
        if (getppid() != parent) _exit(1);
        sigprocmask(SIG_SETMASK, &before, NULL);
        out->rank = i;
        return show_one_gpu(i);
    }
    *code = wait_all(children, processes, &signals);
    return STATUS_OK;
}
