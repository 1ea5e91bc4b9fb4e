/* drt_eval_lanes.c -- see drt_eval_lanes.h. What a process sends is read by a copy of the same program: structs and
 * arrays as they are in memory, after a head with the status, or the message of a failure. */
#include "tools/eval/fit/drt_eval_lanes.h"
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

struct lane_head {
    int32_t status; /* enum status */
    char message[1020];
};

struct eval_lanes {
    int number, n;
    int64_t tokens[EVAL_LANES_MAX]; /* that each process has to score */
    pid_t process[EVAL_LANES_MAX];
    int from[EVAL_LANES_MAX]; /* in process 0: the pipe of each other process; -1: closed */
    bool finished[EVAL_LANES_MAX];
    int to; /* in a copy: the pipe to process 0 */
};

int eval_lanes_number(const struct eval_lanes *l) {
    return l ? l->number : 0;
}
int eval_lanes_count(const struct eval_lanes *l) {
    return l ? l->n : 1;
}

int eval_lanes_gpus(void) {
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        const int n = device_count("cuda");
        _exit(n > EVAL_LANES_MAX ? EVAL_LANES_MAX : n);
    }
    if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how)) return 0;
    return WEXITSTATUS(how);
}

/* ---- start and end ---- */

static enum status lane_start(struct eval_lanes *l, int i, bool gpu) {
    int ends[2];
    const pid_t parent = getpid();
    if (pipe(ends) != 0) return fail_errno("a pipe for process %d of %d", i + 1, l->n);
    l->process[i] = fork();
    if (l->process[i] < 0) {
        close(ends[0]);
        close(ends[1]);
        return fail_errno("process %d of %d cannot be started", i + 1, l->n);
    }
    if (l->process[i] > 0) {
        close(ends[1]);
        l->from[i] = ends[0];
        return STATUS_OK;
    }
    setpgid(0, 0); /* a terminal's Ctrl-C reaches it only through process 0 */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (int other = 1; other < i; other++)
        close(l->from[other]);
    close(ends[0]);
    l->number = i;
    l->to = ends[1];
    const struct train_rank own = {.rank = i, .world = l->n, .local = i};
    return gpu ? train_rank_show_gpu(&own) : STATUS_OK;
}

enum status eval_lanes_start(struct eval_lanes **out, int n, bool gpus) {
    struct eval_lanes *l;
    if (n > EVAL_LANES_MAX) return fail(STATUS_INVALID, "%d GPUs: at most %d work together", n, (int)EVAL_LANES_MAX);
    TRY(memory_allocate_zero(&l, 1));
    l->n = n;
    for (int i = 0; i < n; i++)
        l->from[i] = -1;
    *out = l;
    for (int i = 1; i < n; i++) {
        const enum status status = lane_start(l, i, gpus);
        if (l->number > 0 && status != STATUS_OK) eval_lanes_finish(l, status, NULL, NULL);
        TRY(status);
        if (l->number > 0) return STATUS_OK;
    }
    return STATUS_OK;
}

void eval_lanes_end(struct eval_lanes *l) {
    for (int i = 1; l && l->number == 0 && i < l->n; i++) {
        if (l->from[i] >= 0) close(l->from[i]);
        if (l->process[i] <= 0) continue;
        if (!l->finished[i]) kill(l->process[i], SIGKILL);
        (void)waitpid(l->process[i], NULL, 0);
    }
    memory_free(l);
}

bool eval_lanes_take(struct eval_lanes *l, int64_t tokens) {
    int least = 0;
    if (!l) return true;
    for (int i = 1; i < l->n; i++)
        if (l->tokens[i] < l->tokens[least]) least = i;
    l->tokens[least] += tokens;
    return least == l->number;
}

/* ---- results through a pipe ---- */

struct lane_pipe {
    int end;
    bool reads;
    enum status status; /* the first failure; nothing is passed after it */
};

