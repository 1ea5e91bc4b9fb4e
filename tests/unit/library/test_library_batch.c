/* test_library_batch.c -- drt.h: sessions whose tokens are computed together give, bit for bit, what each gives alone:
 * ids, log-probabilities, texts, neighbours and ends, with and without retrieval, greedy and sampled, of any lengths,
 * also where several threads sample their tokens at the same time. */
#include "base/system/threads.h"
#include "tests/library_fixture.h"

enum { SESSIONS = 12, TOKENS = 150 };

static struct library_world w;

struct record {
    int n;
    int32_t id[TOKENS], neighbours[TOKENS];
    float logprob[TOKENS], weight[TOKENS];
    enum drt_end end;
    char text[8 * TOKENS];
    size_t bytes;
};

/* Sessions that have ended, which `begin` renews. */
static struct drt_session *idle[SESSIONS];
static int n_idle;

/* Session i: its sources, its sampling, its prompt, its length. */
static struct drt_session *begin(int i) {
    const struct drt_session_config config = {.size = sizeof config,
                                              .self = i & 1,
                                              .corpus = i & 2,
                                              .store = w.store,
                                              .temperature = i % 3 == 0 ? 0 : 1,
                                              .top_k = i % 3 == 1 ? 20 : 0,
                                              .repeat_penalty = i % 4 == 3 ? 1.2F : 0,
                                              .seed = (uint64_t)i + 5,
                                              .max_tokens = i == 0 ? 1 : 10 + 12 * i,
                                              .stops = (const char *const[]){"q"},
                                              .n_stops = i % 5 == 4,
                                              .ignore_eos = i % 2 == 0,
                                              .top = i % 4};
    char text[4096];
    struct drt_session *s = n_idle > 0 ? idle[--n_idle] : NULL;
    library_text(text, 60 + i);
    if (s)
        CALL_OK(drt_session_renew(s, &config));
    else
        CALL_OK(drt_session_open(&s, w.model, &config));
    CALL_OK(drt_session_feed(s, text, 20 + 40 * (size_t)i, NULL, 0));
    return s;
}

/* Generates one token; false: it was the last one. */
static bool next(struct drt_session *s, struct record *r) {
    struct drt_token t = {.size = sizeof t};
    CALL_OK(drt_session_next(s, &t));
    CHECK(r->n < TOKENS && r->bytes + t.bytes < sizeof r->text);
    r->id[r->n] = t.id;
    r->logprob[r->n] = t.logprob;
    r->neighbours[r->n] = t.n_neighbours;
    for (int k = 0; k < t.n_neighbours; k++)
        r->weight[r->n] += t.neighbours[k].weight * (float)(t.neighbours[k].chunk + 1);
    r->n++;
    if (t.bytes) memcpy(r->text + r->bytes, t.text, t.bytes);
    r->bytes += t.bytes;
    r->end = t.end;
    return t.end == DRT_END_NONE;
}

static struct record alone[SESSIONS], together[SESSIONS];

struct round {
    struct drt_session *all[SESSIONS];
    bool done[SESSIONS];
};

static void round_next(void *context, int64_t from, int64_t to, int worker) {
    struct round *r = context;
    (void)worker;
    for (int64_t i = from; i < to; i++)
        if (r->all[i] && !r->done[i]) r->done[i] = !next(r->all[i], &together[i]);
}

/* Each round has the sessions that have not ended; session i joins in round 3 * i. The threads of the pool generate
 * their tokens at the same time. */
static void rounds(struct threads *pool) {
    struct round r = {0};
    struct drt_session *now[SESSIONS];
    int ended = 0;
    int64_t computed = 0, tokens = 0;
    memset(together, 0, sizeof together);
    for (int round = 0; ended < SESSIONS; round++) {
        bool before[SESSIONS];
        int n = 0, c = -1;
        if (round % 3 == 0 && round / 3 < SESSIONS) r.all[round / 3] = begin(round / 3);
        for (int i = 0; i < SESSIONS; i++)
            if (r.all[i] && !r.done[i]) now[n++] = r.all[i];
        CALL_OK(drt_session_prepare(now, n, &c));
        CHECK(c >= 0 && c <= n);
        computed += c;
        if (round % 7 == 0) { /* a second call has nothing to compute */
            CALL_OK(drt_session_prepare(now, n, &c));
            CHECK_EQ(c, 0);
        }
        tokens += n;
        memcpy(before, r.done, sizeof before);
        threads_for(pool, SESSIONS, 1, round_next, &r);
        for (int i = 0; i < SESSIONS; i++) {
            if (!r.done[i] || before[i]) continue;
            ended++;
            CALL_OK(drt_session_prepare(&r.all[i], 1, &c)); /* ended: skipped */
            CHECK_EQ(c, 0);
            idle[n_idle++] = r.all[i];
        }
    }
    CHECK(computed > tokens * 8 / 10);
}

