/* test_store_sequence.c -- random sequences of all operations on one store, against a model of it (sequence.h).
 *
 * After each operation: counts, documents, tokens, landmarks, hits of exact search, of the index and of words, keys,
 * verify --deep, and the files of the folders. Other processes keep views that were opened before, which must have
 * their contents. In some steps a call fails, or the process is killed, at a random fault point. The store must then
 * have the contents before the operation or after it, and the operation is repeated.
 *
 *   test_store_sequence [SEED [SEQUENCES [STEPS [FAULTS]]]]    FAULTS: percent of the steps
 *
 * With a seed, a failure keeps the stores and prints their folder. */
#include "tests/property/store_sequence/sequence.h"
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>

enum { READERS = 3, TRACE = 24, TIME_LIMIT = 200 };
static const struct operation {
    const char *name;
    enum status (*run)(struct sequence *m);
    int weight;
} operations[] = {{"add", sequence_add, 9},
                  {"update", sequence_update, 6},
                  {"delete", sequence_delete, 6},
                  {"drop", sequence_drop, 3},
                  {"lexical", sequence_lexical, 2},
                  {"publish", sequence_publish, 3},
                  {"keys", sequence_keys, 4},
                  {"another index", sequence_another_index, 2},
                  {"index parts", sequence_index_parts, 3},
                  {"repair", sequence_repair, 4},
                  {"compact", sequence_compact, 2},
                  {"join", sequence_join, 1},
                  {"freeze", sequence_freeze, 2}};

/* ---- what was done, for a failure ---- */

static char trace[TRACE][200];
static int traced;
static bool done, child, keeps; /* keeps: the folder, after a failure */

static void trace_add(int sequence, int step, const char *name, const struct sequence *m) {
    snprintf(trace[traced++ % TRACE], sizeof trace[0],
             "sequence %d step %d: %s; %lld documents, %lld chunks of %lld, %lld shards, index %s, keys %d", sequence,
             step, name, (long long)m->published, (long long)sequence_alive(m),
             (long long)sequence_chunks(m, m->published), (long long)m->published_shards, m->index, m->keys);
}

static void trace_print(void) {
    if (child) _exit(1); /* the folder is the parent's */
    for (int i = traced > TRACE ? traced - TRACE : 0; !done && i < traced; i++)
        fprintf(stderr, "%s\n", trace[i % TRACE]);
    if (done) return;
    fprintf(stderr, "seed %llu\n", (unsigned long long)test_seed());
    if (!keeps) return;
    fprintf(stderr, "the stores are in %s\n", test_folder_path);
    test_folder_path[0] = 0;
}

static void want_same(const char *bad) {
    if (bad) fprintf(stderr, "%s\n", bad);
    CHECK(!bad);
}

__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...) {
    char command[1600];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    CHECK(system(command) == 0);
}

static void *shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* ---- processes with an open view ---- */

static struct reader {
    pid_t pid; /* 0: none */
    int to, from;
    bool *dropped_later; /* [SEQUENCE_SHARDS], in shared memory */
    bool busy;           /* it compares now */
    int snapshot;        /* number of the folder that only this reader has, or 0 */
} readers[READERS];
static int snapshots;

static _Noreturn void reader_run(const struct sequence *now, const struct reader *r, bool early) {
    static struct sequence copy;
    const struct sequence *m = &copy;
    struct store *s;
    struct store_view *v;
    char byte = 'k';
    const struct sequence_view fresh = {0}, old = {.old = true, .dropped_later = r->dropped_later};
    copy = *now;
    child = true;
    alarm(TIME_LIMIT * 10);
    CHECK_OK(store_open(&s, sequence_dir(m)));
    CHECK_OK(store_view_open(&v, s));
    if (early) want_same(sequence_compare(m, v, &fresh)); /* others map their files only when they compare */
    while (write(r->from, &byte, 1) == 1 && read(r->to, &byte, 1) == 1)
        want_same(sequence_compare(m, v, &old));
    store_view_close(v);
    store_close(s);
    _exit(0);
}

/* Waits until the reader has compared its view. */
static void reader_wait(struct reader *r) {
    r->busy = false;
    char byte;
    if (read(r->from, &byte, 1) != 1) {
        fprintf(stderr, "a reader failed\n");
        exit(1);
    }
}

