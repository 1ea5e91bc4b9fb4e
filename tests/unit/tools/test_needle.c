/* test_needle.c -- needle samples: the text contains the answer to the question, at the stated ranges; lengths,
 * alignment, repeatability.
 */
#include "base/memory.h"
#include "tools/tasks/needle.h"

#include "tests/test.h"

enum { HAY = 5000, CHUNK = 63 };
static struct tokenizer *tokenizer;
static struct tokenizer_scratch *scratch;
static int32_t hay[HAY];

static struct needle_maker *make(enum needle_task task, enum needle_wording wording, int64_t context, bool elsewhere) {
    struct needle_maker *m;
    const struct needle_config config = {.tokenizer = tokenizer,
                                         .haystack = hay,
                                         .n_haystack = HAY,
                                         .task = task,
                                         .wording = wording,
                                         .context = context,
                                         .chunk = CHUNK,
                                         .elsewhere = elsewhere,
                                         .seed = test_seed()};
    CHECK_OK(needle_maker_create(&m, &config));
    return m;
}

/* How often part occurs in ids. */
static int occurs(const int32_t *ids, int64_t n, const int32_t *part, int64_t m) {
    int found = 0;
    for (int64_t i = 0; i + m <= n; i++)
        found += memcmp(ids + i, part, (size_t)m * sizeof *ids) == 0;
    return found;
}

static void check_papers(enum needle_task task, const struct needle_sample *s, const int32_t *text, int64_t n) {
    const int64_t values = task == NEEDLE_MULTI_VALUE ? 4 : task == NEEDLE_TWO_HOP ? 2 : 1;
    CHECK_EQ(s->n_answer, 6 * values - 1);
    for (int64_t v = 0; v < values; v++) {
        /* b of a chain a -> b -> c is in two statements */
        const int times = occurs(text, n, s->answer + 6 * v, 5);
        CHECK_EQ(times, task == NEEDLE_TWO_HOP && v == 0 ? 2 : 1);
    }
    CHECK_EQ(s->n_values, values);
    for (int v = 0; v < s->n_values; v++) { /* a chain's statements stand in any order */
        int64_t which = 0;
        CHECK(s->value[v].from >= 0 && s->value[v].to == s->value[v].from + 5 && s->value[v].to <= n);
        while (which < values && memcmp(text + s->value[v].from, s->answer + 6 * which, 5 * sizeof *text) != 0)
            which++;
        CHECK(which < values && (task == NEEDLE_TWO_HOP || which == v));
    }
    CHECK_EQ(s->scored, task == NEEDLE_SINGLE ? 0 : s->n_answer - 1);
    CHECK(s->depth >= 0 && s->depth < 1);
}

static void test_papers(enum needle_task task, bool elsewhere) {
    struct needle_maker *m = make(task, NEEDLE_PAPERS, 1000, elsewhere),
                        *again = make(task, NEEDLE_PAPERS, 1000, elsewhere);
    double depths = 0;
    for (int i = 0; i < 200; i++) {
        struct needle_sample s, t;
        CHECK_OK(needle_make(m, i, &s));
        CHECK_OK(needle_make(again, i, &t));
        CHECK_EQ(s.n_prompt, 15 * CHUNK + 1);
        CHECK(memcmp(s.prompt, t.prompt, (size_t)s.n_prompt * sizeof *s.prompt) == 0);
        CHECK(s.n_answer == t.n_answer && memcmp(s.answer, t.answer, sizeof s.answer) == 0);
        CHECK((s.document != NULL) == elsewhere);
        check_papers(task, &s, elsewhere ? s.document : s.prompt, elsewhere ? s.n_document : s.n_prompt);
        if (elsewhere) CHECK_EQ(occurs(s.prompt, s.n_prompt, s.answer, 5), 0);
        depths += s.depth;
    }
    /* the mean position of one statement is the middle, of the first of several before it */
    CHECK(depths / 200 > 0.1 && depths / 200 < 0.6);
    needle_maker_free(m);
    needle_maker_free(again);
}

