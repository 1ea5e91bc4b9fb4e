/* test_overlap.c -- longest shared runs, the tokens that they cover, and 13-grams, against a comparison of every
 * position of the texts with every position of the store: random pieces, a tiny vocabulary, long repetition, excluded
 * documents, negative ids. */
#include "base/rng.h"
#include "indexer/overlap.h"
#include "tests/test.h"

enum { CHUNK = 11, DOCUMENTS = 6, LENGTH = 160, TEXTS = 3, TEXT = 220, DIM = 4 };

struct world {
    int32_t document[DOCUMENTS][LENGTH], text[TEXTS][TEXT];
    struct store *store;
    struct store_view *view;
};

/* Documents are random. A text consists of pieces of them, of 1 to 45 tokens, which begin and end anywhere. */
static void make_texts(struct world *w, int vocab) {
    struct rng rng = rng_make(test_seed(), (uint64_t)vocab);
    for (int d = 0; d < DOCUMENTS; d++)
        for (int i = 0; i < LENGTH; i++)
            w->document[d][i] = d == 2 ? i / 50 % vocab : (int32_t)rng_below(&rng, (uint64_t)vocab);
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < TEXT;) {
            int d = (int)rng_below(&rng, DOCUMENTS), n = 1 + (int)rng_below(&rng, 45);
            int from = (int)rng_below(&rng, (uint64_t)(LENGTH - n));
            for (int j = 0; j < n && i < TEXT; j++)
                w->text[t][i++] = w->document[d][from + j];
            if (rng_below(&rng, 4) == 0 && i < TEXT) w->text[t][i++] = -1;
        }
    memcpy(w->text[2] + 30, w->text[1] + 30, 100 * sizeof(int32_t)); /* texts share runs with each other */
}

