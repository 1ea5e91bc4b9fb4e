/* serve_sessions.c -- sessions that no completion uses, for the next ones: to renew a session is much faster than to
 * open one. On a CPU that is the time in which the system clears the memory of the keys and values, some 10 MB for a
 * short text of the bundled model. As many are kept as --sessions lets run. A completion with a token memory does not
 * use them, so a server of both kinds may hold twice as many. On a GPU they keep their caches of encoded chunks; on a
 * CPU these grow with the text, and the next request often needs another. */
#include "base/memory.h"
#include "tools/serve/serve.h"

enum status serve_sessions_create(struct serve_sessions *s, int64_t most, bool gpu) {
    *s = (struct serve_sessions){.caches = gpu};
    TRY(memory_allocate_zero(&s->idle, (size_t)most));
    s->most = most;
    return STATUS_OK;
}

void serve_sessions_free(struct serve_sessions *s) {
    for (int64_t i = 0; i < s->n; i++)
        drt_session_close(s->idle[i].session);
    memory_free(s->idle);
    *s = (struct serve_sessions){0};
}

/* The newest one of the same kind, whose retriever is kept; else the one that was used least recently. */
static struct drt_session *sessions_take(struct serve_sessions *s, int kind) {
    int64_t at = s->n - 1;
    while (at > 0 && s->idle[at].kind != kind)
        at--;
    struct drt_session *session = s->idle[at].session;
    s->n--;
    for (; at < s->n; at++)
        s->idle[at] = s->idle[at + 1];
    return session;
}

enum drt_status serve_session_open(struct drt_session **out, struct serve_sessions *s, struct drt_model *model,
                                   const struct drt_session_config *config, int kind) {
    if (s->n == 0 || config->memory != DRT_MEMORY_NONE) return drt_session_open(out, model, config);
    struct drt_session *session = sessions_take(s, kind);
    enum drt_status status = drt_session_renew(session, config);
    if (status == DRT_OK)
        *out = session;
    else
        serve_session_close(s, session, kind, false);
    return status;
}

void serve_session_close(struct serve_sessions *s, struct drt_session *session, int kind, bool memory) {
    if (!session) return;
    /* A token memory has much memory, which its next owner would not use. */
    bool keep = !memory && s->n < s->most;
    if (keep && !s->caches && kind != RETRIEVAL_NONE) {
        keep = drt_session_renew(session, NULL) == DRT_OK;
        kind = RETRIEVAL_NONE;
    }
    if (!keep)
        drt_session_close(session);
    else
        s->idle[s->n++] = (struct serve_idle_session){.session = session, .kind = kind};
}
