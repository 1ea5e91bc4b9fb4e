/* test_tokenizer_train_random.c -- on random texts: the trainer gives the merges of the definition (count all pairs
 * again for each merge, take the most frequent one with the lowest ids), whatever the threads and the order of
 * documents; the encoder makes as many tokens of the texts as the trainer reported; and the trained tokenizer decodes
 * its own ids to the same bytes. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "data/tokenizer/tokenizer_train_internal.h"
#include "data/tokenizer/utf8.h"
#include "tests/test.h"

enum {
    ROUNDS = 24,
    DOCUMENTS = 40,
    LENGTH_MAX = 120,
    MERGES = 60,
    IDS = 256 + MERGES,
    WORDS_MAX = DOCUMENTS * LENGTH_MAX
};

static const char *const patterns[] = {"gpt2", "llama3", "qwen2"};
static const enum scanner scanners[] = {SCANNER_GPT2, SCANNER_CL100K, SCANNER_QWEN2};

struct corpus {
    char text[DOCUMENTS][4 * LENGTH_MAX];
    size_t bytes[DOCUMENTS];
};

/* Few letters, so that tokens become long; some rounds have any character. */
static void make_corpus(struct corpus *c, struct rng *rng) {
    uint64_t letters = 1 + rng_below(rng, 6), spaces = rng_below(rng, 4), odd = rng_below(rng, 2) ? 0 : 10;
    for (int d = 0; d < DOCUMENTS; d++) {
        c->bytes[d] = 0;
        for (int n = (int)rng_below(rng, LENGTH_MAX); n > 0; n--) {
            uint32_t code = (uint32_t)('a' + rng_below(rng, letters));
            if (rng_below(rng, 8) < spaces) code = (uint32_t)(uint8_t) " \n'1!"[rng_below(rng, 5)];
            if (rng_below(rng, 100) < odd) code = (uint32_t)rng_below(rng, 0xD800);
            c->bytes[d] += (size_t)utf8_encode(c->text[d] + c->bytes[d], code);
        }
    }
}

static struct tokenizer_train_report train(const struct corpus *c, const char *pattern, int vocab, int threads,
                                           bool backwards, const char *path) {
    struct threads *pool;
    struct tokenizer_trainer *t;
    CHECK_OK(threads_create(&pool, threads));
    CHECK_OK(
        tokenizer_trainer_create(&t, &(struct tokenizer_train_config){.vocab_size = vocab, .pattern = pattern}, pool));
    for (int i = 0; i < DOCUMENTS; i++) {
        int d = backwards ? DOCUMENTS - 1 - i : i;
        CHECK_OK(tokenizer_trainer_add(t, c->text[d], c->bytes[d]));
        if (threads > 1 && i % 7 == 0) CHECK_OK(counter_flush(&t->counter)); /* as a large corpus does */
    }
    CHECK_OK(tokenizer_trainer_merge(t, NULL));
    CHECK_OK(tokenizer_trainer_save(t, path));
    struct tokenizer_train_report report = tokenizer_trainer_report(t);
    tokenizer_trainer_free(t);
    threads_free(pool);
    return report;
}

/* ---- the definition ------------------------------------------------------------------------------------------------
 */

struct definition {
    int32_t *words[WORDS_MAX];
    int lengths[WORDS_MAX], n_words;
    struct bytes spelling[IDS];
    int n;
};

static void split_words(struct definition *def, const struct corpus *c, enum scanner scanner) {
    uint8_t *classes;
    int32_t id_of[256];
    CHECK_OK(scanner_classes(&classes));
    for (uint32_t code = 0; code < 512; code++) {
        int byte = byte_level_byte(code);
        if (byte < 0) continue;
        char text[4];
        CHECK_OK(bytes_append(&def->spelling[def->n], text, (size_t)utf8_encode(text, code)));
        id_of[byte] = def->n++;
    }
    CHECK_EQ(def->n, 256);
    for (int d = 0; d < DOCUMENTS; d++)
        for (size_t at = 0; at < c->bytes[d];) {
            size_t length = scanner_next(scanner, classes, c->text[d], c->bytes[d], at);
            int32_t *word = malloc(length * sizeof *word);
            for (size_t i = 0; i < length; i++)
                word[i] = id_of[(uint8_t)c->text[d][at + i]];
            def->words[def->n_words] = word;
            def->lengths[def->n_words++] = (int)length;
            at += length;
        }
    memory_free(classes);
}