/* One session for all texts, in any order, also after a renewal that failed and one without a log-probability. */
static void renewed(void) {
    struct drt_session *s = idle[--n_idle];
    struct drt_token t = {.size = sizeof t};
    static struct record again;
    for (int k = 0; k < 2 * SESSIONS; k++) {
        const int i = k * 7 % SESSIONS;
        struct drt_session_config wrong = {.size = sizeof wrong, .corpus = true};
        if (k % 3 == 0) {
            CALL_FAILS(drt_session_renew(s, &wrong), DRT_INVALID, "needs a store");
            CALL_FAILS(drt_session_reset(s, 1), DRT_INVALID, "drt_session_renew failed");
            CALL_FAILS(drt_session_next(s, &t), DRT_INVALID, "reset");
            CALL_FAILS(drt_session_feed(s, "a", 1, NULL, 0), DRT_INVALID, "reset");
            struct drt_session_info info = {.size = sizeof info};
            CALL_OK(drt_session_info(s, &info));
            CALL_OK(drt_session_prepare(&s, 1, NULL));
            wrong = (struct drt_session_config){.size = sizeof wrong, .temperature = -1};
            CALL_FAILS(drt_session_renew(s, &wrong), DRT_INVALID, "temperature");
        }
        idle[n_idle++] = s;
        CHECK(begin(i) == s);
        memset(&again, 0, sizeof again);
        while (next(s, &again))
            continue;
        CHECK(memcmp(&alone[i], &again, sizeof again) == 0);
    }
    struct drt_session_config config = {.size = sizeof config, .no_logprob = true, .top = 1};
    CALL_FAILS(drt_session_renew(s, &config), DRT_INVALID, "no_logprob");
    config.top = 0;
    CALL_OK(drt_session_renew(s, &config));
    CALL_OK(drt_session_feed(s, "the river", 9, NULL, 0));
    CALL_OK(drt_session_next(s, &t));
    CHECK(isnan(t.logprob) && t.n_alternatives == 0);
    CALL_OK(drt_session_renew(s, NULL));
    CALL_FAILS(drt_session_renew(NULL, NULL), DRT_INVALID, "session is NULL");
    drt_session_close(s);
}

/* On a CPU the ids are fed at once. */
static void fed_later(void) {
    struct drt_session *s = NULL;
    int64_t left = -1;
    CALL_OK(drt_session_open(&s, w.model, NULL));
    CALL_OK(drt_session_feed_later(s, (const int32_t[]){5, 6, 7}, 3, &left));
    CHECK(left == 0 && drt_session_tokens(s) == 3);
    CALL_OK(drt_session_feed_later(s, NULL, 0, NULL));
    CALL_FAILS(drt_session_feed_later(s, NULL, 1, &left), DRT_INVALID, "ids is NULL");
    CALL_FAILS(drt_session_feed_later(s, (const int32_t[]){5}, -1, &left), DRT_INVALID, "n is -1");
    CALL_FAILS(drt_session_feed_later(s, (const int32_t[]){100000}, 1, &left), DRT_INVALID, "vocab_size");
    CALL_FAILS(drt_session_feed_later(NULL, NULL, 0, &left), DRT_INVALID, "session is NULL");
    drt_session_close(s);
}

static void misused(void) {
    struct drt_session *s[2] = {begin(1), begin(2)}, *other = NULL;
    struct drt_model *shared = NULL;
    struct drt_token t = {.size = sizeof t};
    int c = -1;
    CALL_OK(drt_session_prepare(NULL, 0, &c));
    CHECK_EQ(c, 0);
    CALL_OK(drt_session_prepare(s, 2, NULL)); /* no token was generated yet */
    CALL_FAILS(drt_session_prepare(NULL, 2, &c), DRT_INVALID, "sessions is NULL");
    CALL_FAILS(drt_session_prepare(s, -1, &c), DRT_INVALID, "n is -1");
    CALL_FAILS(drt_session_prepare(s, 1000, &c), DRT_INVALID, "n is 1000");
    CALL_FAILS(drt_session_prepare((struct drt_session *[]){s[0], NULL}, 2, &c), DRT_INVALID, "sessions[1] is NULL");
    CALL_FAILS(drt_session_prepare((struct drt_session *[]){s[0], s[1], s[0]}, 3, &c), DRT_INVALID, "twice");
    CALL_OK(drt_model_share(&shared, w.model, NULL));
    CALL_OK(drt_session_open(&other, shared, NULL));
    CALL_FAILS(drt_session_prepare((struct drt_session *[]){s[0], other}, 2, &c), DRT_INVALID, "another model");
    /* A session is prepared, then fed or reset: the pending id is in the text, as without the preparation. */
    CALL_OK(drt_session_next(s[0], &t));
    CALL_OK(drt_session_prepare(s, 1, &c));
    CHECK_EQ(c, 1);
    const int64_t tokens = drt_session_tokens(s[0]);
    CALL_OK(drt_session_feed_ids(s[0], (const int32_t[]){5}, 1, NULL, 0));
    CHECK_EQ(drt_session_tokens(s[0]), tokens + 1);
    CALL_OK(drt_session_reset(s[0], 1));
    CALL_OK(drt_session_prepare(s, 2, &c));
    drt_session_close(other);
    drt_session_close(s[0]);
    drt_session_close(s[1]);
    drt_model_close(shared);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    library_world_open(&w);
    for (int i = 0; i < SESSIONS; i++) {
        struct drt_session *s = begin(i);
        while (next(s, &alone[i]))
            continue;
        drt_session_close(s);
    }
    struct threads *pool = NULL;
    CHECK_OK(threads_create(&pool, 4));
    for (int threads = 0; threads < 2; threads++) {
        rounds(threads ? pool : NULL);
        for (int i = 0; i < SESSIONS; i++)
            CHECK(memcmp(&alone[i], &together[i], sizeof alone[i]) == 0);
    }
    threads_free(pool);
    renewed();
    while (n_idle > 0)
        drt_session_close(idle[--n_idle]);
    misused();
    fed_later();
    library_world_close(&w);
    return test_done();
}
