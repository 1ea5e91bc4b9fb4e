/* test_tokenizer_train.c -- the trainer against merges computed by hand, and, byte for byte, against the files that the
 * reference package makes from the same texts (tests/unit/data/tokenizer_train, made by make_expected.py there). */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_scan.h"
#include "data/tokenizer/tokenizer_train.h"
#include "tests/test.h"

static const char *const eot[] = {"<|endoftext|>"};

static char *temporary(const char *name) {
    static char path[FILE_PATH_MAX];
    const char *folder = getenv("DRT_TEST_TMP");
    if (folder) (void)mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/train-%d-%s", folder ? folder : "/tmp", (int)getpid(), name);
    return path;
}

/* Trains on texts and returns the file's content (free it). */
static char *train(const struct tokenizer_train_config *config, const char *const *texts, int n, int threads,
                   struct tokenizer_train_report *report) {
    struct threads *pool;
    struct tokenizer_trainer *t;
    CHECK_OK(threads_create(&pool, threads));
    CHECK_OK(tokenizer_trainer_create(&t, config, pool));
    for (int i = 0; i < n; i++)
        CHECK_OK(tokenizer_trainer_add(t, texts[i], strlen(texts[i])));
    CHECK_OK(tokenizer_trainer_merge(t, NULL));
    char *path = temporary("out.json");
    CHECK_OK(tokenizer_trainer_save(t, path));
    if (report) *report = tokenizer_trainer_report(t);
    tokenizer_trainer_free(t);
    threads_free(pool);
    struct file_map map;
    CHECK_OK(file_map(&map, path));
    char *text = malloc(map.size + 1);
    memcpy(text, map.data, map.size);
    text[map.size] = '\0';
    file_unmap(&map);
    CHECK_OK(file_remove(path));
    return text;
}

/* The merges of a file as "a b, c d". */
static void merges_of(char *out, size_t capacity, const char *text) {
    struct json j;
    size_t used = 0, length;
    json_open(&j, "out.json", text, strlen(text));
    enum json_event event;
    while ((event = json_next(&j)) != JSON_KEY || !json_equals(&j, "merges"))
        CHECK(event != JSON_END && event != JSON_ERROR);
    CHECK(json_next(&j) == JSON_ARRAY);
    out[0] = '\0';
    while (json_next(&j) == JSON_ARRAY) {
        if (used > 0) used += (size_t)snprintf(out + used, capacity - used, ", ");
        for (int i = 0; i < 2; i++) {
            CHECK(json_next(&j) == JSON_STRING && used + j.length + 4 < capacity);
            CHECK_OK(json_string(&j, out + used, capacity - used, &length));
            used += length;
            if (i == 0) out[used++] = ' ';
        }
        out[used] = '\0';
        CHECK(json_next(&j) == JSON_ARRAY_END);
    }
}

static void check_merges(const char *const *texts, int n, int merges, int64_t least, const char *want) {
    struct tokenizer_train_config config = {.vocab_size = 256 + merges, .min_frequency = least};
    struct tokenizer_train_report report;
    char *text = train(&config, texts, n, 1, &report), got[4096];
    merges_of(got, sizeof got, text);
    CHECK_STR(got, want);
    CHECK_EQ(report.vocab, 256 + report.merges);
    free(text);
}

/* Counts and ids by hand. Ids of bytes are in the order of their characters: letters, then the space, which is
 * U+0120. */
static void test_by_hand(void) {
    /* ab x3, bc x2, cd x1. With ab merged, abc comes from ab+c x2, then d. */
    const char *const chain[] = {"abcd", "abc", "ab"};
    check_merges(chain, 3, 10, 0, "a b, ab c, abc d");
    check_merges(chain, 3, 10, 2, "a b, ab c");
    check_merges(chain, 3, 10, 4, "");
    check_merges(chain, 3, 2, 0, "a b, ab c");
    /* Each pair occurs once: the one with the lowest ids is merged first (first half, then second half), not the first
     * in the text. */
    const char *const ties[] = {"zy", "ba", "bA", "ab"};
    check_merges(ties, 4, 10, 0, "a b, b A, b a, z y");
    /* A leading space belongs to the word. Words do not cross documents: "c" and "d" are never neighbours. */
    const char *const words[] = {"c", "d c", "d c"};
    check_merges(words, 3, 10, 0, "\u0120 c");
    /* From left to right: aaa is aa+a. With aab, (a,a) occurs three times in all, (a,b) once. */
    const char *const overlap[] = {"aaa", "aab"};
    check_merges(overlap, 2, 10, 0, "a a, aa a, aa b");
    /* (b,c) occurs four times at first, and once after ab is merged; then (ab,c) x3 and (x,y) x2 precede it. */
    const char *const falling[] = {"abc", "abc", "abc", "ab", "ab", "bc", "xy", "xy"};
    check_merges(falling, 8, 10, 0, "a b, ab c, x y, b c");
}

