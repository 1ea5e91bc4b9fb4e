/* library_session_internal.h -- the struct of a session, for library_session.c and library_batch.c. */
#pragma once
#include "library/library_internal.h"
#include "session/memory_search.h"

enum { TOP_MAX = 64 };

struct drt_session {
    pthread_mutex_t lock; /* locked before the model's lock, which is locked before a store's */
    struct drt_model *model;
    struct drt_store *store;       /* NULL: none */
    struct drt_searcher *searcher; /* the caller's; NULL: none */
    struct engine engine;          /* that of the model, with the store */
    struct generation *generation;
    struct library_provenance *provenance; /* NULL: no retrieval */
    struct memory_config memory_config;
    struct memory_search *memory_search; /* NULL: no token memory of the corpus */
    struct drt_progress caller;
    struct progress progress;
    bool memory, self, corpus, no_logprob, ready; /* ready false: drt_session_renew failed */
    int continuation, overlap, query_tokens;
    double seconds;
    struct drt_alternative alternatives[TOP_MAX];
    struct drt_neighbour contributors[MEMORY_CONTRIBUTORS_MAX]; /* of the last token: what the token memory gave it */
};

static inline void library_session_lock(struct drt_session *s) {
    library_lock(&s->lock);
    library_lock(&s->model->lock);
    if (s->store) library_lock(&s->store->lock);
}

static inline void library_session_unlock(struct drt_session *s) {
    if (s->store) library_unlock(&s->store->lock);
    library_unlock(&s->model->lock);
    library_unlock(&s->lock);
}
