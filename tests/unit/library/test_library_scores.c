/* test_library_scores.c -- drt.h: a memory of the corpus gives an id the same log-probability when it is generated and
 * when it is scored after the same prompt, in one call or in parts; and scores of a prompt do not change what is
 * generated after it. */
#include "tests/unit/library/library_memory_fixture.h"

/* A memory searches every 16 ids, so that no search from the first id on is at the end of the prompt. */
enum { VOCAB = 271, PROMPT = 263, TOKENS = 50, LENGTH_MAX = 4096 };

static struct library_world w;

/* A prompt and what is generated after it. */
struct text {
    int32_t ids[LENGTH_MAX];
    int64_t prompt, n; /* n: with what is generated */
    float logprob[LENGTH_MAX], share[LENGTH_MAX];
};

static struct drt_session_config config_of(enum drt_memory memory, int64_t skip) {
    return (struct drt_session_config){.size = sizeof(struct drt_session_config),
                                       .memory = memory,
                                       .memory_config = library_memory_file(&w),
                                       .store = w.store,
                                       .temperature = 1,
                                       .seed = 5,
                                       .max_tokens = TOKENS,
                                       .ignore_eos = true,
                                       .skip = skip};
}

static struct drt_session *open_session(enum drt_memory memory, int64_t skip) {
    const struct drt_session_config config = config_of(memory, skip);
    struct drt_session *s = NULL;
    CALL_OK(drt_session_open(&s, w.model, &config));
    return s;
}

static void generate(struct text *t, struct drt_session *s) {
    struct drt_token token = {.size = sizeof token};
    t->n = t->prompt;
    do {
        CALL_OK(drt_session_next(s, &token));
        CHECK_EQ(token.position, t->n);
        t->ids[t->n] = token.id, t->logprob[t->n] = token.logprob, t->share[t->n++] = token.memory_share;
    } while (token.end == DRT_END_NONE);
    CHECK_EQ(t->n, t->prompt + TOKENS);
}

static void make_text(struct text *t, enum drt_memory memory) {
    static char text[8192];
    int32_t *ids = NULL;
    size_t n = 0;
    library_text(text, 7);
    library_text(text + strlen(text), 100);
    CALL_OK(drt_tokenizer_encode(drt_model_tokenizer(w.model), &ids, &n, text, strlen(text), false));
    CHECK(n > PROMPT && n + TOKENS < LENGTH_MAX);
    t->prompt = PROMPT;
    memcpy(t->ids, ids, (size_t)t->prompt * sizeof *ids);
    drt_free(ids);
    struct drt_session *s = open_session(memory, 0);
    CALL_OK(drt_session_feed_ids(s, t->ids, t->prompt, NULL, 0));
    generate(t, s);
    drt_session_close(s);
}

/* Scores of ids at - n .. at - 1, of a text whose first `skip` ids are a prompt. */
static void check_scores(const struct text *t, const struct drt_scores *x, int64_t at, int64_t skip, float tolerance) {
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t p = at - x->n + i;
        CHECK(isnan(x->logprob[i]) == (p < skip || p == 0));
        if (isnan(x->logprob[i])) CHECK(x->alternatives[i * x->top].id == -1 && x->memory_share[i] == 0);
        if (p < t->prompt) continue;
        CHECK(fabsf(x->logprob[i] - t->logprob[p]) <= tolerance);
        CHECK(fabsf(x->memory_share[i] - t->share[p]) <= tolerance);
    }
}

/* The prompt is skipped: in one call, and in calls of `part` ids. */
static void scores_after_a_prompt(const struct text *t, enum drt_memory memory) {
    const struct drt_session_config config = config_of(memory, t->prompt);
    struct drt_scores *scores = NULL;
    CALL_OK(drt_score_ids(w.model, &config, t->ids, t->n, 1, &scores));
    check_scores(t, scores, t->n, t->prompt, 0);
    drt_free(scores);
    for (int64_t part = 7; part < t->n; part = part * 3 + 2) {
        struct drt_session *s = open_session(memory, t->prompt);
        for (int64_t at = 0, n; at < t->n; at += n) {
            n = t->n - at < part ? t->n - at : part;
            CALL_OK(drt_session_feed_ids(s, t->ids + at, n, &scores, 1));
            check_scores(t, scores, at + n, t->prompt, 2e-4F);
            drt_free(scores);
        }
        drt_session_close(s);
    }
}

