/* test_word_sketch.c -- sketches of words: lengths and products of ids, which ids have a coordinate of their own,
 * products against BM25 by plain loops with noise of the computed size, order and range of ids, wrong idf. */
#include "base/rng.h"
#include "indexer/landmarks/word_sketch.h"
#include "tests/test.h"
#include <stdbool.h>

enum { VOCAB = 3000, SIZE = 384, CHUNK = 63, TEXT = 128 };
static float idf[VOCAB];

/* Ids by Zipf's law: id 0 is in half of the chunks. */
static void make_idf(void) {
    for (int id = 0; id < VOCAB; id++)
        idf[id] = (float)log(2.0 * (id + 1));
}

static int32_t zipf(struct rng *rng) {
    return (int32_t)fmin(exp((double)rng_uniform(rng) * log(VOCAB)) - 1, VOCAB - 1);
}

static double product(const float *a, const float *b) {
    double sum = 0;
    for (int j = 0; j < SIZE; j++)
        sum += (double)a[j] * (double)b[j];
    return sum;
}

static double saturated(int f) {
    const double x = f > 2 ? 4 : f;
    return x * 2.2 / (x + 1.2);
}

static double bm25(const int32_t *text, int n, const int32_t *chunk, int length) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        int f = 0, before = 0;
        for (int j = 0; j < i; j++)
            before += text[j] == text[i];
        for (int j = 0; j < length; j++)
            f += chunk[j] == text[i];
        if (!before && f) sum += (double)idf[text[i]] * saturated(f);
    }
    return sum;
}

/* One id's sketch has length sqrt(idf); ids with a coordinate of their own share none. */
static void test_single_ids(const struct word_sketch *s) {
    const int32_t *own;
    const int owned = word_sketch_own(s, &own);
    float a[SIZE], b[SIZE];
    CHECK(owned > 0 && owned <= SIZE - SIZE / 8);
    for (int32_t id = 0; id < VOCAB; id += 7) {
        word_sketch_text(s, a, &id, 1);
        CHECK(fabs(product(a, a) - (double)idf[id]) <= 1e-4 * (double)idf[id]);
        word_sketch_chunk(s, b, (const int32_t[]){id, id, id}, 3);
        CHECK(fabs(product(a, b) - (double)idf[id] * saturated(3)) <= 1e-4 * (double)idf[id]);
    }
    for (int i = 0; i < owned; i++) {
        word_sketch_text(s, a, own + i, 1);
        for (int j = 0; j < SIZE; j++)
            CHECK(j == i ? fabsf(a[j] - sqrtf(idf[own[i]])) <= 1e-6f : a[j] == 0);
    }
    const int32_t other[2] = {VOCAB - 1, VOCAB - 2};
    word_sketch_text(s, a, other, 1);
    word_sketch_text(s, b, other + 1, 1);
    for (int j = 0; j < SIZE; j++)
        CHECK((a[j] != 0) == (j >= owned) && (b[j] != 0) == (j >= owned));
    CHECK(memcmp(a, b, sizeof a) != 0);
}

/* The ids with a coordinate of their own are those that add most, p * idf with p = exp(-idf). */
static void test_own(const struct word_sketch *s) {
    const int32_t *own;
    const int owned = word_sketch_own(s, &own);
    bool is_own[VOCAB] = {false};
    double least = INFINITY, most = 0;
    for (int i = 0; i < owned; i++)
        is_own[own[i]] = true;
    for (int id = 0; id < VOCAB; id++) {
        const double energy = (double)idf[id] * exp(-(double)idf[id]);
        if (is_own[id])
            least = fmin(least, energy);
        else
            most = fmax(most, energy);
    }
    CHECK(least >= most);
}