struct opened {
    struct tokenizer *t;
    struct tokenizer_scratch *s;
};

static void open_text(struct opened *o, const char *text) {
    char *path = temporary("opened.json");
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    CHECK_OK(tokenizer_open(&o->t, path));
    CHECK_OK(tokenizer_scratch_create(&o->s, o->t));
    CHECK_OK(file_remove(path));
}

static void close_opened(struct opened *o) {
    tokenizer_scratch_free(o->s);
    tokenizer_free(o->t);
}

static void check_encodes(const struct opened *o, const char *text, enum tokenizer_specials specials,
                          const int32_t *want, size_t n_want) {
    const int32_t *ids;
    size_t n;
    CHECK_OK(tokenizer_encode(o->t, o->s, text, strlen(text), specials, &ids, &n));
    CHECK_EQ(n, n_want);
    for (size_t i = 0; i < n; i++)
        CHECK_EQ(ids[i], want[i]);
}

/* 1000 letters a: pairs double to 512 (three 256 and the rest are left). Then every pair occurs once, and the lowest
 * ids are those of the shortest pieces: 32+8, 64+40, 128+104, 256+232, 512+488. */
static void test_one_byte(void) {
    static const size_t lengths[] = {2, 4, 8, 16, 32, 64, 128, 256, 512, 40, 104, 232, 488, 1000};
    char run[1001];
    memset(run, 'a', 1000);
    run[1000] = '\0';
    const char *texts[] = {run};
    struct tokenizer_train_config config = {.vocab_size = 300};
    struct tokenizer_train_report report;
    char *text = train(&config, texts, 1, 1, &report);
    struct opened o;
    open_text(&o, text);
    CHECK_EQ(tokenizer_vocab_size(o.t), 256 + ARRAY_LEN(lengths));
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        CHECK_EQ(strlen(tokenizer_token(o.t, 256 + (int32_t)i)), lengths[i]);
    CHECK_EQ(report.tokens, 1);
    CHECK_EQ(report.words, 1);
    CHECK_EQ(report.distinct, 1);
    check_encodes(&o, run, TOKENIZER_LITERAL, (const int32_t[]){269}, 1);
    close_opened(&o);
    free(text);
}

static void test_empty(void) {
    struct tokenizer_train_config config = {.vocab_size = 400, .specials = eot, .n_specials = 1};
    struct tokenizer_train_report report;
    const char *const empty[] = {"", ""};
    char *nothing = train(&config, NULL, 0, 1, &report);
    CHECK_EQ(report.vocab, 257);
    CHECK_EQ(report.documents, 0);
    char *text = train(&config, empty, 2, 2, &report);
    CHECK_EQ(report.documents, 2);
    CHECK_EQ(report.tokens, 0);
    CHECK_STR(text, nothing);
    struct opened o;
    open_text(&o, text);
    CHECK_EQ(tokenizer_vocab_size(o.t), 257);
    CHECK_STR(tokenizer_token(o.t, 1), "!");
    check_encodes(&o, "!\"", TOKENIZER_LITERAL, (const int32_t[]){1, 2}, 2);
    close_opened(&o);
    free(nothing);
    free(text);
}

