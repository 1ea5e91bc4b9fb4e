/* test_batches.c -- windows, landmarks, targets and documents against a second implementation of the rules; any batch
 * without the ones before; an epoch has no token twice; the corpus as chunks; refused files. */
#include "tests/test.h"
#include "train/step/batches.h"
#include <stdbool.h>

enum { CHUNK = 63, VOCAB = 3000, END = 0, LANDMARK = 2999 };

static struct model_config model(bool base) {
    return (struct model_config){
        .vocab_size = VOCAB, .chunk = CHUNK, .landmark_id = base ? -1 : LANDMARK, .base_lm = base};
}

/* `width` 2 or 4, by the name. */
static const char *write_ids(const char *name, const uint32_t *ids, int64_t n) {
    const char *path = test_path(name);
    int width = strstr(name, ".u16") ? 2 : 4;
    FILE *f = fopen(path, "wb");
    CHECK(f);
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < width; b++)
            fputc((int)(ids[i] >> 8 * b & 255), f);
    CHECK(fclose(f) == 0);
    return path;
}

/* Each id shows its position and is not END; every `period`-th id is END. */
static uint32_t *text(int64_t n, int64_t period) {
    uint32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (i + 1) % period == 0 ? END : (uint32_t)(1 + i % 2900);
    return ids;
}

static struct batches *open_with(struct batches_config how, const struct model_config *m, const char *a,
                                 const char *b) {
    const char *files[] = {a, b};
    struct batches *out;
    how.files = files;
    how.n_files = b ? 2 : 1;
    how.end_id = END;
    how.model = m;
    how.held = how.held ? how.held : 1;
    CHECK_OK(batches_open(&out, &how));
    return out;
}

/* The position of a window in `ids`, found by its first ids. */
static int64_t find(const uint32_t *ids, int64_t n, const int32_t *window) {
    for (int64_t at = 0; at + CHUNK <= n; at++) {
        int64_t i = 0;
        while (i < CHUNK && (int32_t)ids[at + i] == window[i])
            i++;
        if (i == CHUNK) return at;
    }
    test_fail(__FILE__, __LINE__, "a window that the text does not have");
}

static int32_t document_at(const uint32_t *ids, int64_t at, int64_t file_end) {
    int32_t document = 0;
    for (int64_t i = 1; i <= at; i++)
        document += ids[i - 1] == END || i == file_end;
    return document;
}

static void check_layout(const struct batch *b, const uint32_t *ids, int64_t n, int64_t file_end) {
    int64_t scored = 0;
    for (int s = 0; s < b->sequences; s++) {
        int64_t rows = b->chunks * (CHUNK + 1), at = find(ids, n, b->ids + s * rows);
        for (int64_t c = 0; c < b->chunks; c++) {
            const int32_t *row = b->ids + s * rows + c * (CHUNK + 1), *target = b->targets + (row - b->ids);
            CHECK_EQ(row[CHUNK], LANDMARK);
            CHECK_EQ(target[CHUNK], -1);
            for (int64_t i = 0; i < CHUNK; i++) {
                int64_t position = at + c * CHUNK + i;
                bool last = c + 1 == b->chunks && i + 1 == CHUNK;
                CHECK_EQ(row[i], ids[position]);
                CHECK_EQ(target[i], last ? -1 : (int64_t)ids[position + 1]);
                scored += !last;
            }
            const int32_t *documents = b->documents[s * b->chunks + c];
            CHECK_EQ(documents[0], document_at(ids, at + c * CHUNK, file_end));
            CHECK_EQ(documents[1], document_at(ids, at + (c + 1) * CHUNK - 1, file_end));
        }
    }
    CHECK_EQ(b->scored, scored);
}

