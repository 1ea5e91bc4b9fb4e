/* drt_train_processes.c -- see drt_train_processes.h. */
#include "tools/train/drt_train_processes.h"
#include "tools/shared/progress_line.h"
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void signal_all(const pid_t *children, int n, int signal) {
    for (int i = 0; i < n; i++)
        if (children[i] > 0) kill(children[i], signal);
}

/* Waits for children and for signals in one call, so that no work happens in a signal handler. If a child fails, the
 * others would wait for it in a collective sum for ever, so they are killed. The first signal stops all children after
 * the same step, and rank 0 may finish writing. The second signal kills them. */
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

enum status train_processes_start(struct train_rank *out, int *code, int processes) {
    pid_t children[TRAIN_PROCESSES_MAX], parent = getpid();
    sigset_t signals, before;
    if (processes > TRAIN_PROCESSES_MAX)
        return fail(STATUS_UNSUPPORTED, "%d processes: at most %d can train one model", processes, TRAIN_PROCESSES_MAX);
    *out = (struct train_rank){.world = processes};
    *code = -1;
    train_rank_set_rendezvous(out, parent);
    progress_line_signals(&signals); /* except the ignored signals, which would be delivered if they were blocked */
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, &before);
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        if (children[i] < 0) {
            enum status s = fail_errno("process %d of %d cannot be started", i + 1, processes);
            signal_all(children, i, SIGKILL);
            return s;
        }
        if (children[i] > 0) continue;
        setpgid(0, 0);                    /* so that a terminal's Ctrl-C reaches it only through the parent */
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* the kernel ends the child if the parent is killed */
        if (getppid() != parent) _exit(1);
        sigprocmask(SIG_SETMASK, &before, NULL);
        out->rank = out->local = i;
        return STATUS_OK;
    }
    *code = wait_all(children, processes, &signals);
    return STATUS_OK;
}
