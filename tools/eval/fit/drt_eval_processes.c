/* drt_eval_processes.c -- see drt_eval_processes.h. What a process sends is read by a copy of the same program: structs
 * and arrays as they are in memory, after a head with the status, or the message of a failure. */
#include "tools/eval/fit/drt_eval_processes.h"
#include "base/memory.h"
#include "kernels/device/device_group.h"
#include "tools/eval/drt_eval_tokens.h"
#include "tools/memory/memory_samples.h"
#include "tools/shared/train_rank.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct answer_head {
    int32_t status; /* enum status */
    char message[1020];
};

struct eval_processes {
    int number, n;
    int64_t tokens[EVAL_PROCESSES_MAX]; /* that each process has to score */
    pid_t process[EVAL_PROCESSES_MAX];
    int from[EVAL_PROCESSES_MAX]; /* in process 0: the pipe of each other process; -1: closed */
    bool finished[EVAL_PROCESSES_MAX];
    int to; /* in a copy: the pipe to process 0 */
};

int eval_processes_number(const struct eval_processes *group) {
    return group ? group->number : 0;
}
int eval_processes_count(const struct eval_processes *group) {
    return group ? group->n : 1;
}

int eval_processes_gpus(void) {
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        const int n = device_count("cuda");
        _exit(n > EVAL_PROCESSES_MAX ? EVAL_PROCESSES_MAX : n);
    }
    if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how)) return 0;
    return WEXITSTATUS(how);
}

/* ---- start and end ---- */

static enum status process_start(struct eval_processes *group, int i, bool gpu) {
    int ends[2];
    const pid_t parent = getpid();
    if (pipe(ends) != 0) return fail_errno("a pipe for process %d of %d", i + 1, group->n);
    group->process[i] = fork();
    if (group->process[i] < 0) {
        close(ends[0]);
        close(ends[1]);
        return fail_errno("process %d of %d cannot be started", i + 1, group->n);
    }
    if (group->process[i] > 0) {
        close(ends[1]);
        group->from[i] = ends[0];
        return STATUS_OK;
    }
    setpgid(0, 0); /* a terminal's Ctrl-C reaches it only through process 0 */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (int other = 1; other < i; other++)
        close(group->from[other]);
    close(ends[0]);
    group->number = i;
    group->to = ends[1];
    const struct train_rank own = {.rank = i, .world = group->n, .local = i};
    return gpu ? train_rank_show_gpu(&own) : STATUS_OK;
}

enum status eval_processes_start(struct eval_processes **out, int n, bool gpus) {
    struct eval_processes *group;
    if (n > EVAL_PROCESSES_MAX)
        return fail(STATUS_INVALID, "%d GPUs: at most %d work together", n, (int)EVAL_PROCESSES_MAX);
    TRY(memory_allocate_zero(&group, 1));
    group->n = n;
    for (int i = 0; i < n; i++)
        group->from[i] = -1;
    *out = group;
    for (int i = 1; i < n; i++) {
        const enum status status = process_start(group, i, gpus);
        if (group->number > 0 && status != STATUS_OK) eval_processes_finish(group, status, NULL, NULL);
        TRY(status);
        if (group->number > 0) return STATUS_OK;
    }
    return STATUS_OK;
}

void eval_processes_end(struct eval_processes *group) {
    for (int i = 1; group && group->number == 0 && i < group->n; i++) {
        if (group->from[i] >= 0) close(group->from[i]);
        if (group->process[i] <= 0) continue;
        if (!group->finished[i]) kill(group->process[i], SIGKILL);
        (void)waitpid(group->process[i], NULL, 0);
    }
    memory_free(group);
}

bool eval_processes_take(struct eval_processes *group, int64_t tokens) {
    int least = 0;
    if (!group) return true;
    for (int i = 1; i < group->n; i++)
        if (group->tokens[i] < group->tokens[least]) least = i;
    group->tokens[least] += tokens;
    return least == group->number;
}

/* ---- results through a pipe ---- */

struct answer_pipe {
    int end;
    bool reads;
    enum status status; /* the first failure; nothing is passed after it */
};

