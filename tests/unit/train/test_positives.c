/* test_positives.c -- the positives of the contrastive loss: of running text and of samples. */
#include "tests/test.h"
#include "train/step/step_internal.h"

enum { CHUNK = 31, P = CHUNK + 1, C = 5, SEQUENCES = 2, ROWS = SEQUENCES * C * P, LANDMARK = 9999 };

struct world {
    struct step step;
    struct batch batch;
    int32_t ids[ROWS], targets[ROWS], documents[SEQUENCES * C][2];
};

/* Sequences of different ids, one document each, without targets. */
static void world_make(struct world *w, bool samples) {
    *w = (struct world){.step = {.positions = P, .queries = SEQUENCES * C, .config = {.chunks = C}}};
    for (int i = 0; i < ROWS; i++) {
        w->ids[i] = i % P == P - 1 ? LANDMARK : 100 + i;
        w->targets[i] = -1;
    }
    for (int c = 0; c < SEQUENCES * C; c++)
        w->documents[c][0] = w->documents[c][1] = c / C;
    w->batch = (struct batch){.sequences = SEQUENCES,
                              .chunks = C,
                              .ids = w->ids,
                              .targets = w->targets,
                              .documents = (const int32_t(*)[2])w->documents,
                              .samples = samples};
}

static void put(int32_t *rows, int sequence, int at, const int32_t *ids, int n) {
    for (int i = 0; i < n; i++, at++)
        rows[(sequence * C + at / CHUNK) * P + at % CHUNK] = ids[i];
}

static int64_t positive(const struct world *w, int64_t r, uint64_t seed, int64_t reach) {
    const struct step_now now = {.seed = seed, .contrastive_reach = reach};
    return step_positive(&w->step, &w->batch, &now, r, 0);
}

static void test_text(void) {
    struct world w;
    world_make(&w, false);
    bool further = false;
    for (int64_t r = 0; r < SEQUENCES * C; r++) {
        CHECK_EQ(positive(&w, r, 1, 1), r % C == C - 1 ? -1 : r + 1);
        for (uint64_t seed = 0; seed < 20; seed++) {
            const int64_t found = positive(&w, r, seed, 3);
            CHECK(r % C == C - 1 ? found == -1 : found > r && found <= r + 3 && found / C == r / C);
            further = further || found > r + 1;
        }
    }
    CHECK(further);
    w.documents[2][0] = w.documents[2][1] = 7; /* another document in the middle */
    CHECK_EQ(positive(&w, 1, 1, 1), -1);
    CHECK_EQ(positive(&w, 2, 1, 1), -1);
}

/* The answer is predicted from the first id of the last chunk on. Only the query of the chunk before has a positive. */
static void test_sample(void) {
    static const int32_t answer[] = {1, 2, 3, 4, 5, 0}; /* the last id ends the document */
    struct world w;
    world_make(&w, true);
    for (int s = 0; s < SEQUENCES; s++)
        put(w.targets, s, 4 * CHUNK, answer, 6);
    put(w.ids, 0, 2 * CHUNK + 1, answer, 5);
    put(w.ids, 0, 1, answer, 2);             /* too short a run */
    put(w.ids, 1, 2 * CHUNK - 3, answer, 5); /* over the end of chunk 1: three ids, and two in chunk 2 */
    for (int64_t r = 0; r < SEQUENCES * C; r++)
        CHECK_EQ(positive(&w, r, 5, 1), r == 3 ? 2 : r == C + 3 ? C + 1 : -1);
    /* two runs: each is selected for some seeds */
    put(w.ids, 0, 1, answer, 4);
    int first = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        const int64_t found = positive(&w, 3, seed, 1);
        CHECK(found == 0 || found == 2);
        first += found == 0;
    }
    CHECK(first > 20 && first < 80);
    /* the words of the question are in the chunk before the value's, and then in the value's, too */
    static const int32_t key[] = {11, 12, 13};
    world_make(&w, true);
    put(w.targets, 0, 4 * CHUNK, answer, 6);
    put(w.ids, 0, 2 * CHUNK, answer, 5);
    put(w.ids, 0, 4 * CHUNK - 5, key, 3);
    CHECK_EQ(positive(&w, 3, 5, 1), 2);
    put(w.ids, 0, 2 * CHUNK - 3, key, 3);
    CHECK_EQ(positive(&w, 3, 5, 1), 1);
    put(w.ids, 0, 2 * CHUNK - 2, key, 3); /* cut: two ids, and one */
    CHECK_EQ(positive(&w, 3, 5, 1), 2);
    put(w.ids, 0, 2 * CHUNK - 3, key, 3);
    put(w.ids, 0, 2 * CHUNK + 3, key, 3);
    put(w.ids, 0, 2 * CHUNK, answer, 3);
    CHECK_EQ(positive(&w, 3, 5, 1), 2);
    /* the end of the document is not part of the answer; two ids are too few */
    world_make(&w, true);
    put(w.targets, 0, 4 * CHUNK, answer, 6);
    put(w.ids, 0, 3, answer + 3, 3);
    CHECK_EQ(positive(&w, 3, 5, 1), -1);
    /* the query's own chunk and later ones are not retrieved */
    put(w.ids, 0, 3 * CHUNK, answer, 5);
    CHECK_EQ(positive(&w, 3, 5, 1), -1);
    /* an answer that begins with a chunk is predicted from the chunk before it, and an answer may be long */
    world_make(&w, true);
    int32_t all[4 * CHUNK];
    for (int i = 0; i < 4 * CHUNK; i++)
        all[i] = 50 + i % 40;
    put(w.targets, 0, CHUNK - 1, all, 4 * CHUNK);
    put(w.ids, 0, 0, all, 3);
    for (int64_t r = 0; r < C; r++)
        CHECK_EQ(positive(&w, r, 5, 1), -1); /* it would be the query before the first chunk */
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_text();
    test_sample();
    return test_done();
}
