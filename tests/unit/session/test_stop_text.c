/* test_stop_text.c -- stop strings against a search in the whole text, for any division of the text. */
#include "base/rng.h"
#include "session/stop_text.h"
#include "tests/test.h"

struct shown {
    char text[256];
    size_t bytes;
    bool stopped;
};

static void take(struct stop_text *s, struct shown *shown) {
    const char *text;
    size_t bytes;
    stop_text_take(s, &text, &bytes);
    memcpy(shown->text + shown->bytes, text, bytes);
    shown->bytes += bytes;
}

/* The shown text must not contain the beginning of a later stop string. */
static void one_by_one(void) {
    static const char *const stops[] = {"</s>", "ab"};
    struct stop_text *s;
    struct shown shown = {0};
    CHECK_OK(stop_text_create(&s, stops, 2));
    CHECK_OK(stop_text_put(s, "x<", 2, &shown.stopped));
    take(s, &shown);
    CHECK(!shown.stopped && shown.bytes == 1);
    CHECK_OK(stop_text_put(s, "/s", 2, &shown.stopped));
    take(s, &shown);
    CHECK(!shown.stopped && shown.bytes == 1);
    CHECK_OK(stop_text_put(s, "!a", 2, &shown.stopped)); /* "</s" was no stop string, "a" may be one */
    take(s, &shown);
    CHECK(!shown.stopped && shown.bytes == 5 && memcmp(shown.text, "x</s!", 5) == 0);
    CHECK_OK(stop_text_put(s, "c", 1, &shown.stopped));
    CHECK_OK(stop_text_put(s, "dab and more", 12, &shown.stopped));
    take(s, &shown);
    CHECK(shown.stopped && shown.bytes == 8 && memcmp(shown.text, "x</s!acd", 8) == 0);
    CHECK_OK(stop_text_put(s, "more", 4, &shown.stopped));
    stop_text_end(s);
    take(s, &shown);
    CHECK(shown.stopped && shown.bytes == 8);
    stop_text_reset(s);
    CHECK_OK(stop_text_put(s, "a", 1, &shown.stopped));
    take(s, &shown);
    CHECK(!shown.stopped && shown.bytes == 8);
    stop_text_end(s);
    take(s, &shown);
    CHECK_EQ(shown.bytes, 9);
    take(s, &shown);
    CHECK_EQ(shown.bytes, 9);
    stop_text_free(s);
    stop_text_free(NULL);
}

static void random_text(char *out, int n, struct rng *rng) {
    for (int i = 0; i < n; i++)
        out[i] = (char)('a' + rng_below(rng, 3));
    out[n] = 0;
}

static void against_search(void) {
    struct rng rng = rng_make(test_seed(), 1);
    for (int round = 0; round < 2000; round++) {
        char text[128], stop[2][8];
        const char *const stops[] = {stop[0], stop[1]};
        int n = (int)rng_below(&rng, 100), n_stops = (int)rng_below(&rng, 3);
        struct stop_text *s;
        struct shown shown = {0};
        random_text(text, n, &rng);
        for (int i = 0; i < n_stops; i++)
            random_text(stop[i], 1 + (int)rng_below(&rng, 6), &rng);
        size_t end = (size_t)n;
        for (int i = 0; i < n_stops; i++) {
            const char *found = strstr(text, stop[i]);
            if (found && (size_t)(found - text) < end) end = (size_t)(found - text);
        }
        CHECK_OK(stop_text_create(&s, stops, n_stops));
        for (int at = 0, piece; at < n && !shown.stopped; at += piece) {
            piece = (int)rng_below(&rng, 5);
            if (piece > n - at) piece = n - at;
            CHECK_OK(stop_text_put(s, text + at, (size_t)piece, &shown.stopped));
            if (rng_below(&rng, 2)) take(s, &shown);
            CHECK(shown.bytes <= end);
        }
        CHECK_EQ(shown.stopped, end < (size_t)n);
        stop_text_end(s);
        take(s, &shown);
        CHECK_EQ(shown.bytes, end);
        CHECK(memcmp(shown.text, text, end) == 0);
        stop_text_free(s);
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    one_by_one();
    against_search();
    return test_done();
}
