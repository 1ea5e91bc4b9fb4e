/* test_candidates.c -- the order of the chunks that a search found: their ids, and the best k by sums of features.
 * Repeated words, runs, short chunks, ends of documents, deleted documents, ids that are no words, equal sums. */
#include "tests/ref/search/ref_candidates.h"
#include "tests/twins/twins.h"

/* The ids that an op takes from the packed chunks are those of the documents. */
static void check_ids(const struct candidates_case *c) {
    for (int i = 0; i < c->c.n; i++) {
        int32_t ids[2 * CANDIDATES_ROWS_MAX];
        if (c->chunk[i] < 0) continue;
        candidates_case_ids(c, ids, i);
        for (int j = 0; j < 2 * c->of.chunk_rows; j++)
            CHECK_EQ(packed_id_of(&c->of, c->chunk[i], j), ids[j]);
    }
}

static void compare(int rows, int n, int k, int vocab, int query_ids) {
    for (int landmark = 0; landmark < 2; landmark++) {
        struct candidates_case c = candidates_case_make(&twin_rng, rows, n, vocab, query_ids, landmark);
        int64_t *chunk = malloc((size_t)(k + 1) * sizeof *chunk);
        float *score = malloc((size_t)(k + 1) * sizeof *score);
        c.c.terms.weights = c.weights, c.c.of = &c.of;
        check_ids(&c);
        chunk[k] = 77, score[k] = guard_value;
        for (int i = 0; i < DEVICES; i++) {
            twin_device[i]->ops->candidates->order(twin_device[i], chunk, score, &c.c, k);
            candidates_case_check(&c, chunk, score, k);
        }
        CHECK(chunk[k] == 77 && score[k] == guard_value);
        candidates_case_free(&c);
        free(chunk), free(score);
    }
}

int main(int argc, char **argv) {
    twins_open(argc, argv);
    for (int i = 0; i < 20; i++) {
        compare(5, 30, 1 + i, 12, 20 + i);
        compare(63, 40, 40, 30, 128);
        compare(64, 24, 1 + i, 100, 300);
        compare(1, 9, 4, 3, 5);
    }
    compare(63, 1, 1, 300, 128);
    compare(63, 1, 1, 300, 0);
    compare(63, 224, 50, 400, 128);
    compare(64, CANDIDATES_MAX, 256, 2000, 128);
    compare(63, CANDIDATES_MAX, CANDIDATES_MAX, 60, 128);
    return twins_close();
}
