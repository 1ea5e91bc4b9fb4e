/* threads.h -- parallel loops over one fixed pool.
 *
 * A pool is created once and passed to the functions that compute. One thread at a time may start a loop on it. Loops
 * do not nest: a loop that is started in the body of a loop runs on the calling thread only. */
#pragma once
#include "base/status.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts a joinable thread. Its stack size does not depend on the shell's limit (ulimit -s), which may be too small. */
bool threads_start(pthread_t *out, void *(*body)(void *context), void *context);

struct threads;
enum { THREADS_MAX = 256 };              /* of a pool */

/* `count` <= 0: one thread for each processor that this process may use (base/system/processors.h). At most
 * THREADS_MAX. The calling thread is one of them. */
enum status threads_create(struct threads **out, int count);
void threads_free(struct threads *pool);                  /* NULL is fine */
int threads_count(const struct threads *pool);            /* NULL counts as 1 */

/* Calls body(context, begin, end, worker) over disjoint ranges that cover [0, n). Each is at least `grain` long, except
 * the last; worker is in [0, threads_count). Returns when all calls have returned. The ranges of a worker are not
 * fixed, so a body's result must not depend on them. pool NULL: one call on this thread. */
typedef void threads_body(void *context, int64_t begin, int64_t end, int worker);
void threads_for(struct threads *pool, int64_t n, int64_t grain, threads_body *body, void *context);

/* The first failure of several threads, e.g. of the calls of one loop. It begins as THREADS_FAILURE_NONE. Other threads
 * may call the first two functions at the same time. */
struct threads_failure {
    pthread_mutex_t lock; /* of the others */
    enum status status;
    char message[1024];
};
#define THREADS_FAILURE_NONE {.lock = PTHREAD_MUTEX_INITIALIZER, .status = STATUS_OK}
/* Keeps `s` and the calling thread's message, unless `s` is STATUS_OK or there is a failure already. */
void threads_failed(struct threads_failure *f, enum status s);
bool threads_any_failed(struct threads_failure *f);
/* Returns the failure, with its message as the calling thread's. After the other threads. */
enum status threads_failure(const struct threads_failure *f);
