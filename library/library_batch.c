/* library_batch.c -- several sessions in one pass over the weights. */
#include "base/clock.h"
#include "library/library_session_internal.h"
#include <stdlib.h>

enum { PREPARE_MAX = 256 };

static int library_compare_locks(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (pthread_mutex_t *const *)a, y = (uintptr_t) * (pthread_mutex_t *const *)b;
    return (x > y) - (x < y);
}
/* Locks are taken in the order of their addresses, so that two calls that need some of the same locks never wait
 * for each other. */
static int library_lock_all(pthread_mutex_t **locks, int n) {
    int kept = 0;
    qsort(locks, (size_t)n, sizeof *locks, library_compare_locks);
    for (int i = 0; i < n; i++)
        if (kept == 0 || locks[i] != locks[kept - 1]) locks[kept++] = locks[i];
    for (int i = 0; i < kept; i++)
        library_lock(locks[i]);
    return kept;
}
static void library_unlock_all(pthread_mutex_t **locks, int n) {
    for (int i = 0; i < n; i++)
        library_unlock(locks[i]);
}

/* Holds the stores' locks, too: on a GPU a chunk's end starts a search. */
static enum status library_prepare(struct drt_session *const *sessions, int n, int *computed) {
    struct generation *generations[PREPARE_MAX];
    pthread_mutex_t *own[PREPARE_MAX], *stores[PREPARE_MAX];
    int n_stores = 0;
    for (int i = 0; i < n; i++) {
        generations[i] = sessions[i]->generation;
        own[i] = &sessions[i]->lock;
        if (sessions[i]->store) stores[n_stores++] = &sessions[i]->store->lock;
    }
    const int n_own = library_lock_all(own, n);
    library_lock(&sessions[0]->model->lock);
    n_stores = library_lock_all(stores, n_stores);
    const double start = clock_seconds();
    enum status status = generation_batch(generations, n, computed);
    const double each = (clock_seconds() - start) / n;
    for (int i = 0; i < n; i++)
        sessions[i]->seconds += each;
    library_unlock_all(stores, n_stores);
    library_unlock(&sessions[0]->model->lock);
    library_unlock_all(own, n_own);
    return status;
}

enum drt_status drt_session_prepare(struct drt_session *const *sessions, int n, int *computed) {
    int done = 0;
    LIBRARY_CHECK(n >= 0 && n <= PREPARE_MAX, "%s: n is %d, and must be 0 to %d", __func__, n, (int)PREPARE_MAX);
    LIBRARY_CHECK(sessions || n == 0, "%s: sessions is NULL", __func__);
    for (int i = 0; i < n; i++) {
        LIBRARY_CHECK(sessions[i], "%s: sessions[%d] is NULL", __func__, i);
        LIBRARY_CHECK(sessions[i]->model == sessions[0]->model, "%s: sessions[%d] has another model than sessions[0]",
                      __func__, i);
        for (int j = 0; j < i; j++)
            LIBRARY_CHECK(sessions[i] != sessions[j], "%s: sessions[%d] is there twice", __func__, i);
    }
    if (n > 0) LIBRARY_TRY(library_prepare(sessions, n, &done));
    if (computed) *computed = done;
    return DRT_OK;
}

static enum status library_feed_later(struct drt_session *s, const int32_t *ids, int64_t n) {
    library_session_lock(s);
    const double start = clock_seconds();
    enum status status = generation_feed_later(s->generation, ids, n);
    s->seconds += clock_seconds() - start;
    library_session_unlock(s);
    return status;
}

enum drt_status drt_session_feed_later(struct drt_session *session, const int32_t *ids, int64_t n, int64_t *left) {
    LIBRARY_NEEDS(session);
    LIBRARY_CHECK(n >= 0, "%s: n is %lld", __func__, (long long)n);
    LIBRARY_CHECK(ids || n == 0, "%s: ids is NULL", __func__);
    if (n > 0) LIBRARY_TRY(library_feed_later(session, ids, n));
    library_lock(&session->lock);
    if (left) *left = generation_later(session->generation);
    library_unlock(&session->lock);
    return DRT_OK;
}