static void layout_and_order(enum sampling sampling) {
    enum { N = 2500, SPLIT = 700 };
    struct model_config m = model(false);
    uint32_t *ids = text(N, 101);
    const char *a = write_ids("a.u16", ids, SPLIT), *b = write_ids("b.u32", ids + SPLIT, N - SPLIT);
    struct batches_config how = {.sampling = sampling, .sequences = 2, .chunks = 3, .seed = 7, .held = 2};
    struct batches *forward = open_with(how, &m, a, b), *backward = open_with(how, &m, a, b);
    CHECK_EQ(batches_tokens(forward), N);
    CHECK_EQ(batches_length(forward), 3 * CHUNK);
    enum { STEPS = 40, ROWS = 2 * 3 * (CHUNK + 1) };
    int32_t *seen = malloc(STEPS * ROWS * sizeof *seen);
    for (int i = 0; i < STEPS; i++) {
        struct batch batch;
        batches_get(forward, &batch, i % 2, i);
        check_layout(&batch, ids, N, SPLIT);
        memcpy(seen + i * ROWS, batch.ids, ROWS * sizeof *seen);
    }
    int same = 0;
    for (int i = STEPS - 1; i >= 0; i--) { /* any batch without the ones before */
        struct batch batch;
        batches_get(backward, &batch, 0, i);
        CHECK(memcmp(seen + i * ROWS, batch.ids, ROWS * sizeof *seen) == 0);
        same += i > 0 && memcmp(seen + i * ROWS, seen, ROWS * sizeof *seen) == 0;
    }
    CHECK(same < 3);
    how.seed = 8;
    struct batches *other = open_with(how, &m, a, b);
    struct batch batch;
    batches_get(other, &batch, 0, 0);
    CHECK(memcmp(seen, batch.ids, ROWS * sizeof *seen) != 0);
    CHECK(batches_fingerprint(other) == batches_fingerprint(forward));
    batches_close(other), batches_close(forward), batches_close(backward);
    free(seen), free(ids);
}

static void epochs_repeat_nothing(void) {
    enum { N = 2880, L = 2 * CHUNK };
    struct model_config m = model(false);
    uint32_t ids[N];
    for (int64_t i = 0; i < N; i++)
        ids[i] = (uint32_t)(1 + i); /* every id once */
    const char *a = write_ids("once.u32", ids, N);
    struct batches *b = open_with((struct batches_config){.sequences = 1, .chunks = 2, .seed = 3}, &m, a, NULL);
    int64_t windows = batches_windows(b), starts[4];
    CHECK_EQ(windows, N / L - 1);
    for (int epoch = 0; epoch < 4; epoch++) {
        int count[N + 1] = {0}, all = 0, in_order = 0;
        int32_t before = 0;
        starts[epoch] = N;
        for (int64_t i = 0; i < windows; i++) {
            struct batch batch;
            batches_get(b, &batch, 0, epoch * windows + i);
            for (int64_t r = 0; r < 2 * (CHUNK + 1); r++)
                if (batch.ids[r] != LANDMARK) {
                    CHECK_EQ(count[batch.ids[r]]++, 0);
                    all++;
                }
            in_order += batch.ids[0] > before;
            before = batch.ids[0];
            if (before < starts[epoch]) starts[epoch] = before;
        }
        CHECK_EQ(all, windows * L);
        CHECK(in_order < windows);
        CHECK(starts[epoch] >= 1 && starts[epoch] <= N - windows * L + 1);
    }
    CHECK(starts[0] != starts[1] || starts[1] != starts[2] || starts[2] != starts[3]);
    batches_close(b);
}

static void once_and_base(void) {
    enum { N = 1000, L = 100 };
    struct model_config m = model(true);
    uint32_t *ids = text(N, 3000);
    const char *a = write_ids("v.u16", ids, N);
    struct batches_config how = {.sampling = SAMPLING_ONCE, .sequences = 4, .chunks = L};
    struct batches *b = open_with(how, &m, a, NULL);
    struct batch batch;
    CHECK_EQ(batches_windows(b), 10);
    batches_get(b, &batch, 0, 0);
    CHECK_EQ(batch.scored, 4 * (L - 1));
    CHECK(batch.documents == NULL);
    for (int64_t i = 0; i < 4 * L; i++) {
        CHECK_EQ(batch.ids[i], ids[i]);
        CHECK_EQ(batch.targets[i], (i + 1) % L ? (int64_t)ids[i + 1] : -1);
    }
    batches_get(b, &batch, 0, 2); /* two windows, and two that are not scored */
    CHECK_EQ(batch.scored, 2 * (L - 1));
    CHECK_EQ(batch.ids[L], ids[9 * L]);
    CHECK_EQ(batch.targets[2 * L], -1);
    batches_close(b);
    how.max_windows = 5;
    b = open_with(how, &m, a, NULL);
    int32_t window[L];
    for (int64_t i = 0; i < 5; i++) {
        CHECK_EQ(batches_predicted(b, window, i), L - 1);
        CHECK_EQ(window[0], ids[2 * i * L + 1]);
        CHECK_EQ(window[L - 2], ids[2 * i * L + L - 1]);
    }
    batches_close(b);
    free(ids);
}