static void pass_bytes(struct lane_pipe *p, void *data, size_t n) {
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

struct lane_counts {
    int64_t documents, tokens;
    bool runs_known;
    double seconds[EVAL_MODES];
};

static void pass_tokens(struct lane_pipe *p, struct eval_result *r) {
    struct eval_tokens *t = &r->tokens;
    const size_t n = (size_t)t->n;
    pass_bytes(p, t->document, n * sizeof *t->document);
    pass_bytes(p, t->run, n * sizeof *t->run);
    for (int mode = 0; mode < EVAL_MODES; mode++)
        if (t->nll[mode]) pass_bytes(p, t->nll[mode], n * sizeof **t->nll);
}

static void pass_samples(struct lane_pipe *p, struct memory_samples *s) {
    float **all[MEMORY_SAMPLE_ARRAYS];
    const int arrays = memory_samples_arrays(s, all);
    pass_bytes(p, s->document, (size_t)s->n * sizeof *s->document);
    for (int i = 0; i < arrays; i++)
        pass_bytes(p, *all[i], (size_t)s->n * sizeof **all[i]);
}

/* For reading, r->mode and s->has must be set, and r and s be empty otherwise. */
static enum status pass_result(struct lane_pipe *p, struct eval_result *r, struct memory_samples *s) {
    struct lane_counts c = {(int64_t)r->n_documents, r->tokens.n, r->tokens.runs_known, {0}};
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

_Noreturn void eval_lanes_finish(struct eval_lanes *l, enum status status, struct eval_result *result,
                                 struct memory_samples *samples) {
    struct lane_head head = {.status = status};
    struct lane_pipe p = {.end = l->to};
    signal(SIGPIPE, SIG_IGN);
    if (status != STATUS_OK) snprintf(head.message, sizeof head.message, "%s", status_message());
    pass_bytes(&p, &head, sizeof head);
    if (status == STATUS_OK) status = pass_result(&p, result, samples);
    _exit(status == STATUS_OK && p.status == STATUS_OK ? 0 : 1);
}

/* Reads the head of a process's answer. */
static enum status lane_head_read(struct eval_lanes *l, int i) {
    struct lane_head head;
    struct lane_pipe p = {.end = l->from[i], .reads = true};
    if (l->finished[i]) return STATUS_OK;
    pass_bytes(&p, &head, sizeof head);
    if (p.status == STATUS_OK && head.status != STATUS_OK)
        p.status = fail((enum status)head.status, "%.1000s", head.message);
    if (p.status == STATUS_OK) {
        l->finished[i] = true;
        return STATUS_OK;
    }
    char why[1024];
    snprintf(why, sizeof why, "%s", status_message());
    return fail(p.status, "process %d of %d: %s", i + 1, l->n, why);
}

enum status eval_lanes_check(struct eval_lanes *l) {
    for (int i = 1; l && l->number == 0 && i < l->n; i++) {
        struct pollfd one = {.fd = l->from[i], .events = POLLIN};
        if (!l->finished[i] && poll(&one, 1, 0) > 0) TRY(lane_head_read(l, i));
    }
    return STATUS_OK;
}

/* ---- the results of all ---- */

struct lane_result {
    struct eval_result result;
    struct memory_samples samples;
    size_t document; /* the next document, and its first token */
    int64_t token;
};

static bool before(const struct eval_document *a, const struct eval_document *b) {
    return a->file != b->file ? a->file < b->file : a->number < b->number;
}

/* Returns the process whose next document is the first; -1: there are no more documents. */
static int lane_next(const struct lane_result *all, int n) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        const struct lane_result *a = &all[i];
        if (a->document == a->result.n_documents) continue;
        if (best < 0 || before(&a->result.documents[a->document], &all[best].result.documents[all[best].document]))
            best = i;
    }
    return best;
}

static enum status add_document(struct eval_result *r, struct memory_samples *s, struct lane_result *from) {
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

static enum status add_documents(struct eval_result *r, struct memory_samples *s, struct lane_result *all, int n) {
    r->tokens.runs_known = true;
    for (int i = 0; i < n; i++) {
        r->tokens.runs_known &= all[i].result.tokens.runs_known || all[i].result.n_documents == 0;
        for (int mode = 0; mode < EVAL_MODES; mode++)
            if (all[i].result.seconds[mode] > r->seconds[mode]) r->seconds[mode] = all[i].result.seconds[mode];
    }
    for (int i; (i = lane_next(all, n)) >= 0;)
        TRY(add_document(r, s, &all[i]));
    return STATUS_OK;
}

/* Moves documents, tokens and samples of this process to *own. */
static void take_own(struct lane_result *own, struct eval_result *r, struct memory_samples *s) {
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

enum status eval_lanes_collect(struct eval_lanes *l, struct eval_result *result, struct memory_samples *samples) {
    struct lane_result *all;
    enum status status = STATUS_OK;
    TRY(memory_allocate_zero(&all, (size_t)l->n));
    for (int i = 1; i < l->n && status == STATUS_OK; i++) {
        struct lane_pipe p = {.end = l->from[i], .reads = true};
        memcpy(all[i].result.mode, result->mode, sizeof result->mode);
        memcpy(all[i].samples.has, samples->has, sizeof samples->has);
        status = lane_head_read(l, i);
        if (status == STATUS_OK) status = pass_result(&p, &all[i].result, &all[i].samples);
    }
    if (status == STATUS_OK) {
        take_own(&all[0], result, samples);
        status = add_documents(result, samples, all, l->n);
    }
    for (int i = 0; i < l->n; i++) {
        eval_result_free(&all[i].result);
        memory_samples_free(&all[i].samples);
    }
    memory_free(all);
    return status;
}