static void reader_open(struct reader *r, const struct sequence *m, int snapshot, bool early) {
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    *r = (struct reader){.snapshot = snapshot};
    r->dropped_later = shared(SEQUENCE_SHARDS);
    fflush(NULL);
    r->pid = fork();
    CHECK(r->pid >= 0);
    if (r->pid == 0) {
        close(to[1]);
        close(from[0]);
        r->to = to[0];
        r->from = from[1];
        for (int i = 0; i < READERS; i++)
            if (readers[i].pid) close(readers[i].to);
        reader_run(m, r, early);
    }
    close(to[0]);
    close(from[1]);
    r->to = to[1];
    r->from = from[0];
    reader_wait(r);
}

static void reader_begin(struct reader *r) {
    CHECK(r->busy || write(r->to, "c", 1) == 1);
    r->busy = true;
}

static void reader_check(struct reader *r) {
    reader_begin(r);
    reader_wait(r);
}

static void readers_mark(const struct sequence *m) {
    for (int r = 0; r < READERS; r++)
        for (int64_t i = 0; readers[r].pid && !readers[r].snapshot && i < m->published_shards; i++)
            readers[r].dropped_later[i] = readers[r].dropped_later[i] || m->shards[i].dropped;
}

static void reader_close(struct reader *r, const struct sequence *m) {
    int status;
    char path[700], name[20];
    if (!r->pid) return;
    if (r->busy) reader_wait(r);
    close(r->to);
    close(r->from);
    CHECK(waitpid(r->pid, &status, 0) == r->pid && status == 0);
    munmap(r->dropped_later, SEQUENCE_SHARDS);
    snprintf(name, sizeof name, "s%d", r->snapshot);
    sequence_path(path, m, name);
    if (r->snapshot) shell("rm -rf '%s'", path);
    *r = (struct reader){0};
}

static void readers_step(struct sequence *m, struct rng *r) {
    struct reader *x = &readers[rng_below(r, READERS)];
    if (x->pid) {
        reader_check(x);
        if (rng_below(r, 3) == 0) reader_close(x, m);
    } else if (rng_below(r, 2) == 0 && m->published) {
        reader_open(x, m, 0, rng_below(r, 2));
    }
}

static void readers_end(struct sequence *m) {
    for (int i = 0; i < READERS; i++)
        if (readers[i].pid) reader_check(&readers[i]);
    for (int i = 0; i < READERS; i++)
        reader_close(&readers[i], m);
}

/* A snapshot that was made in this step gets a reader, or is removed. */
static void take_snapshot(struct sequence *m, const struct reader *free_slot) {
    static struct sequence frozen;
    char path[700], to[700];
    sequence_path(path, m, "f");
    if (access(path, F_OK) != 0) return;
    if (!free_slot) {
        shell("rm -rf '%s'", path);
        return;
    }
    frozen = *m;
    sequence_forget_journal(&frozen);
    frozen.frozen = true;
    frozen.number = 3000 + ++snapshots;
    snprintf(to, sizeof to, "%s", sequence_dir(&frozen));
    CHECK(rename(path, to) == 0);
    reader_open((struct reader *)free_slot, &frozen, frozen.number, snapshots % 2);
}

/* ---- faults ---- */

struct trial {
    struct sequence after;
    struct sequence_passes passes[SEQUENCE_POINTS];
};
static long faults_tried, faults_old, faults_new;

static void limit_child(void) {
    child = true;
    alarm(TIME_LIMIT); /* a call that never returns */
}