static void pass_bytes(struct answer_pipe *p, void *data, size_t n) {
    for (size_t done = 0; done < n && p->status == STATUS_OK;) {
        char *at = (char *)data + done;
        const ssize_t some = p->reads ? read(p->end, at, n - done) : write(p->end, at, n - done);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0)
            p->status = fail_errno("the pipe between two processes");
        else if (some == 0)
            p->status = fail(STATUS_IO, "it ended without a result");
        else
            done += (size_t)some;
    }
}

struct answer_counts {
    int64_t documents, tokens;
    bool runs_known;
    double seconds[EVAL_MODES];
};

static void pass_tokens(struct answer_pipe *p, struct eval_result *r) {
    struct eval_tokens *t = &r->tokens;
    const size_t n = (size_t)t->n;
    pass_bytes(p, t->document, n * sizeof *t->document);
    pass_bytes(p, t->run, n * sizeof *t->run);
    for (int mode = 0; mode < EVAL_MODES; mode++)
        if (t->nll[mode]) pass_bytes(p, t->nll[mode], n * sizeof **t->nll);
}

static void pass_samples(struct answer_pipe *p, struct memory_samples *s) {
    float **all[MEMORY_SAMPLE_ARRAYS];
    const int arrays = memory_samples_arrays(s, all);
    pass_bytes(p, s->document, (size_t)s->n * sizeof *s->document);
    for (int i = 0; i < arrays; i++)
        pass_bytes(p, *all[i], (size_t)s->n * sizeof **all[i]);
}

/* For reading, r->mode and s->has must be set, and r and s be empty otherwise. */
static enum status pass_result(struct answer_pipe *p, struct eval_result *r, struct memory_samples *s) {
    struct answer_counts c = {(int64_t)r->n_documents, r->tokens.n, r->tokens.runs_known, {0}};
    memcpy(c.seconds, r->seconds, sizeof c.seconds);
    pass_bytes(p, &c, sizeof c);
    if (p->status == STATUS_OK && p->reads) {
        int64_t first;
        memcpy(r->seconds, c.seconds, sizeof c.seconds);
        TRY(memory_grow(&r->documents, &r->capacity, (size_t)c.documents));
        TRY(eval_tokens_add(&r->tokens, r->mode, c.tokens, 0, &first));
        TRY(memory_samples_reserve(s, c.tokens));
        r->n_documents = (size_t)c.documents;
        r->tokens.runs_known = c.runs_known;
        s->n = c.tokens;
    }
    pass_bytes(p, r->documents, r->n_documents * sizeof *r->documents);
    pass_tokens(p, r);
    pass_samples(p, s);
    return p->status;
}

_Noreturn void eval_processes_finish(struct eval_processes *group, enum status status, struct eval_result *result,
                                     struct memory_samples *samples) {
    struct answer_head head = {.status = status};
    struct answer_pipe p = {.end = group->to};
    signal(SIGPIPE, SIG_IGN);
    if (status != STATUS_OK) snprintf(head.message, sizeof head.message, "%s", status_message());
    pass_bytes(&p, &head, sizeof head);
    if (status == STATUS_OK) status = pass_result(&p, result, samples);
    _exit(status == STATUS_OK && p.status == STATUS_OK ? 0 : 1);
}

/* Reads the head of a process's answer. */
static enum status answer_head_read(struct eval_processes *group, int i) {
    struct answer_head head;
    struct answer_pipe p = {.end = group->from[i], .reads = true};
    if (group->finished[i]) return STATUS_OK;
    pass_bytes(&p, &head, sizeof head);
    if (p.status == STATUS_OK && head.status != STATUS_OK)
        p.status = fail((enum status)head.status, "%.1000s", head.message);
    if (p.status == STATUS_OK) {
        group->finished[i] = true;
        return STATUS_OK;
    }
    char why[1024];
    snprintf(why, sizeof why, "%s", status_message());
    return fail(p.status, "process %d of %d: %s", i + 1, group->n, why);
}

enum status eval_processes_check(struct eval_processes *group) {
    for (int i = 1; group && group->number == 0 && i < group->n; i++) {
        struct pollfd one = {.fd = group->from[i], .events = POLLIN};
        if (!group->finished[i] && poll(&one, 1, 0) > 0) TRY(answer_head_read(group, i));
    }
    return STATUS_OK;
}

