/* test_wordpiece.c -- the ids of BertTokenizer in three modes, the cut at the limit, bad vocabularies and options. */
#include "data/wordpiece/wordpiece.h"
#include "tests/oracles/bert_fixture.h"

static const char small[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##b\nab\n##a\n";

static void same_ids(const struct oracle *o, int mode, struct wordpiece_options options) {
    char path[2048];
    struct file_map map;
    struct wordpiece *w;
    struct wordpiece_scratch *s;
    snprintf(path, sizeof path, "%s/vocab.txt", oracle_folder());
    CHECK_OK(file_map(&map, path));
    CHECK_OK(wordpiece_parse(&w, path, map.data, map.size, options));
    file_unmap(&map);
    CHECK_OK(wordpiece_scratch_create(&s));
    for (int t = 0; t < o->n; t++) {
        const int32_t *ids;
        size_t n;
        CHECK_OK(wordpiece_encode(w, s, o->text[t], o->bytes[t], (size_t)o->max_tokens, &ids, &n));
        if ((int)n != o->n_ids[mode][t] || memcmp(ids, o->ids[mode][t], n * sizeof *ids) != 0) {
            fprintf(stderr, "mode %s, text %d\n", oracle_modes[mode], t);
            test_fail(__FILE__, __LINE__, "ids differ from BertTokenizer's");
        }
    }
    wordpiece_scratch_free(s);
    wordpiece_free(w);
}

static enum status parse(struct wordpiece **w, const char *text, size_t bytes) {
    return wordpiece_parse(w, "vocab.txt", text, bytes, (struct wordpiece_options){.lower = true, .strip_accents = -1});
}

static void limits(void) {
    struct wordpiece *w;
    struct wordpiece_scratch *s;
    const int32_t *ids;
    size_t n;
    CHECK_OK(parse(&w, small, sizeof small - 1));
    CHECK_EQ(wordpiece_vocab_size(w), 8);
    CHECK_OK(wordpiece_scratch_create(&s));
    CHECK_OK(wordpiece_encode(w, s, "abba", 4, 512, &ids, &n)); /* ab ##b ##a */
    static const int32_t whole[] = {2, 6, 5, 7, 3};
    CHECK(n == 5 && memcmp(ids, whole, sizeof whole) == 0);
    CHECK_OK(wordpiece_encode(w, s, "abba", 4, 4, &ids, &n));
    CHECK(n == 4 && ids[2] == 5 && ids[3] == 3);
    CHECK_OK(wordpiece_encode(w, s, "a abc a", 7, 512, &ids, &n)); /* a word without a cut is one [UNK] */
    CHECK(n == 5 && ids[2] == 1 && ids[3] == 4);
    CHECK_OK(wordpiece_encode(w, s,
                              "a\xff\xfe"
                              "b\xc3",
                              5, 512, &ids, &n)); /* invalid bytes are dropped */
    CHECK(n == 3 && ids[1] == 6);
    CHECK_OK(wordpiece_encode(w, s, "", 0, 3, &ids, &n));
    CHECK(n == 2 && ids[0] == 2 && ids[1] == 3);
    wordpiece_scratch_free(s);
    wordpiece_free(w);
}

/* Marks keep their order if accents stay: U+0328 has a higher class than U+0EC9. */
static void marks(void) {
    static const char vocab[] = "[UNK]\n[CLS]\n[SEP]\n\xCC\xA8\n##\xE0\xBB\x89\n", text[] = "\xCC\xA8\xE0\xBB\x89";
    struct wordpiece *w;
    struct wordpiece_scratch *s;
    const int32_t *ids;
    size_t n;
    CHECK_OK(wordpiece_parse(&w, "vocab.txt", vocab, sizeof vocab - 1, (struct wordpiece_options){.chinese = true}));
    CHECK_OK(wordpiece_scratch_create(&s));
    CHECK_OK(wordpiece_encode(w, s, text, sizeof text - 1, 512, &ids, &n));
    CHECK(n == 4 && ids[1] == 3 && ids[2] == 4);
    wordpiece_scratch_free(s);
    wordpiece_free(w);
}

static void fingerprints(void) {
    uint8_t a[16], b[16], c[16];
    struct wordpiece *w;
    CHECK_OK(parse(&w, small, sizeof small - 1));
    wordpiece_fingerprint(w, a);
    wordpiece_free(w);
    CHECK_OK(parse(&w, small, sizeof small - 5)); /* without its last line */
    wordpiece_fingerprint(w, b);
    wordpiece_free(w);
    CHECK_OK(wordpiece_parse(&w, "v", small, sizeof small - 1, (struct wordpiece_options){.lower = false}));
    wordpiece_fingerprint(w, c);
    wordpiece_free(w);
    CHECK(memcmp(a, b, 16) != 0 && memcmp(a, c, 16) != 0);
}

static void bad_input(void) {
    struct wordpiece *w;
    struct wordpiece_options o;
    static char line[1200];
    memset(line, 'x', sizeof line);
    CHECK_FAILS(parse(&w, "", 0), STATUS_UNSUPPORTED, "[UNK]");
    CHECK_FAILS(parse(&w, "[UNK]\n[CLS]\na", 13), STATUS_UNSUPPORTED, "vocab.txt: has no token [SEP]");
    CHECK_FAILS(parse(&w, line, sizeof line), STATUS_INVALID, "line 1 has 1200 bytes");
    CHECK_FAILS(wordpiece_open(&w, test_folder()), STATUS_NOT_FOUND, "vocab.txt: no such file");
    CHECK_OK(wordpiece_options_parse(&o, "t", "{\"do_lower_case\":false,\"strip_accents\":null,\"x\":[1]}", 52));
    CHECK(!o.lower && o.chinese && o.strip_accents == -1);
    CHECK_FAILS(wordpiece_options_parse(&o, "t", "{\"do_lower_case\":3}", 19), STATUS_INVALID, "do_lower_case");
    CHECK_FAILS(wordpiece_options_parse(&o, "t", "[1]", 3), STATUS_INVALID, "t");
    static const char japanese[] = "{\"tokenizer_class\":\"BertJapaneseTokenizer\"}";
    CHECK_FAILS(wordpiece_options_parse(&o, "t", japanese, sizeof japanese - 1), STATUS_UNSUPPORTED, "tokenizer_class");
    CHECK_OK(wordpiece_options_parse(&o, "t", "{\"tokenizer_class\":\"BertTokenizer\"}", 35));
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    struct oracle *o = oracle_open();
    same_ids(o, 0, (struct wordpiece_options){.lower = true, .chinese = true, .strip_accents = -1});
    same_ids(o, 1, (struct wordpiece_options){.lower = false, .chinese = true, .strip_accents = -1});
    same_ids(o, 2, (struct wordpiece_options){.lower = true, .chinese = false, .strip_accents = 0});
    free(o);
    limits();
    marks();
    fingerprints();
    bad_input();
    return test_done();
}