/* Runs an operation in another process, because the threads of OpenMP do not survive a fork. *m is in shared memory. */
static void run_apart(struct sequence *m, enum status (*run)(struct sequence *m)) {
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        limit_child();
        CHECK_OK(run(m));
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

/* Runs the operation in a copy of the folder, by another process: its result, and the fault points that it passes. */
static void try_copy(struct trial *t, const struct sequence *m, const struct operation *op) {
    static struct sequence copy;
    int status;
    shell("rm -rf '%s.copy' && cp -a '%s' '%s.copy'", m->base, m->base, m->base);
    fflush(NULL);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        limit_child();
        copy = *m;
        copy.whole = true;
        snprintf(copy.base, sizeof copy.base, "%.590s.copy", m->base);
        sequence_faults_count(t->passes);
        CHECK_OK(op->run(&copy));
        sequence_faults_off();
        want_same(sequence_check(&copy));
        t->after = copy;
        memcpy(t->after.base, m->base, sizeof m->base);
        t->after.whole = false;
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
    shell("rm -rf '%s.copy'", m->base);
}

static void drop_journal(const struct sequence *m) {
    const struct store_writer_config config = sequence_config(m);
    struct store_writer *w;
    CHECK_OK(store_writer_open(&w, sequence_dir(m), &config, false));
    CHECK_OK(store_writer_drop_journal(w));
    store_writer_close(w);
}

/* What a kill or a failure may leave: keys of some files, and a journal. */
static const char *compare_published(const struct sequence *m, bool keys) {
    static struct sequence copy;
    copy = *m;
    if (keys) copy.keys = -1;
    return sequence_check(&copy);
}

enum outcome { OUTCOME_DONE, OUTCOME_FAILED, OUTCOME_KILLED };

static enum outcome try_fault(const struct sequence *m, const struct operation *op, bool kill,
                              const struct sequence_passes *p, long pass, bool retry) {
    static struct sequence copy;
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        limit_child();
        copy = *m;
        copy.whole = true;
        sequence_faults_arm(kill, p->name, pass);
        enum status s = op->run(&copy);
        sequence_faults_off();
        const bool again = s != STATUS_OK && sequence_faults_fired() && retry && !compare_published(m, true);
        if (again) { /* by the same process */
            copy = *m;
            copy.whole = true;
            drop_journal(&copy);
            CHECK_OK(op->run(&copy));
            s = STATUS_OK;
        }
        if (s != STATUS_OK && !sequence_faults_fired()) fprintf(stderr, "no fault, but: %s\n", status_message());
        _exit(s == STATUS_OK ? 0 : sequence_faults_fired() ? 3 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return OUTCOME_KILLED;
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
    return WEXITSTATUS(status) == 0 ? OUTCOME_DONE : OUTCOME_FAILED;
}

/* One pass of one of the points, each name with the same probability. */
static const struct sequence_passes *pick(const struct trial *t, struct rng *r, long *pass) {
    uint64_t n = 0;
    while (n < SEQUENCE_POINTS && t->passes[n].passes)
        n++;
    if (n == 0) return NULL;
    const struct sequence_passes *p = &t->passes[rng_below(r, n)];
    *pass = 1 + (long)rng_below(r, (uint64_t)p->passes);
    return p;
}

static void run_faulty(struct sequence *m, const struct operation *op, struct rng *r) {
    struct trial *t = shared(sizeof *t);
    long pass = 0;
    const bool mends = op->run == sequence_repair, keys = op->run == sequence_keys, kill = rng_below(r, 2);
    if (mends) sequence_damage(m);
    try_copy(t, m, op);
    const struct sequence_passes *p = pick(t, r, &pass);
    const enum outcome how = p ? try_fault(m, op, kill, p, pass, rng_below(r, 2)) : OUTCOME_FAILED;
    snprintf(trace[traced++ % TRACE], sizeof trace[0], "    %s at pass %ld of %.60s: %s", kill ? "kill" : "fail", pass,
             p ? p->name : "no point",
             how == OUTCOME_DONE     ? "done"
             : how == OUTCOME_FAILED ? "failed"
                                     : "killed");
    faults_tried += p != NULL;
    const char *before = how == OUTCOME_DONE || mends ? "it is done" : compare_published(m, keys);
    char first[1700];
    snprintf(first, sizeof first, "%s", before ? before : "");
    if (before && !mends) {
        const char *after = compare_published(&t->after, keys && how != OUTCOME_DONE);
        if (after) fprintf(stderr, "neither the old contents (%s) nor the new ones\n", first);
        want_same(after);
        *m = t->after;
        faults_new++;
    } else {
        if (rng_below(r, 2) == 0) { /* a repair changes nothing, whatever the journal has */
            run_apart(m, sequence_repair);
            want_same(compare_published(m, keys));
        }
        drop_journal(m);
        m->whole = true;
        run_apart(m, op->run);
        m->whole = false;
        faults_old++;
    }
    /* what was not finished after the commit */
    if (keys) CHECK_OK(m->keys ? sequence_make_keys(m, m->keys) : STATUS_OK);
    munmap(t, sizeof *t);
}

/* ---- the sequences ---- */

static const struct operation *pick_operation(const struct sequence *m, struct rng *r) {
    int all = 0;
    if (m->published == 0) return &operations[0];
    for (size_t i = 0; i < ARRAY_LEN(operations); i++)
        all += operations[i].weight;
    int64_t at = (int64_t)rng_below(r, (uint64_t)all);
    const struct operation *op = operations;
    while ((at -= op->weight) >= 0)
        op++;
    const bool full = m->sealed > 900 || m->sealed_shards > 300;
    if (op->run == sequence_publish && m->sealed_shards == m->published_shards) return &operations[0];
    return full && op->run == sequence_add ? &operations[2] : op;
}

static void step(struct sequence *m, const struct operation *op, struct rng *r, int faults) {
    const int before = m->number;
    const bool journal = m->sealed_shards > m->published_shards;
    struct reader *slot = NULL;
    for (int i = 0; i < READERS;
         i++) /* views are also read while the store changes, but a drop and damage remove what they read */
        if (readers[i].pid && op->run != sequence_drop && op->run != sequence_repair && rng_below(r, 2))
            reader_begin(&readers[i]);
    if ((int)rng_below(r, 100) < faults && !journal && m->published) {
        run_faulty(m, op, r);
    } else {
        if (op->run == sequence_repair) sequence_damage(m);
        run_apart(m, op->run);
    }
    want_same(sequence_check(m));
    if (rng_below(r, 3) == 0 && m->published) want_same(sequence_check_files(m));
    shell("rm -rf '%s/work'", m->base); /* a kill after the commit of an index leaves it */
    for (int i = 0; i < READERS; i++)
        if (readers[i].pid && readers[i].busy) reader_wait(&readers[i]);
    if (m->number == before) readers_mark(m);
    if (m->number != before) { /* a view needs the folder of its store */
        for (int i = 0; i < READERS; i++)
            if (readers[i].pid && !readers[i].snapshot) {
                reader_check(&readers[i]);
                reader_close(&readers[i], m);
            }
        shell("rm -rf '%s/s%d' '%s'/s100?", m->base, before, m->base);
    }
    for (int i = 0; i < READERS; i++)
        if (!readers[i].pid) slot = &readers[i];
    take_snapshot(m, slot);
}

static void run_sequence(int number, int steps, int faults) {
    struct sequence *m = shared(sizeof *m);
    static const enum store_landmarks types[] = {STORE_LANDMARKS_F16, STORE_LANDMARKS_I8, STORE_LANDMARKS_NONE,
                                                 STORE_LANDMARKS_F16};
    struct rng r = rng_make(test_seed(), 2 * (uint64_t)number);
    m->r = rng_make(test_seed(), 2 * (uint64_t)number + 1);
    m->type = types[number % (int)ARRAY_LEN(types)];
    sequence_wide = number % 5 == 3;
    snprintf(m->index, sizeof m->index, "exact");
    snprintf(m->base, sizeof m->base, "%s/q%d", test_folder(), number);
    shell("mkdir '%s'", m->base);
    for (int i = 0; i < steps; i++) {
        const struct operation *op = i == 0 && number % 2 ? &operations[11] : pick_operation(m, &r);
        readers_step(m, &r);
        trace_add(number, i, op->name, m);
        step(m, op, &r, faults);
    }
    readers_end(m);
    shell("rm -rf '%s'", m->base);
    munmap(m, sizeof *m);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    if (access("/dev/shm", W_OK) == 0) setenv("DRT_TEST_TMP", "/dev/shm", 1); /* without syncs of a disk */
    const int sequences = argc > 2 ? atoi(argv[2]) : 5, steps = argc > 3 ? atoi(argv[3]) : 24,
              faults = argc > 4 ? atoi(argv[4]) : 30;
    keeps = argc > 1;
    test_folder();
    atexit(trace_print);
    for (int i = 0; i < sequences; i++)
        run_sequence(i, steps, faults);
    done = true;
    printf("%d sequences of %d steps; %ld faults: %ld times the old contents, %ld times the new ones\n", sequences,
           steps, faults_tried, faults_old, faults_new);
    return test_done();
}
