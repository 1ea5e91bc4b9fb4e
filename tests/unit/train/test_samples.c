/* test_samples.c -- sequences of samples against a second implementation of the rules: where they begin, what is
 * predicted, what precedes and follows them; an epoch has each sample once; files of answers that do not fit are
 * refused. */
#include "base/rng.h"
#include "tests/test.h"
#include "train/step/answers.h"
#include "train/step/batches.h"
#include <unistd.h>

enum { CHUNK = 63, VOCAB = 3000, END = 0, LANDMARK = 2999, CHUNKS = 3, L = CHUNK * CHUNKS, SAMPLES = 11, SPLIT = 4 };
enum how_made { DRT, BASE, ALIGNED }; /* a DRT model, a Base LM, a DRT model with pads before each sample */

/* Two token files of random samples; the first sample fills a sequence to its last id, the second is the shortest. */
struct corpus {
    uint16_t ids[SAMPLES * L];
    int64_t start[SAMPLES + 1];
    uint32_t prompt[SAMPLES];
    const char *files[2];
};

static void write_file(const char *path, const uint16_t *ids, int64_t n) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(ids, 2, (size_t)n, f) == (size_t)n && fclose(f) == 0);
}

static void make_corpus(struct corpus *c) {
    struct rng rng = rng_make(test_seed(), 3);
    for (int s = 0; s < SAMPLES; s++) {
        int64_t n = s == 0 ? L : s == 1 ? 2 : 2 + (int64_t)rng_below(&rng, L - 1);
        c->prompt[s] = (uint32_t)(1 + rng_below(&rng, (uint64_t)n - 1));
        for (int64_t i = 0; i < n; i++)
            c->ids[c->start[s] + i] = (uint16_t)(i + 1 == n ? END : 1 + rng_below(&rng, 2900));
        c->start[s + 1] = c->start[s] + n;
    }
    c->files[0] = "a.u16", c->files[1] = "b.u16";
    write_file("a.u16", c->ids, c->start[SPLIT]);
    write_file("b.u16", c->ids + c->start[SPLIT], c->start[SAMPLES] - c->start[SPLIT]);
    CHECK_OK(answers_write("a.u16", c->prompt, SPLIT, c->start[SPLIT]));
    CHECK_OK(answers_write("b.u16", c->prompt + SPLIT, SAMPLES - SPLIT, c->start[SAMPLES] - c->start[SPLIT]));
}

static struct model_config model(bool base) {
    return (struct model_config){
        .vocab_size = VOCAB, .chunk = CHUNK, .landmark_id = base ? -1 : LANDMARK, .base_lm = base};
}

static enum status open_corpus(struct batches **out, const struct corpus *c, bool base, struct batches_config how) {
    struct model_config m = model(base);
    how.files = c->files, how.n_files = 2, how.end_id = END, how.model = &m, how.held = 1, how.samples = true;
    how.chunks = how.chunks ? how.chunks : base ? L : CHUNKS;
    return batches_open(out, &how);
}

/* Sequence i of the batch: the sample that it is. */
static int check_sequence(const struct corpus *c, const struct batch *b, int i, enum how_made made, int64_t *scored) {
    const bool base = made == BASE;
    int64_t chunks = made == ALIGNED ? CHUNKS + 1 : CHUNKS, rows = base ? L : chunks * (CHUNK + 1), s = 0, pads = 0;
    while (s < SAMPLES && c->start[s] != b->starts[i])
        s++;
    CHECK(s < SAMPLES);
    while (made == ALIGNED && (pads + c->prompt[s]) % CHUNK != 1)
        pads++;
    int64_t n = c->start[s + 1] - c->start[s], at = -pads;
    const uint16_t *ids = c->ids + c->start[s];
    for (int64_t r = 0; r < rows; r++) {
        int32_t id = b->ids[i * rows + r], target = b->targets[i * rows + r];
        if (!base && r % (CHUNK + 1) == CHUNK) {
            CHECK_EQ(id, LANDMARK);
            CHECK_EQ(target, -1);
            continue;
        }
        CHECK_EQ(id, at >= 0 && at < n ? ids[at] : -1);
        bool predicted = at + 1 >= (int64_t)c->prompt[s] && at + 1 < n;
        CHECK_EQ(target, predicted ? ids[at + 1] : -1);
        *scored += predicted;
        at++;
    }
    for (int64_t chunk = 0; chunk < chunks && !base; chunk++) {
        const int32_t *documents = b->documents[i * chunks + chunk];
        bool real = chunk * CHUNK < pads + n;
        CHECK_EQ(documents[0], real ? 5 + s : -2); /* ends and beginnings differ: no chunk continues */
        CHECK_EQ(documents[1], real ? 5 + s : -1);
    }
    return (int)s;
}

static void test_epochs(const struct corpus *c, enum how_made made) {
    struct batches *b, *again;
    struct batches_config how = {.sequences = 2, .seed = test_seed(), .first_document = 5};
    if (made == ALIGNED) how.align = true, how.chunks = CHUNKS + 1;
    CHECK_OK(open_corpus(&b, c, made == BASE, how));
    CHECK_OK(open_corpus(&again, c, made == BASE, how));
    CHECK_EQ(batches_windows(b), SAMPLES);
    int order[2 * SAMPLES], changed = 0;
    for (int i = 0; i < SAMPLES; i++) { /* two epochs */
        struct batch batch;
        int64_t scored = 0;
        batches_get(b, &batch, 0, i);
        for (int q = 0; q < 2; q++)
            order[2 * i + q] = check_sequence(c, &batch, q, made, &scored);
        CHECK_EQ(batch.scored, scored);
    }
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[SAMPLES] = {0};
        for (int i = 0; i < SAMPLES; i++)
            seen[order[epoch * SAMPLES + i]]++;
        for (int s = 0; s < SAMPLES; s++)
            CHECK_EQ(seen[s], 1);
    }
    for (int i = 0; i < SAMPLES; i++)
        changed += order[i] != order[SAMPLES + i];
    CHECK(changed > 0);
    for (int i = SAMPLES - 1; i >= 0; i--) { /* any batch without the ones before */
        struct batch batch;
        batches_get(again, &batch, 0, i);
        CHECK_EQ(batch.starts[0], c->start[order[2 * i]]);
    }
    batches_close(b);
    batches_close(again);
}