static void make_store(struct world *w, const char *path) {
    struct store_writer_config config = {.fingerprint = {.chunk_tokens = CHUNK, .dim = DIM, .vocab_size = 100},
                                         .max_catalog_bytes = 1 << 26};
    struct store_writer *writer;
    static const float landmarks[LENGTH * DIM];
    CHECK_OK(store_writer_open(&writer, path, &config, true));
    CHECK_OK(store_shard_begin(writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        struct store_new_document doc = {.ids = w->document[d], .n_ids = LENGTH, .source = "overlap", .key = ""};
        bool duplicate;
        memcpy(doc.hash, &d, sizeof d);
        CHECK_OK(store_shard_document(writer, &doc, &duplicate));
        CHECK_OK(store_shard_landmarks(writer, landmarks, (LENGTH + CHUNK - 1) / CHUNK));
    }
    CHECK_OK(store_shard_seal(writer, NULL, 0));
    CHECK_OK(store_writer_publish(writer, &(struct store_publish){.index = "exact", .seed = 1}));
    store_writer_close(writer);
    CHECK_OK(store_open(&w->store, path));
    CHECK_OK(store_view_open(&w->view, w->store));
}

/* The longest run that ends at token i of a text and at some token of a document other than `but`. */
static int longest_ending(const struct world *w, int text, int i, int but) {
    int longest = 0;
    for (int d = 0; d < DOCUMENTS; d++)
        for (int j = 0; j < LENGTH && d != but; j++) {
            int n = 0;
            while (n <= i && n <= j && w->text[text][i - n] >= 0 && w->text[text][i - n] == w->document[d][j - n])
                n++;
            longest = n > longest ? n : longest;
        }
    return longest;
}

/* The longest run around token i, within begin .. end - 1 of a text, that a document other than `but` has. */
static int longest_around(const struct world *w, int text, int i, int begin, int end, int but) {
    const int32_t *of = w->text[text];
    int longest = 0;
    for (int d = 0; d < DOCUMENTS; d++)
        for (int j = 0; j < LENGTH && d != but; j++) {
            const int32_t *in = w->document[d];
            int before = 0, after = 0;
            if (of[i] != in[j]) continue;
            while (i - before > begin && j - before > 0 && of[i - before - 1] == in[j - before - 1])
                before++;
            while (i + after + 1 < end && j + after + 1 < LENGTH && of[i + after + 1] == in[j + after + 1])
                after++;
            longest = before + 1 + after > longest ? before + 1 + after : longest;
        }
    return longest;
}

/* Texts are divided into windows, which also divide runs. */
static void compare_reach(const struct world *w, const struct overlap *o, int but) {
    static const int lengths[] = {1, 9, 13, 33}, windows[] = {TEXT, 70, 12};
    int seen[ARRAY_LEN(lengths) + 1] = {0};
    for (size_t k = 0; k < ARRAY_LEN(windows); k++)
        for (int t = 0; t < TEXTS; t++)
            for (int begin = 0, n; begin < TEXT; begin += n) {
                uint8_t reach[TEXT];
                n = TEXT - begin < windows[k] ? TEXT - begin : windows[k];
                overlap_reach(o, reach, t * TEXT + begin, n, lengths, ARRAY_LEN(lengths));
                for (int i = 0; i < n; i++) {
                    int run = longest_around(w, t, begin + i, begin, begin + n, but), want = 0;
                    for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
                        want += run >= lengths[l];
                    CHECK_EQ(reach[i], want);
                    seen[want]++;
                }
            }
    for (size_t l = 0; l <= ARRAY_LEN(lengths); l++)
        CHECK(seen[l] > 0);
}

static void compare(const struct world *w, int but) {
    struct overlap *o;
    CHECK_OK(overlap_create(&o));
    for (int t = 0; t < TEXTS; t++) {
        int64_t first;
        CHECK_OK(overlap_add(o, &first, w->text[t], TEXT));
        CHECK_EQ(first, t * TEXT);
    }
    CHECK_OK(overlap_add(o, NULL, NULL, 0));
    if (but >= 0) CHECK_OK(overlap_exclude(o, but));
    CHECK_OK(overlap_find(o, w->view, NULL));
    CHECK_EQ(overlap_tokens(o), TEXTS * TEXT);
    compare_reach(w, o, but);
    for (int t = 0; t < TEXTS; t++) {
        struct overlap_text want = {.tokens = TEXT}, got = overlap_text(o, t);
        bool covered[TEXT] = {false};
        for (int i = 0, since = 0; i < TEXT; i++) {
            int run = longest_ending(w, t, i, but);
            CHECK_EQ(overlap_ending(o, t * TEXT + i), run);
            since = w->text[t][i] < 0 ? 0 : since + 1;
            want.grams += since >= OVERLAP_GRAM;
            want.shared += run >= OVERLAP_GRAM;
            want.longest = run > want.longest ? run : want.longest;
            for (int j = 0; j < run && run >= OVERLAP_GRAM; j++)
                covered[i - j] = true;
        }
        for (int i = 0; i < TEXT; i++)
            want.covered += covered[i];
        CHECK(memcmp(&want, &got, sizeof want) == 0);
    }
    const struct overlap_text empty = overlap_text(o, TEXTS);
    CHECK(empty.tokens == 0 && empty.longest == 0 && empty.grams == 0);
    overlap_free(o);
}

static bool always(void *context) {
    (void)context;
    return true;
}

int main(int argc, char **argv) {
    static const int vocabs[] = {2, 5, 90};
    test_start(argc, argv, 1);
    for (size_t i = 0; i < ARRAY_LEN(vocabs); i++) {
        static struct world w;
        char path[700];
        struct overlap *o;
        snprintf(path, sizeof path, "%s/store%zu", test_folder(), i);
        make_texts(&w, vocabs[i]);
        make_store(&w, path);
        compare(&w, -1);
        compare(&w, 3);
        CHECK_OK(overlap_create(&o));
        const struct progress stop = {.stop_requested = always};
        CHECK_FAILS(overlap_find(o, w.view, &stop), STATUS_INTERRUPTED, "stopped");
        overlap_free(o);
        store_view_close(w.view);
        store_close(w.store);
    }
    return test_done();
}
