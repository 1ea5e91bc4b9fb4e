/* test_library_rewind.c -- drt.h: drt_session_rewind gives the bits of a session that is reset and fed again, with
 * every kind of token memory, a penalty, stop strings, and where prompts end anywhere in a chunk; and says where it
 * cannot. */
#include "tests/unit/library/library_memory_fixture.h"

enum { TOKENS = 90, MORE_MAX = 4000 };

static struct library_world w;

struct kept {
    int n;
    int32_t ids[MORE_MAX];
    float logprob[MORE_MAX], share[MORE_MAX];
    int neighbours[MORE_MAX];
    char text[1 << 16];
    size_t bytes;
    enum drt_end end;
};

static void generate(struct kept *k, struct drt_session *s) {
    struct drt_token t = {.size = sizeof t};
    memset(k, 0, sizeof *k);
    do {
        CALL_OK(drt_session_next(s, &t));
        CHECK(k->n < MORE_MAX && k->bytes + t.bytes < sizeof k->text);
        k->ids[k->n] = t.id, k->logprob[k->n] = t.logprob, k->share[k->n] = t.memory_share;
        k->neighbours[k->n++] = t.n_neighbours;
        if (t.bytes) memcpy(k->text + k->bytes, t.text, t.bytes);
        k->bytes += t.bytes;
        k->end = t.end;
    } while (t.end == DRT_END_NONE);
}

static struct drt_session_config config_of(enum drt_memory memory) {
    return (struct drt_session_config){.size = sizeof(struct drt_session_config),
                                       .memory = memory,
                                       .memory_config = memory ? library_memory_file(&w) : NULL,
                                       .store = memory >= DRT_MEMORY_CORPUS ? w.store : NULL,
                                       .temperature = 1,
                                       .repeat_penalty = 1.3F,
                                       .repeat_last = 20,
                                       .seed = 1,
                                       .max_tokens = TOKENS,
                                       .ignore_eos = true,
                                       .rewind = true};
}

static void feed(struct drt_session *s, const int32_t *ids, int64_t n, int64_t part) {
    for (int64_t at = 0; at < n; at += part)
        CALL_OK(drt_session_feed_ids(s, ids + at, n - at < part ? n - at : part, NULL, 0));
}

/* Three generations of one prompt, which is fed in parts: by rewinding, and by a reset. */
static void rewinds(const int32_t *ids, int64_t n, int64_t part, enum drt_memory memory) {
    static struct kept a, b;
    const struct drt_session_config config = config_of(memory);
    struct drt_session *one = NULL, *other = NULL;
    CALL_OK(drt_session_open(&one, w.model, &config));
    CALL_OK(drt_session_open(&other, w.model, &config));
    feed(one, ids, n, part);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        if (seed > 1) CALL_OK(drt_session_rewind(one, seed));
        CHECK_EQ(drt_session_tokens(one), n);
        CALL_OK(drt_session_reset(other, seed));
        feed(other, ids, n, part);
        generate(&a, one);
        generate(&b, other);
        CHECK(a.n == TOKENS && memcmp(a.ids, b.ids, sizeof a.ids) == 0);
        CHECK(memcmp(a.logprob, b.logprob, sizeof a.logprob) == 0 && memcmp(a.share, b.share, sizeof a.share) == 0);
        CHECK(memcmp(a.neighbours, b.neighbours, sizeof a.neighbours) == 0);
        CHECK(a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0 && a.end == b.end);
    }
    drt_session_close(one);
    drt_session_close(other);
}

/* A generation that was left in its middle, and text that is fed after a rewind. */
static void continues(const int32_t *ids, int64_t n, enum drt_memory memory) {
    static struct kept a, b;
    const struct drt_session_config config = config_of(memory);
    struct drt_session *s = NULL;
    struct drt_token t = {.size = sizeof t};
    CALL_OK(drt_session_open(&s, w.model, &config));
    feed(s, ids, n, n);
    for (int i = 0; i < 7; i++)
        CALL_OK(drt_session_next(s, &t));
    CALL_OK(drt_session_rewind(s, 5));
    feed(s, ids, 40, 40);
    generate(&a, s);
    CALL_OK(drt_session_reset(s, 5));
    feed(s, ids, n, n);
    feed(s, ids, 40, 40);
    generate(&b, s);
    CHECK(memcmp(a.ids, b.ids, sizeof a.ids) == 0 && memcmp(a.logprob, b.logprob, sizeof a.logprob) == 0);
    CALL_OK(drt_session_rewind(s, 5)); /* to the end of the second feed */
    generate(&a, s);
    CHECK(memcmp(a.ids, b.ids, sizeof a.ids) == 0 && memcmp(a.logprob, b.logprob, sizeof a.logprob) == 0);
    drt_session_close(s);
}

static void feed_scored(float *logprob, struct drt_session *s, const int32_t *ids, int64_t n) {
    struct drt_scores *scores = NULL;
    CALL_OK(drt_session_feed_ids(s, ids, n, &scores, 0));
    if (logprob) memcpy(logprob, scores->logprob, (size_t)n * sizeof *logprob);
    drt_free(scores);
}

/* A mark keeps what the last search found, and whether another one is due: of an id that the caller picked none is,
 * after scores of a prompt one before a generation, and none before further scores. picked: of the ids before the last
 * ones. */