/* The prompt is fed without scores, in calls of 50 ids, and the rest with scores. */
static void scores_after_a_feed(const struct text *t, enum drt_memory memory) {
    struct drt_scores *scores = NULL;
    struct drt_session *s = open_session(memory, 0);
    for (int64_t at = 0; at < t->prompt; at += 50)
        CALL_OK(drt_session_feed_ids(s, t->ids + at, t->prompt - at < 50 ? t->prompt - at : 50, NULL, 0));
    CALL_OK(drt_session_feed_ids(s, t->ids + t->prompt, t->n - t->prompt, &scores, 1));
    check_scores(t, scores, t->n, 0, 2e-4F);
    drt_free(scores);
    drt_session_close(s);
}

/* Without a prompt the searches begin at the first id: in one call and in parts. Then a text is generated as after a
 * prompt that was not scored. *far: the largest difference from log-probabilities after a prompt. */
static void scores_from_the_first_id(const struct text *t, enum drt_memory memory, float *far) {
    const struct drt_session_config config = config_of(memory, 0);
    struct drt_scores *whole = NULL, *part = NULL;
    struct drt_session *s = open_session(memory, 0);
    static struct text again;
    *far = 0;
    CALL_OK(drt_score_ids(w.model, &config, t->ids, t->n, 1, &whole));
    for (int64_t i = t->prompt; i < t->n; i++)
        *far = fmaxf(*far, fabsf(whole->logprob[i] - t->logprob[i]));
    again = *t;
    for (int64_t at = 0, n; at < t->prompt; at += n) {
        n = t->prompt - at < 90 ? t->prompt - at : 90;
        CALL_OK(drt_session_feed_ids(s, t->ids + at, n, &part, 1));
        for (int64_t i = at > 0 ? 0 : 1; i < n; i++)
            CHECK(fabsf(part->logprob[i] - whole->logprob[at + i]) <= 2e-4F);
        drt_free(part);
    }
    drt_free(whole);
    generate(&again, s);
    for (int64_t i = t->prompt; i < t->n; i++)
        CHECK(again.ids[i] == t->ids[i] && fabsf(again.logprob[i] - t->logprob[i]) <= 2e-4F);
    drt_session_close(s);
}

/* Scores of the last id of a prompt alone, which `skip` or the division into parts leaves, change nothing either. */
static void scores_of_the_last_id(const struct text *t, enum drt_memory memory) {
    static struct text again;
    for (int skips = 0; skips < 2; skips++)
        for (int parts = 1; parts <= 2; parts++) {
            struct drt_scores *scores = NULL;
            struct drt_session *s = open_session(memory, skips ? t->prompt - 1 : 0);
            const int64_t last = parts == 2 ? 1 : t->prompt;
            again = *t;
            if (parts == 2) CALL_OK(drt_session_feed_ids(s, t->ids, t->prompt - last, NULL, 0));
            CALL_OK(drt_session_feed_ids(s, t->ids + t->prompt - last, last, &scores, 1));
            drt_free(scores);
            generate(&again, s);
            for (int64_t i = t->prompt; i < t->n; i++)
                CHECK(again.ids[i] == t->ids[i] && fabsf(again.logprob[i] - t->logprob[i]) <= 2e-4F);
            drt_session_close(s);
        }
}

/* Ids that the caller picks and feeds one by one have the searches of ids that are generated. */
static void fed_one_by_one(const struct text *t, enum drt_memory memory) {
    static float next[VOCAB];
    struct drt_session *s = open_session(memory, 0);
    CALL_OK(drt_session_feed_ids(s, t->ids, t->prompt - 1, NULL, 0));
    CALL_OK(drt_session_feed_ids(s, t->ids + t->prompt - 1, 1, NULL, 0)); /* the last part of the prompt */
    for (int64_t i = t->prompt; i < t->n; i++) {
        CALL_OK(drt_session_logprobs(s, next));
        CHECK(fabsf(next[t->ids[i]] - t->logprob[i]) <= 2e-4F);
        CALL_OK(drt_session_feed_ids(s, t->ids + i, 1, NULL, 0));
    }
    drt_session_close(s);
}

int main(int argc, char **argv) {
    static struct text t;
    float far = 0;
    test_start(argc, argv, 1);
    library_world_open(&w);
    for (int memory = DRT_MEMORY_CORPUS; memory <= DRT_MEMORY_BOTH; memory++) {
        make_text(&t, (enum drt_memory)memory);
        scores_after_a_prompt(&t, (enum drt_memory)memory);
        scores_after_a_feed(&t, (enum drt_memory)memory);
        scores_of_the_last_id(&t, (enum drt_memory)memory);
        fed_one_by_one(&t, (enum drt_memory)memory);
        scores_from_the_first_id(&t, (enum drt_memory)memory, &far);
        CHECK(far > 0.01F); /* the searches matter */
    }
    library_world_close(&w);
    return test_done();
}
