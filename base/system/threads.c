/* threads.c -- idle workers wait on a condition variable. A loop distributes ranges by an atomic counter.
 *
 * After a loop a worker spins for a short time before it waits. Decoding starts hundreds of short loops for each token,
 * and waking a worker for each would take longer than the work. The time covers what a search computes on one thread
 * between two loops. It is not a number of pauses, because a pause takes 15 to 50 ns, depending on the processor.
 *
 * A loop waits only for the workers that have entered it. A worker that the system runs later finds the loop closed. So
 * a loop does not wait for idle workers if there are more threads than processors, or other programs. */
#include "base/system/threads.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/system/processors.h"
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { SPINS = 4000, SPINS_A_CLOCK = 64, STACK_BYTES = 2 << 20, LINE = 64 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SPIN_SECONDS 20e-6 /* work is several times as slow, and tests run beside each other */
#else
#define SPIN_SECONDS 200e-6
#endif

struct worker {
    struct threads *pool;
    int index;
    pthread_t thread;
};

struct threads {
    int count;
    pthread_mutex_t lock;
    pthread_cond_t start;
    atomic_bool stop;
    int spins;           /* of the caller at the end of a loop; 0: workers do not spin either */
    atomic_bool busy;    /* whether a loop is running; nested loops run on the calling thread */
    atomic_int sleeping; /* workers that wait for `start`, or are about to */
    /* A cache line that the loop's caller writes and the workers read: the number of the loop, and whether it may be
     * entered. body, context, n and grain are not written while it is open or a worker is inside. */
    _Alignas(LINE) atomic_ulong generation;
    atomic_bool open;
    threads_body *body;
    void *context;
    int64_t n, grain;
    /* A line that all write. inside: workers in the loop. */
    _Alignas(LINE) atomic_llong next;
    atomic_int inside;
    _Alignas(LINE) struct worker workers[THREADS_MAX];
};

static inline void threads_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_ranges(struct threads *p, int worker) {
    for (;;) {
        int64_t begin = atomic_fetch_add(&p->next, p->grain);
        if (begin >= p->n) return;
        int64_t end = begin + p->grain < p->n ? begin + p->grain : p->n;
        p->body(p->context, begin, end, worker);
    }
}

/* Waits for another loop than `seen`. */
static void spin_for_loop(const struct threads *p, unsigned long seen) {
    const double end = clock_seconds() + SPIN_SECONDS;
    do {
        for (int i = 0; i < SPINS_A_CLOCK; i++) {
            if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen) return;
            threads_relax();
        }
    } while (clock_seconds() < end);
}

static void *threads_work(void *argument) {
    struct worker *w = argument;
    struct threads *p = w->pool;
    unsigned long seen = 0;
    for (;;) {
        if (p->spins > 0) spin_for_loop(p, seen);
        if (atomic_load_explicit(&p->generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleeping, 1); /* before `generation` is read: see raise_generation */
            while (atomic_load(&p->generation) == seen)
                pthread_cond_wait(&p->start, &p->lock);
            atomic_fetch_sub(&p->sleeping, 1);
            pthread_mutex_unlock(&p->lock);
        }
        seen = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (atomic_load(&p->stop)) return NULL;
        /* this comes before reading `open`: either this worker sees the loop closed, or the loop's caller
         * sees this worker */
        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->open)) take_ranges(p, w->index);
        atomic_fetch_sub_explicit(&p->inside, 1, memory_order_release);
    }
}

bool threads_start(pthread_t *out, void *(*body)(void *context), void *context) {
    pthread_attr_t how;
    if (pthread_attr_init(&how) != 0) return false;
    bool started = pthread_attr_setstacksize(&how, STACK_BYTES) == 0 && pthread_create(out, &how, body, context) == 0;
    pthread_attr_destroy(&how);
    return started;
}

enum status threads_create(struct threads **out, int count) {
    int processors = processors_available();
    if (count <= 0) count = processors;
    if (count > THREADS_MAX) count = THREADS_MAX;
    struct threads *p;
    TRY(memory_allocate_aligned(&p, 1));
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    p->count = 1;
    /* with more threads than processors, a spinning worker would use the processor that a working one needs */
    p->spins = count <= processors ? SPINS : 0;
    for (int i = 1; i < count; i++) {
        p->workers[i] = (struct worker){.pool = p, .index = i};
        if (!threads_start(&p->workers[i].thread, threads_work, &p->workers[i])) {
            threads_free(p);
            return fail(STATUS_NO_MEMORY, "could not start thread %d of %d: use fewer with --threads", i + 1, count);
        }
        p->count++;
    }
    *out = p;
    return STATUS_OK;
}

/* A worker that is not counted as sleeping yet reads the new generation before it waits. One that is counted holds the
 * lock until it waits. */
static void raise_generation(struct threads *p) {
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->sleeping) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

void threads_free(struct threads *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    raise_generation(p);
    for (int i = 1; i < p->count; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    memory_free(p);
}

int threads_count(const struct threads *pool) {
    return pool ? pool->count : 1;
}

void threads_for(struct threads *p, int64_t n, int64_t grain, threads_body *body, void *context) {
    assert(grain > 0);
    if (n <= 0) return;
    bool free_pool = false;
    if (!p || p->count == 1 || n <= grain || !atomic_compare_exchange_strong(&p->busy, &free_pool, true)) {
        body(context, 0, n, 0);
        return;
    }
    p->body = body;
    p->context = context;
    p->n = n;
    p->grain = grain;
    atomic_store(&p->next, 0);
    atomic_store(&p->open, true);
    raise_generation(p);
    take_ranges(p, 0);
    atomic_store(&p->open, false);
    for (int i = 0; atomic_load(&p->inside) != 0; i++) {
        if (i < p->spins)
            threads_relax();
        else
            sched_yield();
    }
    atomic_store(&p->busy, false);
}

void threads_failed(struct threads_failure *f, enum status s) {
    if (s == STATUS_OK) return;
    pthread_mutex_lock(&f->lock);
    if (f->status == STATUS_OK) {
        snprintf(f->message, sizeof f->message, "%s", status_message());
        f->status = s;
    }
    pthread_mutex_unlock(&f->lock);
}

bool threads_any_failed(struct threads_failure *f) {
    pthread_mutex_lock(&f->lock);
    const bool failed = f->status != STATUS_OK;
    pthread_mutex_unlock(&f->lock);
    return failed;
}

enum status threads_failure(const struct threads_failure *f) {
    return f->status == STATUS_OK ? STATUS_OK : fail(f->status, "%s", f->message);
}