/* Special tokens come first. One that spells a byte or a merge is that token. The reserved ids stay unused. */
static void test_specials(void) {
    static const char *const specials[] = {"<|endoftext|>", "b", "ab"};
    const char *const texts[] = {"ab ab ab <|endoftext|>"};
    struct tokenizer_train_config config = {.vocab_size = 262, .reserve = 2, .specials = specials, .n_specials = 3};
    struct tokenizer_train_report report;
    char *text = train(&config, texts, 1, 1, &report);
    struct opened o;
    open_text(&o, text);
    CHECK_EQ(tokenizer_vocab_size(o.t), 260); /* 3 + 255 bytes + 2: ab is not a new token */
    CHECK_EQ(report.merges, 3);
    for (int32_t i = 0; i < 3; i++) {
        CHECK_EQ(tokenizer_id(o.t, specials[i]), i);
        CHECK(tokenizer_is_special(o.t, i));
    }
    CHECK(!tokenizer_is_special(o.t, 3));
    check_encodes(&o, "<|endoftext|>ab", TOKENIZER_RECOGNISE, (const int32_t[]){0, 2}, 2);
    int32_t space_ab = tokenizer_id(o.t, "\u0120ab");
    CHECK(space_ab >= 0);
    check_encodes(&o, "ab ab", TOKENIZER_LITERAL, (const int32_t[]){2, space_ab}, 2);
    close_opened(&o);
    free(text);
}

/* ---- against the reference's files --------------------------------------------------------------------------------
 */

static const char *fixture(const char *name) {
    static char path[FILE_PATH_MAX];
    const char *source = getenv("DRT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/unit/data/tokenizer_train/%s", source ? source : ".", name);
    return path;
}

static void check_fixture(const char *texts, const char *expected, const struct tokenizer_train_config *config,
                          int threads) {
    const char *path = fixture(texts);
    struct reader *r;
    CHECK_OK(reader_open(&r, &(struct reader_config){.inputs = &path, .n_inputs = 1}));
    static char *items[256];
    int n = 0, more;
    for (;; n++) {
        struct document d;
        CHECK_OK(reader_next(r, &d, &more));
        if (!more) break;
        CHECK(n < 256);
        items[n] = strndup(d.text, d.bytes);
    }
    reader_close(r);
    CHECK(n > 10);
    char *text = train(config, (const char *const *)items, n, threads, NULL);
    struct file_map map;
    CHECK_OK(file_map(&map, fixture(expected)));
    for (size_t i = 0; i < map.size; i++)
        if (text[i] != (char)map.data[i]) {
            fprintf(stderr, "%s: byte %zu differs; ours: %.60s\n", expected, i, text + i);
            test_fail(__FILE__, __LINE__, "not the reference's tokenizer");
        }
    CHECK_EQ(strlen(text), map.size);
    file_unmap(&map);
    free(text);
    for (int i = 0; i < n; i++)
        free(items[i]);
}

static void test_reference(void) {
    static const char *const three[] = {"<|begin|>", "<|end|>", "\"\\\n\u00e9"}, *const odd[] = {"abab", "a",
                                                                                                 "<|endoftext|>"};
    for (int threads = 1; threads <= 3; threads += 2) {
        check_fixture("docs.jsonl", "expected-gpt2.json",
                      &(struct tokenizer_train_config){.vocab_size = 500, .specials = eot, .n_specials = 1}, threads);
        check_fixture("docs.jsonl", "expected-llama3.json",
                      &(struct tokenizer_train_config){
                          .vocab_size = 423, .reserve = 3, .pattern = "llama3", .specials = three, .n_specials = 3},
                      threads);
        check_fixture("odd.jsonl", "expected-qwen2.json",
                      &(struct tokenizer_train_config){.vocab_size = 700, .pattern = "qwen2", .min_frequency = 2},
                      threads);
        check_fixture(
            "odd.jsonl", "expected-odd.json",
            &(struct tokenizer_train_config){.vocab_size = 700, .pattern = "gpt2", .specials = odd, .n_specials = 3},
            threads);
    }
}

/* ---- long documents ------------------------------------------------------------------------------------------------
 */

