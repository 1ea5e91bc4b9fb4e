/* serve_warm.c -- before the first request to a GPU: sessions are opened and generate some tokens; requests then use
 * them. So the driver has loaded the kernels, passes of each size are recorded, and sessions have their memory: each of
 * these takes the driver milliseconds. A failure is left to the requests, which report it. */
#include "tools/serve/serve.h"

#include <string.h>

enum { WARM_SESSIONS = 64, WARM_PROMPT = 252, WARM_ROUNDS = 5 };
/* Ids of the prompts: products of other sizes are other kernels. */
static const int warm_prompts[] = {80, 1,  2,  4,  8,  12,  16,  20,  24,  32,
                                   40, 48, 56, 64, 96, 128, 160, 192, 224, WARM_PROMPT};

static bool warm_own_past(const struct serve_model *m) {
    return strcmp(m->options->retrieval, "self") == 0 || strcmp(m->options->retrieval, "both") == 0;
}

static bool warm_open(struct drt_session **out, const struct serve_model *m, int number) {
    const struct drt_session_config config = {.size = sizeof config,
                                              .self = warm_own_past(m),
                                              .temperature = 0.8F,
                                              .top_p = 0.95F,
                                              .ignore_eos = true,
                                              .no_logprob = true};
    static const int32_t ids[WARM_PROMPT];
    struct drt_token token = {.size = sizeof token};
    if (drt_session_open(out, m->model, &config) != DRT_OK) return false;
    const int n = warm_prompts[(size_t)number % ARRAY_LEN(warm_prompts)];
    return drt_session_feed_ids(*out, ids, n, NULL, 0) == DRT_OK && drt_session_next(*out, &token) == DRT_OK;
}

/* together: in one pass */
static bool warm_rounds(struct drt_session *const *sessions, int n, bool together) {
    struct drt_token token = {.size = sizeof token};
    for (int round = 0; round < WARM_ROUNDS; round++) {
        int computed;
        if (together && drt_session_prepare(sessions, n, &computed) != DRT_OK) return false;
        for (int i = 0; i < n; i++)
            if (drt_session_next(sessions[i], &token) != DRT_OK) return false;
    }
    return true;
}

void serve_warm(struct serve *serve) {
    const struct serve_model *m = &serve->model;
    struct drt_session *sessions[WARM_SESSIONS] = {NULL};
    const int n = m->options->sessions < WARM_SESSIONS ? (int)m->options->sessions : WARM_SESSIONS;
    bool good = serve_model_on_gpu(m);
    if (!good) return;
    for (int i = 0; i < n && good; i++)
        good = warm_open(&sessions[i], m, i);
    good = good && warm_rounds(sessions, 1, false);
    for (int size = 8; good && size / 2 < n && size <= WARM_SESSIONS; size *= 2)
        good = warm_rounds(sessions, size < n ? size : n, true);
    for (int i = 0; i < n; i++)
        serve_session_close(&serve->sessions, sessions[i], warm_own_past(m) ? RETRIEVAL_OWN_PAST : RETRIEVAL_NONE,
                            false);
}