static void scores(const int32_t *ids, int64_t n, int64_t last, bool picked, enum drt_memory memory) {
    static float next[271];
    static struct kept a, b;
    float after[2][50];
    const struct drt_session_config config = config_of(memory);
    struct drt_session *s = NULL;
    CALL_OK(drt_session_open(&s, w.model, &config));
    for (int rewound = 0; rewound < 2; rewound++) {
        CALL_OK(drt_session_reset(s, 3));
        feed(s, ids, n - last, n);
        if (picked) CALL_OK(drt_session_logprobs(s, next));
        feed_scored(NULL, s, ids + n - last, last);
        if (rewound) {
            generate(&a, s);
            CALL_OK(drt_session_rewind(s, 3));
        }
        feed_scored(after[rewound], s, ids + n, 50);
        CALL_OK(drt_session_reset(s, 3));
        feed(s, ids, n - last, n);
        if (picked) CALL_OK(drt_session_logprobs(s, next));
        feed_scored(NULL, s, ids + n - last, last);
        generate(rewound ? &b : &a, s);
        if (!rewound) continue;
        CALL_OK(drt_session_rewind(s, 3));
        generate(&a, s);
    }
    CHECK(memcmp(after[0], after[1], sizeof *after) == 0);
    CHECK(memcmp(a.ids, b.ids, sizeof a.ids) == 0 && memcmp(a.logprob, b.logprob, sizeof a.logprob) == 0);
    CHECK(memcmp(a.share, b.share, sizeof a.share) == 0);
    drt_session_close(s);
}

/* The text continues as before where it cannot go back. */
static void refuses(const int32_t *ids, int64_t n) {
    static struct kept a, b;
    struct drt_token t = {.size = sizeof t};
    for (int kind = 0; kind < 3; kind++) {
        struct drt_session_config config = config_of(DRT_MEMORY_NONE);
        struct drt_session *s = NULL;
        config.rewind = kind > 0, config.self = kind == 1;
        if (kind == 2) config.max_tokens = MORE_MAX - 1;
        CALL_OK(drt_session_open(&s, w.model, &config));
        CALL_FAILS(drt_session_rewind(s, 1), DRT_UNSUPPORTED, "cannot go back");
        feed(s, ids, n, n);
        if (kind < 2) {
            CALL_OK(drt_session_next(s, &t));
            CALL_FAILS(drt_session_rewind(s, 1), DRT_UNSUPPORTED, "cannot go back");
            CALL_OK(drt_session_next(s, &t));
        } else {
            generate(&a, s);
            CALL_FAILS(drt_session_rewind(s, 1), DRT_UNSUPPORTED, "cannot go back");
            CALL_OK(drt_session_reset(s, 1));
            feed(s, ids, n, n);
            generate(&b, s);
            CHECK(memcmp(a.ids, b.ids, sizeof a.ids) == 0);
        }
        CALL_OK(drt_session_reset(s, 1));
        CALL_FAILS(drt_session_rewind(s, 1), DRT_UNSUPPORTED, "cannot go back");
        drt_session_close(s);
    }
    CALL_FAILS(drt_session_rewind(NULL, 1), DRT_INVALID, "session is NULL");
}

/* Up to the greatest number of tokens after which the text can go back, the next generation is that of a new text. */
static void at_the_limit(const int32_t *ids, int64_t n, enum drt_memory memory) {
    static struct kept b;
    struct drt_session_config config = config_of(memory);
    struct drt_session *s = NULL;
    struct drt_token t = {.size = sizeof t};
    int done = 0, refused = 0;
    config.max_tokens = 30;
    CALL_OK(drt_session_open(&s, w.model, &config));
    feed(s, ids, n, n);
    generate(&b, s);
    drt_session_close(s);
    config.max_tokens = 0;
    CALL_OK(drt_session_open(&s, w.model, &config));
    feed(s, ids, n, n);
    for (int tokens = 40; tokens < MORE_MAX && refused == 0; tokens += tokens < 1000 ? 480 : 1) {
        for (int i = 0; i < tokens; i++)
            CALL_OK(drt_session_next(s, &t));
        const enum drt_status status = drt_session_rewind(s, 1);
        CHECK(status == DRT_OK || status == DRT_UNSUPPORTED);
        refused += status != DRT_OK;
        if (status != DRT_OK) break;
        for (int i = 0; i < 30; i++) {
            CALL_OK(drt_session_next(s, &t));
            CHECK(t.id == b.ids[i] && t.logprob == b.logprob[i] && t.memory_share == b.share[i]);
        }
        CALL_OK(drt_session_rewind(s, 1));
        done = tokens;
    }
    CHECK(refused == 1 && done >= 1000);
    drt_session_close(s);
}

int main(int argc, char **argv) {
    static char text[8192];
    int32_t *ids = NULL;
    size_t n = 0;
    test_start(argc, argv, 1);
    library_world_open(&w);
    library_text(text, 7);
    library_text(text + strlen(text), 100);
    CALL_OK(drt_tokenizer_encode(drt_model_tokenizer(w.model), &ids, &n, text, strlen(text), false));
    CHECK(n > 300);
    for (int memory = DRT_MEMORY_NONE; memory <= DRT_MEMORY_BOTH; memory++) {
        static const int64_t prompts[] = {1, 2, 62, 63, 64, 200, 263};
        for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
            rewinds(ids, prompts[i], prompts[i], (enum drt_memory)memory);
        rewinds(ids, 130, 43, (enum drt_memory)memory);
        rewinds(ids, 130, 129, (enum drt_memory)memory); /* the last part is one id */
        continues(ids, 200, (enum drt_memory)memory);
        for (int64_t last = 1; last <= 30; last += 29) {
            scores(ids, 63, last, false, (enum drt_memory)memory);
            scores(ids, 137, last, true, (enum drt_memory)memory);
        }
    }
    refuses(ids, 100);
    at_the_limit(ids, 150, DRT_MEMORY_NONE);
    at_the_limit(ids, 150, DRT_MEMORY_OWN);
    drt_free(ids);
    library_world_close(&w);
    return test_done();
}