static void test_ruler(enum needle_task task) {
    struct needle_maker *m = make(task, NEEDLE_RULER, 2000, false);
    for (int i = 0; i < 20; i++) {
        struct needle_sample s;
        const char *text;
        size_t bytes;
        CHECK_OK(needle_make(m, i, &s));
        CHECK_EQ(s.n_prompt % CHUNK, 1);
        CHECK_EQ(s.n_outputs, task == NEEDLE_MULTI_VALUE ? 4 : task == NEEDLE_TWO_HOP ? 2 : 1);
        CHECK_OK(tokenizer_decode(tokenizer, scratch, s.prompt, (size_t)s.n_prompt, false, &text, &bytes));
        for (int k = 0; k < s.n_outputs; k++)
            CHECK(memmem(text, bytes, s.outputs[k], strlen(s.outputs[k])) != NULL);
        const char *stated = task == NEEDLE_TWO_HOP ? "\nVAR " : "\nOne of the special magic numbers for ";
        CHECK(memmem(text, bytes, stated, strlen(stated)) != NULL);
        CHECK_EQ(s.n_values, s.n_outputs);
        for (int v = 0; v < s.n_values; v++) { /* a value's ids may have bytes of what is around it */
            const int64_t from = s.value[v].from, ids = s.value[v].to - from;
            bool found = false;
            CHECK_OK(tokenizer_decode(tokenizer, scratch, s.prompt + from, (size_t)ids, false, &text, &bytes));
            for (int k = 0; k < s.n_outputs; k++)
                found = found || memmem(text, bytes, s.outputs[k], strlen(s.outputs[k])) != NULL;
            CHECK(found && ids <= 10);
        }
        CHECK_OK(tokenizer_decode(tokenizer, scratch, s.answer, (size_t)s.n_answer, false, &text, &bytes));
        for (int k = 0; k < s.n_outputs; k++)
            CHECK(memmem(text, bytes, s.outputs[k], strlen(s.outputs[k])) != NULL);
    }
    needle_maker_free(m);
}

/* Values of another number of ids. */
static void test_long_values(void) {
    struct needle_sample s;
    const struct needle_config config = {.tokenizer = tokenizer,
                                         .haystack = hay,
                                         .n_haystack = HAY,
                                         .context = 600,
                                         .chunk = CHUNK,
                                         .value_ids = 40,
                                         .seed = test_seed()};
    struct needle_maker *m;
    CHECK_OK(needle_maker_create(&m, &config));
    CHECK_OK(needle_make(m, 0, &s));
    CHECK_EQ(s.n_answer, 40);
    CHECK_EQ(s.value[0].to - s.value[0].from, 40);
    CHECK(memcmp(s.prompt + s.value[0].from, s.answer, 40 * sizeof *s.answer) == 0);
    needle_maker_free(m);
}

/* Many keys: each statement is there once, and one value is requested. */
static void test_many_keys(void) {
    enum { KEYS = 40 };
    struct needle_sample s;
    const struct needle_config config = {.tokenizer = tokenizer,
                                         .haystack = hay,
                                         .n_haystack = HAY,
                                         .task = NEEDLE_MULTI_KEY,
                                         .context = 4000,
                                         .chunk = CHUNK,
                                         .keys = KEYS,
                                         .seed = test_seed()};
    struct needle_maker *m;
    const int32_t *start;
    size_t n;
    CHECK_OK(tokenizer_encode(tokenizer, scratch, "|One of the special", 19, TOKENIZER_LITERAL, &start, &n));
    CHECK_OK(needle_maker_create(&m, &config));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(needle_make(m, i, &s));
        CHECK_EQ(occurs(s.prompt, s.n_prompt, start, (int64_t)n), KEYS);
        CHECK_EQ(s.n_values, 1);
        CHECK(memcmp(s.prompt + s.value[0].from, s.answer, 5 * sizeof *s.answer) == 0);
    }
    needle_maker_free(m);
}

static void test_refused(void) {
    struct needle_sample s;
    struct needle_maker *m = make(NEEDLE_MULTI_KEY, NEEDLE_PAPERS, 256, false);
    CHECK(needle_make(m, 0, &s) == STATUS_INVALID && strstr(status_message(), "too short"));
    needle_maker_free(m);
    const struct needle_config empty = {.tokenizer = tokenizer, .context = 1000, .chunk = CHUNK};
    CHECK(needle_maker_create(&m, &empty) == STATUS_INVALID && strstr(status_message(), "no text"));
}

int main(int argc, char **argv) {
    char path[4096];
    const char *source = getenv("DRT_SOURCE");
    test_start(argc, argv, 1);
    if (!source) test_skip("DRT_SOURCE is not set");
    snprintf(path, sizeof path, "%s/tests/cli/tiny/tokenizer.json", source);
    CHECK_OK(tokenizer_open(&tokenizer, path));
    CHECK_OK(tokenizer_scratch_create(&scratch, tokenizer));
    struct rng rng = rng_make(test_seed(), 1);
    for (int i = 0; i < HAY; i++)
        hay[i] = (int32_t)rng_below(&rng, 200);
    for (int task = 0; task < NEEDLE_TASKS; task++) {
        test_papers((enum needle_task)task, false);
        test_papers((enum needle_task)task, true);
        test_ruler((enum needle_task)task);
    }
    test_long_values();
    test_many_keys();
    test_refused();
    tokenizer_scratch_free(scratch);
    tokenizer_free(tokenizer);
    return test_done();
}