/* Documents of some MB are divided among threads: the words must be those of the whole text. */
static void test_long_document(void) {
    static const char *const bits[] = {"word", " word", "  ", "\n\n",          " \n",    "'ll",
                                       "'",    " 2024", "!?", "\u00e9t\u00e9", "\u3000", "\xff"};
    enum { BYTES = 600000 };
    char *text = malloc(BYTES + 16), *long_run = malloc(200001);
    uint64_t state = 7;
    size_t n = 0;
    while (n < BYTES) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const char *bit = bits[(state >> 33) % (ARRAY_LEN(bits) - 1)]; /* valid so far */
        memcpy(text + n, bit, strlen(bit));
        n += strlen(bit);
    }
    text[n] = '\0';
    uint8_t *classes;
    CHECK_OK(scanner_classes(&classes));
    static const char *const patterns[] = {"gpt2", "llama3", "qwen2"};
    static const enum scanner scanners[] = {SCANNER_GPT2, SCANNER_CL100K, SCANNER_QWEN2};
    for (int p = 0; p < 3; p++) {
        int64_t words = 0;
        for (size_t at = 0; at < n; words++)
            at += scanner_next(scanners[p], classes, text, n, at);
        struct tokenizer_train_config config = {.vocab_size = 300, .pattern = patterns[p]};
        struct tokenizer_train_report report;
        const char *const texts[] = {text};
        free(train(&config, texts, 1, 2, &report));
        CHECK_EQ(report.words, words);
    }
    memory_free(classes);
    /* One word of 200,000 bytes, and bytes that are not UTF-8 (each becomes U+FFFD, three characters). */
    memset(long_run, 'x', 200000);
    long_run[200000] = '\0';
    const char *const texts[] = {long_run, "\xff\xff ok"};
    struct tokenizer_train_config config = {.vocab_size = 259};
    struct tokenizer_train_report report;
    free(train(&config, texts, 2, 2, &report));
    CHECK_EQ(report.words, 3);
    CHECK_EQ(report.merges, 3);
    CHECK_EQ(report.tokens, 25000 + 6 + 3);
    free(long_run);
    free(text);
}

static void check_refused(const struct tokenizer_train_config *config, const char *what) {
    struct tokenizer_trainer *t;
    CHECK_FAILS(tokenizer_trainer_create(&t, config, NULL), STATUS_INVALID, what);
}

static bool stop_at_once(void *context) {
    (void)context;
    return true;
}

static void test_refusals(void) {
    static const char *const twice[] = {"<s>", "</s>", "<s>"}, *const empty[] = {""}, *const broken[] = {"<\xff>"};
    check_refused(&(struct tokenizer_train_config){.vocab_size = 255}, "255 ids is too small");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 258, .reserve = 2, .specials = eot, .n_specials = 1},
                  "1 special tokens, 256 bytes and a reserve of 2 need 259");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 0}, "must be 1 to");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 1 << 25}, "must be 1 to");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 300, .reserve = -1}, "negative");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 300, .pattern = "gpt5"}, "one of gpt2, llama3, qwen2");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 300, .specials = twice, .n_specials = 3},
                  "given twice");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 300, .specials = empty, .n_specials = 1}, "is empty");
    check_refused(&(struct tokenizer_train_config){.vocab_size = 300, .specials = broken, .n_specials = 1},
                  "not valid UTF-8");
    struct tokenizer_trainer *t;
    CHECK_OK(tokenizer_trainer_create(&t, &(struct tokenizer_train_config){.vocab_size = 600}, NULL));
    static char many[40000];
    uint64_t state = 3;
    for (size_t i = 0; i + 1 < sizeof many; i++)
        many[i] = (char)('a' + ((state = state * 6364136223846793005u + 1) >> 40) % 26);
    CHECK_OK(tokenizer_trainer_add(t, many, sizeof many - 1));
    CHECK_FAILS(tokenizer_trainer_merge(t, &(struct progress){.stop_requested = stop_at_once}), STATUS_INTERRUPTED,
                "nothing was written");
    tokenizer_trainer_free(t);
    CHECK_OK(tokenizer_trainer_create(&t, &(struct tokenizer_train_config){.vocab_size = 256}, NULL));
    CHECK_OK(tokenizer_trainer_merge(t, NULL));
    CHECK_FAILS(tokenizer_trainer_save(t, "/nonexistent/tokenizer.json"), STATUS_NOT_FOUND, "/nonexistent");
    tokenizer_trainer_free(t);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_by_hand();
    test_one_byte();
    test_empty();
    test_specials();
    test_reference();
    test_long_document();
    test_refusals();
    return test_done();
}
