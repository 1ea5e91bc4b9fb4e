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
