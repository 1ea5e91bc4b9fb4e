/* test_shared_runs.c -- classes of tokens against comparing each position of the texts with each of the store. */
#include "base/rng.h"
#include "tests/test.h"
#include "tools/memory/shared_runs.h"

enum { CHUNK = 11, DOCUMENTS = 6, LENGTH = 140, TEXT = 300, VOCAB = 60, DIM = 8, TEXTS = 2 };

struct world {
    int32_t document[DOCUMENTS][LENGTH], text[TEXTS][TEXT];
    struct store *store;
    struct store_view *view;
};

/* Documents are random; a text has pieces of them of 1 to 45 tokens, which begin and end anywhere. */
static void make_world(struct world *w) {
    struct rng rng = rng_make(3, 0);
    for (int d = 0; d < DOCUMENTS; d++)
        for (int i = 0; i < LENGTH; i++)
            w->document[d][i] = (int32_t)rng_below(&rng, VOCAB);
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < TEXT;) {
            int d = (int)rng_below(&rng, DOCUMENTS), n = 1 + (int)rng_below(&rng, 45);
            int from = (int)rng_below(&rng, (uint64_t)(LENGTH - n));
            for (int j = 0; j < n && i < TEXT; j++)
                w->text[t][i++] = w->document[d][from + j];
        }
}

static void make_store(struct world *w, const char *path) {
    struct store_writer_config config = {.fingerprint = {.chunk_tokens = CHUNK, .dim = DIM, .vocab_size = VOCAB},
                                         .max_catalog_bytes = 1 << 26};
    struct store_writer *writer;
    static const float landmarks[LENGTH * DIM];
    CHECK_OK(store_writer_open(&writer, path, &config, true));
    CHECK_OK(store_shard_begin(writer));
    for (int d = 0; d < DOCUMENTS; d++) {
        struct store_new_document doc = {.ids = w->document[d], .n_ids = LENGTH, .source = "runs", .key = ""};
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

/* The longest run around token i of a text that a document other than `but` has. */
static int longest_run(const struct world *w, int text, int i, int but) {
    int longest = 0;
    for (int d = 0; d < DOCUMENTS; d++)
        for (int j = 0; j < LENGTH && d != but; j++) {
            int before = 0, after = 0;
            if (w->document[d][j] != w->text[text][i]) continue;
            while (i - before > 0 && j - before > 0 && w->document[d][j - before - 1] == w->text[text][i - before - 1])
                before++;
            while (i + after + 1 < TEXT && j + after + 1 < LENGTH &&
                   w->document[d][j + after + 1] == w->text[text][i + after + 1])
                after++;
            if (before + 1 + after > longest) longest = before + 1 + after;
        }
    return longest;
}

static void check_classes(const struct world *w, int but) {
    struct shared_runs *r;
    int64_t first[TEXTS];
    int seen[RUN_CLASSES] = {0};
    CHECK_OK(shared_runs_create(&r));
    for (int t = 0; t < TEXTS; t++)
        CHECK_OK(shared_runs_add(r, &first[t], w->text[t], TEXT));
    if (but >= 0) CHECK_OK(shared_runs_exclude(r, but));
    CHECK_OK(shared_runs_find(r, w->view, NULL));
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < TEXT; i++) {
            int run = longest_run(w, t, i, but), class = 0;
            for (int level = 0; level < RUN_CLASSES - 1; level++)
                class += run >= run_lengths[level];
            CHECK_EQ(shared_runs_class(r, first[t] + i), class);
            seen[class]++;
        }
    for (int c = 0; c < RUN_CLASSES; c++)
        CHECK(seen[c] > 0);
    shared_runs_free(r);
}

int main(void) {
    static struct world w;
    char path[600];
    snprintf(path, sizeof path, "%s/store", test_folder());
    make_world(&w);
    make_store(&w, path);
    check_classes(&w, -1);
    check_classes(&w, 2);
    store_view_close(w.view);
    store_close(w.store);
    return 0;
}