static void corpus(void) {
    struct model_config m = model(false);
    enum { N = 300 };
    uint32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = 1 + (uint32_t)i;
    ids[63] = END;  /* a document of exactly one chunk */
    ids[64] = END;  /* an empty document */
    ids[200] = END; /* 135 ids: three chunks, the last of 9; then 99 without an end */
    struct batches *b =
        open_with((struct batches_config){.sequences = 1, .chunks = 2}, &m, write_ids("c.u16", ids, N), NULL);
    struct batches_corpus c;
    CHECK_EQ(batches_documents(b), 4);
    CHECK_OK(batches_corpus_make(&c, b));
    CHECK_EQ(c.chunks, 1 + 0 + 3 + 2);
    static const int documents[] = {0, 2, 2, 2, 3, 3}, first[] = {0, 65, 128, 191, 201, 264};
    static const int length[] = {63, 63, 63, 9, 63, 36};
    for (int i = 0; i < 6; i++) {
        CHECK_EQ(c.documents[i][0], documents[i]);
        CHECK_EQ(c.documents[i][1], documents[i]);
        for (int j = 0; j < CHUNK; j++)
            CHECK_EQ(c.ids[i * CHUNK + j], j < length[i] ? (int64_t)ids[first[i] + j] : -1);
    }
    batches_corpus_free(&c);
    batches_close(b);
    b = open_with((struct batches_config){.sequences = 1, .chunks = 2, .sampling = SAMPLING_ONCE, .first_document = 40},
                  &m, write_ids("c.u16", ids, N), NULL);
    struct batch batch;
    batches_get(b, &batch, 0, 1);
    CHECK_EQ(batch.documents[0][0], 42); /* ids 126 .. 188, then 189 .. 251 */
    CHECK_EQ(batch.documents[1][0], 42);
    CHECK_EQ(batch.documents[1][1], 43);
    batches_close(b);
}

static enum status try_file(const char *path) {
    struct model_config m = model(false);
    struct batches *b;
    enum status s = batches_open(
        &b, &(struct batches_config){
                .files = &path, .n_files = 1, .end_id = END, .model = &m, .sequences = 1, .chunks = 2, .held = 1});
    if (s == STATUS_OK) batches_close(b);
    return s;
}

static void refused(void) {
    uint32_t *ids = text(300, 50);
    CHECK_OK(try_file(write_ids("good.u16", ids, 300)));
    CHECK_FAILS(try_file(test_path("none.u16")), STATUS_NOT_FOUND, "none.u16");
    CHECK_FAILS(try_file(write_ids("x.bin", ids, 300)), STATUS_INVALID, "ends in .u16 or .u32");
    CHECK_FAILS(try_file(write_ids("few.u16", ids, 100)), STATUS_INVALID, "fewer than one sequence of 126");
    CHECK_FAILS(try_file(write_ids("empty.u16", ids, 0)), STATUS_INVALID, "is empty");
    const char *odd = write_ids("odd.u16", ids, 300);
    CHECK(truncate(odd, 599) == 0);
    CHECK_FAILS(try_file(odd), STATUS_INVALID, "not a multiple of 2");
    ids[7] = VOCAB;
    CHECK_FAILS(try_file(write_ids("big.u16", ids, 300)), STATUS_MISMATCH, "byte 14: id 3000");
    ids[7] = LANDMARK;
    CHECK_FAILS(try_file(write_ids("mark.u16", ids, 300)), STATUS_MISMATCH, "landmark");
    free(ids);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    layout_and_order(SAMPLING_EPOCHS);
    layout_and_order(SAMPLING_RANDOM);
    epochs_repeat_nothing();
    once_and_base();
    corpus();
    refused();
    return test_done();
}