static bool merge_once(struct definition *def) {
    static int64_t counts[IDS][IDS];
    memset(counts, 0, sizeof counts);
    for (int w = 0; w < def->n_words; w++)
        for (int i = 0; i + 1 < def->lengths[w]; i++)
            counts[def->words[w][i]][def->words[w][i + 1]]++;
    int left = 0, right = 0;
    for (int l = 0; l < def->n; l++)
        for (int r = 0; r < def->n; r++)
            if (counts[l][r] > counts[left][right]) left = l, right = r;
    if (counts[left][right] == 0) return false;
    struct bytes *made = &def->spelling[def->n];
    CHECK_OK(bytes_append(made, def->spelling[left].data, def->spelling[left].size));
    CHECK_OK(bytes_append(made, def->spelling[right].data, def->spelling[right].size));
    for (int w = 0; w < def->n_words; w++) {
        int to = 0, n = def->lengths[w], *word = def->words[w];
        for (int from = 0; from < n; from++) {
            bool here = from + 1 < n && word[from] == left && word[from + 1] == right;
            word[to++] = here ? def->n : word[from];
            from += here;
        }
        def->lengths[w] = to;
    }
    def->n++;
    return true;
}

static void check_definition(const struct corpus *c, enum scanner scanner, const struct tokenizer *t,
                             const struct tokenizer_train_report *report) {
    static struct definition def;
    def = (struct definition){0};
    split_words(&def, c, scanner);
    while (def.n < IDS && merge_once(&def))
        ;
    CHECK_EQ(tokenizer_vocab_size(t), def.n);
    CHECK_EQ(report->words, def.n_words);
    int64_t tokens = 0;
    for (int w = 0; w < def.n_words; w++) {
        tokens += def.lengths[w];
        free(def.words[w]);
    }
    CHECK_EQ(report->tokens, tokens);
    for (int id = 0; id < def.n; id++) {
        CHECK_STR(tokenizer_token(t, id), def.spelling[id].data);
        bytes_free(&def.spelling[id]);
    }
}

/* ---- what the tokenizer does then ----------------------------------------------------------------------------------
 */

static void check_tokens(const struct corpus *c, const struct tokenizer *t, struct tokenizer_scratch *s,
                         int64_t tokens) {
    const int32_t *ids;
    size_t n;
    for (int d = 0; d < DOCUMENTS; d++) {
        CHECK_OK(tokenizer_encode(t, s, c->text[d], c->bytes[d], TOKENIZER_LITERAL, &ids, &n));
        tokens -= (int64_t)n;
    }
    CHECK_EQ(tokens, 0);
}

/* Random bytes come back repaired, valid text unchanged. */
static void check_round_trip(struct rng *rng, const struct tokenizer *t, struct tokenizer_scratch *s) {
    for (int round = 0; round < 40; round++) {
        char text[400];
        size_t bytes = 0, n, got;
        while (bytes < 300) {
            if (round % 2)
                text[bytes++] = (char)rng_below(rng, 256);
            else
                bytes += (size_t)utf8_encode(text + bytes, (uint32_t)rng_below(rng, 0xD800));
        }
        char *repaired = NULL;
        size_t capacity = 0, wanted;
        uint64_t replaced;
        CHECK_OK(utf8_repair(&repaired, &capacity, &wanted, &replaced, text, bytes));
        CHECK(round % 2 == 1 || replaced == 0);
        const int32_t *ids;
        const char *back;
        CHECK_OK(tokenizer_encode(t, s, text, bytes, TOKENIZER_LITERAL, &ids, &n));
        int32_t *copy = malloc(n * sizeof *copy);
        memcpy(copy, ids, n * sizeof *copy);
        CHECK_OK(tokenizer_decode(t, s, copy, n, false, &back, &got));
        CHECK_EQ(got, wanted);
        CHECK(memcmp(back, repaired, got) == 0);
        free(copy);
        memory_free(repaired);
    }
}

static void check_same_file(const char *a, const char *b) {
    struct file_map x, y;
    CHECK_OK(file_map(&x, a));
    CHECK_OK(file_map(&y, b));
    CHECK(x.size == y.size && memcmp(x.data, y.data, x.size) == 0);
    file_unmap(&x);
    file_unmap(&y);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 20);
    static struct corpus corpus;
    char one[128], other[128];
    snprintf(one, sizeof one, "train-%d-one.json", (int)getpid());
    snprintf(other, sizeof other, "train-%d-other.json", (int)getpid());
    for (int round = 0; round < ROUNDS; round++) {
        struct rng rng = rng_make(test_seed(), (uint64_t)round);
        make_corpus(&corpus, &rng);
        int p = round % 3;
        struct tokenizer_train_report report = train(&corpus, patterns[p], IDS, 1, false, one);
        (void)train(&corpus, patterns[p], IDS, 3, true, other);
        check_same_file(one, other);
        struct tokenizer *t;
        struct tokenizer_scratch *s;
        CHECK_OK(tokenizer_open(&t, one));
        CHECK_OK(tokenizer_scratch_create(&s, t));
        check_definition(&corpus, scanners[p], t, &report);
        check_tokens(&corpus, t, s, report.tokens);
        check_round_trip(&rng, t, s);
        tokenizer_scratch_free(s);
        tokenizer_free(t);
    }
    CHECK_OK(file_remove(one));
    CHECK_OK(file_remove(other));
    return test_done();
}