/* ---- the results of all ---- */

struct process_result {
    struct eval_result result;
    struct memory_samples samples;
    size_t document; /* the next document, and its first token */
    int64_t token;
};

static bool eval_processes_before(const struct eval_document *a, const struct eval_document *b) {
    return a->file != b->file ? a->file < b->file : a->number < b->number;
}

/* Returns the process whose next document is the first; -1: there are no more documents. */
static int process_next(const struct process_result *all, int n) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        const struct process_result *a = &all[i];
        if (a->document == a->result.n_documents) continue;
        if (best < 0 ||
            eval_processes_before(&a->result.documents[a->document], &all[best].result.documents[all[best].document]))
            best = i;
    }
    return best;
}

static enum status add_document(struct eval_result *r, struct memory_samples *s, struct process_result *from) {
    const struct eval_document *d = &from->result.documents[from->document++];
    const struct eval_tokens *t = &from->result.tokens;
    int64_t first;
    TRY(memory_grow(&r->documents, &r->capacity, r->n_documents + 1));
    TRY(eval_tokens_add(&r->tokens, r->mode, d->tokens, (int32_t)r->n_documents, &first));
    for (int mode = 0; mode < EVAL_MODES; mode++)
        if (t->nll[mode])
            memcpy(r->tokens.nll[mode] + first, t->nll[mode] + from->token, (size_t)d->tokens * sizeof **t->nll);
    memcpy(r->tokens.run + first, t->run + from->token, (size_t)d->tokens * sizeof *t->run);
    TRY(memory_samples_copy(s, &from->samples, from->token, d->tokens, (int32_t)r->n_documents));
    from->token += d->tokens;
    r->files[d->file].bytes += d->bytes;
    r->documents[r->n_documents++] = *d;
    return STATUS_OK;
}

static enum status add_documents(struct eval_result *r, struct memory_samples *s, struct process_result *all, int n) {
    r->tokens.runs_known = true;
    for (int i = 0; i < n; i++) {
        r->tokens.runs_known &= all[i].result.tokens.runs_known || all[i].result.n_documents == 0;
        for (int mode = 0; mode < EVAL_MODES; mode++)
            if (all[i].result.seconds[mode] > r->seconds[mode]) r->seconds[mode] = all[i].result.seconds[mode];
    }
    for (int i; (i = process_next(all, n)) >= 0;)
        TRY(add_document(r, s, &all[i]));
    return STATUS_OK;
}

/* Moves documents, tokens and samples of this process to *own. */
static void take_own(struct process_result *own, struct eval_result *r, struct memory_samples *s) {
    own->result.documents = r->documents;
    own->result.n_documents = r->n_documents;
    own->result.tokens = r->tokens;
    own->samples = *s;
    r->documents = NULL;
    r->n_documents = r->capacity = 0;
    r->tokens = (struct eval_tokens){0};
    *s = (struct memory_samples){0};
    memcpy(s->has, own->samples.has, sizeof s->has);
    for (int i = 0; i < r->n_files; i++)
        r->files[i].bytes = 0;
}

enum status eval_processes_collect(struct eval_processes *group, struct eval_result *result,
                                   struct memory_samples *samples) {
    struct process_result *all;
    enum status status = STATUS_OK;
    TRY(memory_allocate_zero(&all, (size_t)group->n));
    for (int i = 1; i < group->n && status == STATUS_OK; i++) {
        struct answer_pipe p = {.end = group->from[i], .reads = true};
        memcpy(all[i].result.mode, result->mode, sizeof result->mode);
        memcpy(all[i].samples.has, samples->has, sizeof samples->has);
        status = answer_head_read(group, i);
        if (status == STATUS_OK) status = pass_result(&p, &all[i].result, &all[i].samples);
    }
    if (status == STATUS_OK) {
        take_own(&all[0], result, samples);
        status = add_documents(result, samples, all, group->n);
    }
    for (int i = 0; i < group->n; i++) {
        eval_result_free(&all[i].result);
        memory_samples_free(&all[i].samples);
    }
    memory_free(all);
    return status;
}