static void test_once(const struct corpus *c) {
    struct batches *b;
    struct batch batch;
    int32_t ids[L];
    CHECK_OK(open_corpus(&b, c, false, (struct batches_config){.sampling = SAMPLING_ONCE, .sequences = 4}));
    CHECK_EQ(batches_windows(b), SAMPLES);
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t n = c->start[s + 1] - c->start[s] - c->prompt[s];
        CHECK_EQ(batches_predicted(b, NULL, s), n);
        CHECK_EQ(batches_predicted(b, ids, s), n);
        for (int64_t i = 0; i < n; i++)
            CHECK_EQ(ids[i], c->ids[c->start[s] + c->prompt[s] + i]);
        CHECK_EQ(batches_window_file(b, s), s < SPLIT ? 0 : 1);
        batches_get(b, &batch, 0, s / 4);
        CHECK_EQ(batch.starts[s % 4], c->start[s]);
    }
    int64_t scored = 0;
    for (int64_t s = 8; s < SAMPLES; s++)
        scored += batches_predicted(b, NULL, s);
    batches_get(b, &batch, 0, 2); /* there is no twelfth sequence */
    CHECK_EQ(batch.scored, scored);
    batches_close(b);
    CHECK_OK(open_corpus(&b, c, false,
                         (struct batches_config){.sampling = SAMPLING_ONCE, .sequences = 1, .max_windows = 3}));
    for (int64_t w = 0; w < 3; w++) {
        batches_get(b, &batch, 0, w);
        CHECK_EQ(batch.starts[0], c->start[w * SAMPLES / 3]);
    }
    batches_close(b);
}

static void test_resumed_with_other_answers(struct corpus *c) {
    struct batches *b;
    struct batches_config how = {.sequences = 1};
    CHECK_OK(open_corpus(&b, c, false, how));
    uint64_t before = batches_fingerprint(b);
    batches_close(b);
    uint32_t prompts[SPLIT];
    memcpy(prompts, c->prompt, sizeof prompts);
    prompts[0] = prompts[0] == 1 ? 2 : prompts[0] - 1;
    CHECK_OK(answers_write("a.u16", prompts, SPLIT, c->start[SPLIT]));
    CHECK_OK(open_corpus(&b, c, false, how));
    CHECK(batches_fingerprint(b) != before);
    batches_close(b);
    CHECK_OK(answers_write("a.u16", c->prompt, SPLIT, c->start[SPLIT]));
}

static void test_refused(struct corpus *c) {
    struct batches *b = NULL;
    struct batches_config how = {.sequences = 1};
    CHECK_FAILS(open_corpus(&b, c, false, (struct batches_config){.sequences = 1, .chunks = 2}), STATUS_INVALID,
                "a.u16: sample 0 has 189 tokens, more than length, 126");
    /* the first sample fills a sequence; whether pads come before it depends on the seed */
    const bool pads = c->prompt[0] % CHUNK != 1;
    const struct batches_config aligned = {.sequences = 1, .align = true};
    if (pads)
        CHECK_FAILS(open_corpus(&b, c, false, aligned), STATUS_INVALID,
                    "with the pads of align, more than length, 189");
    CHECK_OK(answers_write("b.u16", c->prompt, SPLIT, c->start[SPLIT]));
    CHECK_FAILS(open_corpus(&b, c, false, how), STATUS_MISMATCH, "b.u16.answers: is of 4 samples");
    uint32_t prompts[SAMPLES];
    memcpy(prompts, c->prompt + SPLIT, (SAMPLES - SPLIT) * sizeof *prompts);
    for (int wrong = 0; wrong < 2; wrong++) {
        prompts[1] = wrong ? (uint32_t)(c->start[SPLIT + 2] - c->start[SPLIT + 1]) : 0;
        CHECK_OK(answers_write("b.u16", prompts, SAMPLES - SPLIT, c->start[SAMPLES] - c->start[SPLIT]));
        CHECK_FAILS(open_corpus(&b, c, false, how), STATUS_INVALID, "b.u16.answers: sample 1 of");
    }
    for (int64_t bytes = 0; bytes < 24 + 4 * (SAMPLES - SPLIT); bytes += 7) {
        CHECK(truncate("b.u16.answers", bytes) == 0);
        CHECK_FAILS(open_corpus(&b, c, false, how), STATUS_INVALID, "b.u16.answers: is damaged");
        CHECK_OK(answers_write("b.u16", prompts, SAMPLES - SPLIT, 0));
    }
    CHECK(unlink("b.u16.answers") == 0);
    CHECK_FAILS(open_corpus(&b, c, false, how), STATUS_NOT_FOUND, "drt-tokenizer samples");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct corpus *c = calloc(1, sizeof *c);
    CHECK(c && chdir(test_folder()) == 0);
    make_corpus(c);
    test_epochs(c, DRT);
    test_epochs(c, BASE);
    test_epochs(c, ALIGNED);
    test_once(c);
    test_resumed_with_other_answers(c);
    test_refused(c);
    free(c);
    return test_done();
}