/* Products are BM25 without bias. The mean square of the noise is what independent signs give. */
static void test_products(const struct word_sketch *s) {
    enum { PAIRS = 4000 };
    struct rng rng = rng_make(3, 0);
    const int32_t *own;
    const int owned = word_sketch_own(s, &own);
    double sum = 0, squares = 0, expected = 0;
    for (int p = 0; p < PAIRS; p++) {
        int32_t text[TEXT], chunk[CHUNK];
        float a[SIZE], b[SIZE];
        double of_text = 0, of_chunk = 0;
        for (int i = 0; i < TEXT; i++)
            text[i] = zipf(&rng);
        for (int i = 0; i < CHUNK; i++)
            chunk[i] = i % 4 ? zipf(&rng) : text[TEXT - 1 - i];
        word_sketch_text(s, a, text, TEXT);
        word_sketch_chunk(s, b, chunk, CHUNK);
        const double noise = product(a, b) - bm25(text, TEXT, chunk, CHUNK);
        sum += noise;
        squares += noise * noise;
        for (int j = owned; j < SIZE; j++)
            of_text += (double)a[j] * (double)a[j], of_chunk += (double)b[j] * (double)b[j];
        expected += of_text * of_chunk / (SIZE - owned);
    }
    CHECK(fabs(sum / PAIRS) <= 0.1 * sqrt(squares / PAIRS));
    CHECK(squares <= 1.15 * expected && squares >= 0.6 * expected);
}

static void test_ids(const struct word_sketch *s) {
    struct rng rng = rng_make(4, 0);
    int32_t ids[CHUNK + 4], backward[CHUNK];
    float a[SIZE], b[SIZE];
    for (int i = 0; i < CHUNK; i++)
        ids[i] = zipf(&rng), backward[CHUNK - 1 - i] = ids[i];
    ids[CHUNK] = -1, ids[CHUNK + 1] = VOCAB, ids[CHUNK + 2] = INT32_MIN, ids[CHUNK + 3] = INT32_MAX;
    word_sketch_chunk(s, a, ids, CHUNK);
    word_sketch_chunk(s, b, ids, CHUNK + 4);
    CHECK(memcmp(a, b, sizeof a) == 0);
    word_sketch_chunk(s, b, backward, CHUNK);
    CHECK_CLOSE(a, b, SIZE, 1e-5);
    word_sketch_text(s, b, ids, CHUNK);
    CHECK(memcmp(a, b, sizeof a) != 0); /* repeated ids count once in a text */
    word_sketch_text(s, b, NULL, 0);
    for (int j = 0; j < SIZE; j++)
        CHECK(b[j] == 0);
}

static void test_same(const struct word_sketch *s) {
    struct word_sketch *again;
    const int32_t ids[3] = {1, 700, 2999};
    float a[SIZE], b[SIZE];
    CHECK_OK(word_sketch_create(&again, idf, VOCAB, SIZE));
    word_sketch_text(s, a, ids, 3);
    word_sketch_text(again, b, ids, 3);
    CHECK(memcmp(a, b, sizeof a) == 0);
    word_sketch_free(again);
}

static void test_refused(void) {
    static const float wrong[] = {-1, NAN, INFINITY};
    struct word_sketch *s;
    for (int i = 0; i < 3; i++) {
        const float one = idf[20];
        idf[20] = wrong[i];
        CHECK_FAILS(word_sketch_create(&s, idf, VOCAB, SIZE), STATUS_INVALID, "at id 20, and must be 0 or more");
        idf[20] = one;
    }
}

/* More coordinates than ids, equal idf, and the least size. */
static void test_sizes(void) {
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const int sizes[] = {8, 9, 33, 100};
    float a[100];
    for (int i = 0; i < 4; i++) {
        struct word_sketch *s;
        CHECK_OK(word_sketch_create(&s, ones, 16, sizes[i]));
        for (int32_t id = 0; id < 16; id++) {
            double square = 0;
            word_sketch_text(s, a, &id, 1);
            for (int j = 0; j < sizes[i]; j++)
                square += (double)a[j] * (double)a[j];
            CHECK(fabs(square - 1) <= 1e-5);
        }
        word_sketch_free(s);
    }
    word_sketch_free(NULL);
}

int main(void) {
    struct word_sketch *s;
    make_idf();
    CHECK_OK(word_sketch_create(&s, idf, VOCAB, SIZE));
    test_single_ids(s);
    test_own(s);
    test_products(s);
    test_ids(s);
    test_same(s);
    word_sketch_free(s);
    test_refused();
    test_sizes();
    return test_done();
}
