/* test_tokenizer.c -- ids and decoded text against the reference package: small tokenizers of every kind in
 * tests/unit/data/tokenizer (made by make_cases.py there), and the golden cases, if they are beside the checkout. Then
 * lookups, added tokens, long words, invalid bytes, and one refusal for each thing that is not supported. */
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_regex.h"
#include "data/tokenizer/tokenizer_scan.h"
#include "data/tokenizer/utf8.h"
#include "tests/test.h"
#include <dirent.h>
#include <utf8proc.h>

static const char *source_folder(void) {
    const char *folder = getenv("DRT_SOURCE");
    return folder ? folder : ".";
}

struct loaded {
    char name[64];
    struct tokenizer *t;
    struct tokenizer_scratch *s;
};

static void load(struct loaded *l, const char *folder, const char *name) {
    char path[FILE_PATH_MAX];
    if (l->t && strcmp(l->name, name) == 0) return;
    tokenizer_scratch_free(l->s);
    tokenizer_free(l->t);
    snprintf(l->name, sizeof l->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    CHECK_OK(tokenizer_open(&l->t, path));
    CHECK_OK(tokenizer_scratch_create(&l->s, l->t));
}

static void unload(struct loaded *l) {
    tokenizer_scratch_free(l->s);
    tokenizer_free(l->t);
    *l = (struct loaded){0};
}

struct row {
    char name[64];
    char *text, *decoded;
    size_t text_bytes, decoded_bytes, n_ids, n_special;
    int32_t *ids, *special;
};

static char *string_of(const struct json *j, size_t *bytes) {
    char *out = malloc(j->length + 1);
    CHECK_OK(json_string(j, out, j->length + 1, bytes));
    return out;
}

static int32_t *ids_of(struct json *j, size_t *count) {
    int32_t *ids = malloc(sizeof *ids * 4096);
    CHECK(json_next(j) == JSON_ARRAY);
    for (*count = 0;;) {
        enum json_event event = json_next(j);
        if (event == JSON_ARRAY_END) return ids;
        int64_t id;
        CHECK(event == JSON_NUMBER && *count < 4096);
        CHECK_OK(json_int(j, &id));
        ids[(*count)++] = (int32_t)id;
    }
}

static void read_row(struct row *row, const char *line, size_t bytes) {
    struct json j;
    *row = (struct row){0};
    json_open(&j, "cases", line, bytes);
    CHECK(json_next(&j) == JSON_OBJECT);
    while (json_next(&j) == JSON_KEY) {
        if (json_equals(&j, "ids")) {
            row->ids = ids_of(&j, &row->n_ids);
        } else if (json_equals(&j, "special_ids")) {
            row->special = ids_of(&j, &row->n_special);
        } else {
            struct json key = j;
            CHECK(json_next(&j) == JSON_STRING);
            if (json_equals(&key, "tokenizer")) CHECK_OK(json_string(&j, row->name, sizeof row->name, NULL));
            if (json_equals(&key, "text")) row->text = string_of(&j, &row->text_bytes);
            if (json_equals(&key, "decoded")) row->decoded = string_of(&j, &row->decoded_bytes);
        }
    }
}

static void free_row(struct row *row) {
    free(row->text);
    free(row->decoded);
    free(row->ids);
    free(row->special);
}

static void check_ids(const struct loaded *l, const struct row *row, enum tokenizer_specials specials,
                      const int32_t *wanted, size_t count) {
    const int32_t *ids;
    size_t n;
    CHECK_OK(tokenizer_encode(l->t, l->s, row->text, row->text_bytes, specials, &ids, &n));
    bool same = n == count && memcmp(ids, wanted, n * sizeof *ids) == 0;
    if (!same) {
        fprintf(stderr, "%s: \"%s\"\n  wanted:", l->name, row->text);
        for (size_t i = 0; i < count; i++)
            fprintf(stderr, " %d", wanted[i]);
        fprintf(stderr, "\n  got:   ");
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, " %d", ids[i]);
        fprintf(stderr, "\n");
    }
    CHECK(same);
}

/* All ids at once, and id by id: the same bytes, and no piece ends inside a character. */
static void check_decoding(const struct loaded *l, const int32_t *ids, size_t n, const char *wanted, size_t bytes) {
    const char *text;
    size_t got;
    CHECK_OK(tokenizer_decode(l->t, l->s, ids, n, false, &text, &got));
    if (wanted && (got != bytes || memcmp(text, wanted, got) != 0)) {
        fprintf(stderr, "%s: decoded \"%s\", wanted \"%s\"\n", l->name, text, wanted);
        test_fail(__FILE__, __LINE__, "decoding differs");
    }
    char *whole = malloc(got + 1), *joined = malloc(got + 64);
    memcpy(whole, text, got + 1);
    CHECK_EQ(text[got], 0);
    size_t whole_bytes = got, used = 0;
    struct tokenizer_stream st;
    tokenizer_stream_start(&st, false);
    for (size_t i = 0; i <= n; i++) {
        if (i < n)
            CHECK_OK(tokenizer_stream_push(l->t, &st, l->s, ids[i], &text, &got));
        else
            CHECK_OK(tokenizer_stream_flush(&st, l->s, &text, &got));
        CHECK_EQ(utf8_valid_prefix(text, got), got);
        CHECK(used + got <= whole_bytes);
        memcpy(joined + used, text, got);
        used += got;
    }
    CHECK_EQ(used, whole_bytes);
    CHECK(memcmp(joined, whole, used) == 0);
    free(whole);
    free(joined);
}

static int run_cases(const char *file, const char *folder, enum tokenizer_specials specials) {
    struct file_map map;
    struct loaded l = {0};
    int rows = 0;
    CHECK_OK(file_map(&map, file));
    const char *line = (const char *)map.data, *end = line + map.size;
    while (line < end) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        struct row row;
        read_row(&row, line, (size_t)((next ? next : end) - line));
        load(&l, folder, row.name);
        check_ids(&l, &row, specials, row.ids, row.n_ids);
        check_ids(&l, &row, specials, row.ids, row.n_ids); /* again: from the cache of words */
        if (row.special) check_ids(&l, &row, TOKENIZER_RECOGNISE, row.special, row.n_special);
        check_decoding(&l, row.ids, row.n_ids, row.decoded, row.decoded_bytes);
        free_row(&row);
        rows++;
        line = next ? next + 1 : end;
    }
    unload(&l);
    file_unmap(&map);
    return rows;
}

static void test_reference(void) {
    char file[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    snprintf(folder, sizeof folder, "%s/tests/unit/data/tokenizer", source_folder());
    CHECK_OK(file_join(file, folder, "cases.jsonl"));
    CHECK(run_cases(file, folder, TOKENIZER_LITERAL) > 1000);
    CHECK_OK(file_join(file, folder, "small_cases.jsonl"));
    CHECK_EQ(run_cases(file, folder, TOKENIZER_LITERAL), 54);
}

static void test_golden(void) {
    const char *shared = getenv("DRT_SHARED");
    char file[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    snprintf(folder, sizeof folder, "%s/golden/tokenizers", shared ? shared : "../shared");
    if (!file_is_directory(folder)) {
        printf("golden cases are not beside the checkout: skipped\n");
        return;
    }
    CHECK_OK(file_join(file, folder, "../tokenizer_cases.jsonl"));
    CHECK_EQ(run_cases(file, folder, TOKENIZER_LITERAL), 1299);
    CHECK_OK(file_join(file, folder, "../tokenizer_special_cases.jsonl"));
    CHECK(run_cases(file, folder, TOKENIZER_RECOGNISE) > 20);
}

static void open_named(struct loaded *l, const char *name) {
    char folder[FILE_PATH_MAX];
    snprintf(folder, sizeof folder, "%s/tests/unit/data/tokenizer", source_folder());
    load(l, folder, name);
}

static void test_lookup(void) {
    struct loaded l = {0};
    open_named(&l, "llama2");
    CHECK_EQ(tokenizer_id(l.t, "<0x41>"), 1 + 0x41);
    CHECK_STR(tokenizer_token(l.t, 1 + 0x41), "<0x41>");
    CHECK_EQ(tokenizer_id(l.t, "no such token"), -1);
    CHECK(tokenizer_token(l.t, -1) == NULL);
    CHECK(tokenizer_token(l.t, tokenizer_vocab_size(l.t)) == NULL);
    CHECK(tokenizer_is_special(l.t, tokenizer_id(l.t, "<|end|>")));
    CHECK(!tokenizer_is_special(l.t, tokenizer_id(l.t, "a")));
    CHECK(!tokenizer_is_special(l.t, -5));
    uint8_t a[16], b[16];
    tokenizer_fingerprint(l.t, a);
    open_named(&l, "gemma");
    tokenizer_fingerprint(l.t, b);
    CHECK(memcmp(a, b, 16) != 0);
    open_named(&l, "llama2");
    tokenizer_fingerprint(l.t, b);
    CHECK(memcmp(a, b, 16) == 0);
    unload(&l);
}

static void check_text(struct loaded *l, const int32_t *ids, size_t n, bool skip, const char *wanted) {
    const char *text;
    size_t bytes;
    CHECK_OK(tokenizer_decode(l->t, l->s, ids, n, skip, &text, &bytes));
    CHECK_STR(text, wanted);
    CHECK_EQ(bytes, strlen(wanted));
}

static void test_decoding(void) {
    struct loaded l = {0};
    open_named(&l, "llama2");
    int32_t end = tokenizer_id(l.t, "<|end|>"), a = tokenizer_id(l.t, "\xE2\x96\x81w");
    CHECK(end >= 0 && a >= 0);
    check_text(&l, (int32_t[]){a, end, a}, 3, true, "w w");
    check_text(&l, (int32_t[]){0xE4 + 1, 0xB8 + 1, 0xAD + 1, a}, 4, true, "\xE4\xB8\xAD w");
    check_text(&l, (int32_t[]){0xE4 + 1, 0xB8 + 1, a}, 3, true, "\xEF\xBF\xBD\xEF\xBF\xBD w"); /* one for each byte */
    check_text(&l, (int32_t[]){0xE4 + 1, 0xB8 + 1}, 2, true, "\xEF\xBF\xBD\xEF\xBF\xBD");
    check_text(&l, (int32_t[]){a, -7, 1 << 20, a}, 4, true, "w\xEF\xBF\xBD\xEF\xBF\xBD w");
    check_text(&l, NULL, 0, true, "");
    open_named(&l, "cl100k");
    int32_t e4 = tokenizer_id(l.t, "\xC3\xA4"), b8 = tokenizer_id(l.t, "\xC2\xB8"), x = tokenizer_id(l.t, "x");
    CHECK(e4 >= 0 && b8 >= 0 && x >= 0);                              /* the bytes E4 and B8 in byte-level spelling */
    check_text(&l, (int32_t[]){e4, b8, x}, 3, true, "\xEF\xBF\xBDx"); /* one for each sequence */
    check_text(&l, (int32_t[]){b8, b8, e4}, 3, true, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    unload(&l);
}

/* Invalid bytes have the ids of the repaired text. */
static void test_invalid_bytes(void) {
    struct loaded l = {0};
    open_named(&l, "cl100k");
    const int32_t *ids;
    int32_t kept[64];
    size_t n, kept_n;
    CHECK_OK(tokenizer_encode(l.t, l.s,
                              "a\xEF\xBF\xBD"
                              "b \xEF\xBF\xBD",
                              9, TOKENIZER_LITERAL, &ids, &kept_n));
    memcpy(kept, ids, kept_n * sizeof *ids);
    CHECK_OK(tokenizer_encode(l.t, l.s,
                              "a\xE4\xB8"
                              "b \xFF",
                              6, TOKENIZER_LITERAL, &ids, &n));
    CHECK_EQ(n, kept_n);
    CHECK(memcmp(ids, kept, n * sizeof *ids) == 0);
    unload(&l);
}

/* A megabyte that cannot be split is encoded in linear time, and decodes to the same text. */
static void test_long_word(void) {
    static const char *const names[] = {"cl100k", "llama2", "metaspace-whole", "deepseek"};
    size_t bytes = 1 << 20;
    char *text = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        text[i] = "etaoinshrdlu"[(i * 7919 + i / 13 + i / 1001) % 12];
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        struct loaded l = {0};
        const int32_t *ids;
        size_t n, got;
        const char *back;
        open_named(&l, names[k]);
        CHECK_OK(tokenizer_encode(l.t, l.s, text, bytes, TOKENIZER_LITERAL, &ids, &n));
        int32_t *copy = malloc(n * sizeof *copy);
        memcpy(copy, ids, n * sizeof *copy);
        CHECK_OK(tokenizer_decode(l.t, l.s, copy, n, false, &back, &got));
        CHECK_EQ(got, bytes);
        CHECK(memcmp(back, text, bytes) == 0);
        free(copy);
        unload(&l);
    }
    /* A base with a hundred thousand marks in the wrong order: normalisation must not be quadratic either. */
    struct loaded l = {0};
    const int32_t *ids;
    size_t n;
    open_named(&l, "qwen2");
    for (size_t i = 0; i + 4 <= bytes; i += 4)
        memcpy(text + i, i % 8 ? "\xCC\x81\xCC\xA3" : "\xCC\xA3\xCC\xB4", 4);
    CHECK_OK(tokenizer_encode(l.t, l.s, text, bytes, TOKENIZER_LITERAL, &ids, &n));
    CHECK(n > 0);
    unload(&l);
    free(text);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static char scratch_path[FILE_PATH_MAX];

static void refuse(const char *json, enum status code, const char *text) {
    struct tokenizer *t = NULL;
    FILE *f = fopen(scratch_path, "wb");
    CHECK(f);
    fputs(json, f);
    fclose(f);
    CHECK_FAILS(tokenizer_open(&t, scratch_path), code, text);
    CHECK(strstr(status_message(), scratch_path));
    CHECK(strchr(status_message(), '\n') == NULL);
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void refuse_part(const char *part, const char *value, const char *text) {
    char json[2000];
    snprintf(json, sizeof json, "{\"%s\":%s," MODEL "}", part, value);
    refuse(json, STATUS_UNSUPPORTED, text);
}

static void test_refusals(void) {
    struct tokenizer *t;
    snprintf(scratch_path, sizeof scratch_path, "%s/tokenizer.json", test_folder());
    CHECK_FAILS(tokenizer_open(&t, "/no/such/file.json"), STATUS_NOT_FOUND, "/no/such/file.json");
    refuse("", STATUS_INVALID, "line 1");
    refuse("{\"model\":", STATUS_INVALID, "line 1");
    refuse("[]", STATUS_INVALID, "an object");
    refuse("{}", STATUS_INVALID, "no model");
    refuse("{" MODEL "} x", STATUS_INVALID, "nothing after");
    refuse("{" MODEL ",\"extra\":1}", STATUS_UNSUPPORTED, "\"extra\"");
    refuse("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{},\"merges\":[]}}", STATUS_UNSUPPORTED, "BPE");
    refuse("{\"model\":{\"vocab\":{}}}", STATUS_INVALID, "merges");
    refuse("{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", STATUS_INVALID, "id 0");
    refuse("{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", STATUS_INVALID, "twice");
    refuse("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", STATUS_INVALID, "-1");
    refuse("{\"model\":{\"vocab\":{\"a\":99999999},\"merges\":[]}}", STATUS_INVALID, "99999999");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", STATUS_INVALID, "\"b\"");
    refuse("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]}}", STATUS_INVALID, "\"ab\"");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", STATUS_INVALID, "two tokens");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", STATUS_INVALID, "merge");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}", STATUS_UNSUPPORTED, "dropout");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}", STATUS_INVALID, "unk_token");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", STATUS_UNSUPPORTED,
           "end_of_word_suffix");
    refuse("{\"model\":{\"vocab\":{\"\xFF\":0},\"merges\":[]}}", STATUS_INVALID, "UTF-8");
    refuse("{" MODEL ",\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]}", STATUS_INVALID, "has the id 1, and 0");
    refuse("{" MODEL ",\"added_tokens\":[{\"id\":1,\"content\":\"new\"}]}", STATUS_INVALID, "id 1");
    refuse_part("truncation", "{\"max_length\":5}", "truncation");
    refuse_part("padding", "{}", "padding");
    refuse_part("normalizer", "{\"type\":\"Lowercase\"}", "\"Lowercase\"");
    refuse_part("normalizer", "{\"type\":\"NFC\",\"more\":1}", "\"more\"");
    refuse_part("normalizer", "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Nmt\"}]}",
                "\"Nmt\"");
    refuse_part("pre_tokenizer", "{\"type\":\"BertPreTokenizer\"}", "\"BertPreTokenizer\"");
    refuse_part("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\bx\"},\"behavior\":\"Isolated\"}",
                "\\b");
    refuse_part("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(x\"},\"behavior\":\"Isolated\"}",
                "pattern");
    refuse_part("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}",
                "intersection");
    refuse_part("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Odd\"}",
                "behavior");
    refuse_part("pre_tokenizer",
                "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}",
                "after ByteLevel");
    refuse_part("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"\"}",
                "matches an empty text");
    refuse("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"b\"},"
           "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}," MODEL "}",
           STATUS_UNSUPPORTED, "prepend_scheme");
    refuse_part("post_processor", "{\"type\":\"Unknown\"}", "\"Unknown\"");
    refuse_part("decoder", "{\"type\":\"WordPiece\"}", "\"WordPiece\"");
    refuse_part("decoder",
                "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
                "Strip");
}

/* ---- Unicode ------------------------------------------------------------------------------------------------------
 */

/* The marks of Unicode 13 are not reordered, and those of Unicode 9 are. */
static void test_newer_marks(void) {
    static const char json[] =
        "{\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\u0345\":0,\"\\u1ac0\":1,"
        "\"\\u0301\":2,\"e\":3},\"merges\":[]}}";
    static const char text[] = "\xCD\x85\xE1\xAB\x80" /* U+0345 (class 240), U+1AC0 (220) */
                               "\xCD\x85\xCC\x81"     /* U+0345, U+0301 (230) */
                               "e\xE1\xAB\x80\xCC\x81";
    static const int32_t wanted[] = {0, 1, 2, 0, 3, 1, 2};
    struct loaded l = {0};
    FILE *f = fopen(scratch_path, "wb");
    CHECK(f && fputs(json, f) >= 0 && fclose(f) == 0);
    CHECK_OK(tokenizer_open(&l.t, scratch_path));
    CHECK_OK(tokenizer_scratch_create(&l.s, l.t));
    const int32_t *ids;
    size_t n;
    CHECK_OK(tokenizer_encode(l.t, l.s, text, sizeof text - 1, TOKENIZER_LITERAL, &ids, &n));
    CHECK_EQ(n, ARRAY_LEN(wanted));
    CHECK(memcmp(ids, wanted, sizeof wanted) == 0);
    unload(&l);
}

static void test_newer_letters(void) {
    uint8_t *classes;
    CHECK_OK(scanner_classes(&classes));
    CHECK_EQ(classes[0x31350], CLASS_LETTER); /* a Chinese character of Unicode 15 */
    CHECK_EQ(classes[0x2EBF0], CLASS_LETTER); /* and of 15.1 */
    CHECK_EQ(classes[0x1CCF0], CLASS_NUMBER); /* a digit of Unicode 16 */
    for (int32_t code = 0; code < 0x110000; code++) {
        const char *category = utf8proc_category_string(code);
        const int class = *category == 'L' ? CLASS_LETTER : *category == 'N' ? CLASS_NUMBER : CLASS_OTHER;
        if (class != CLASS_OTHER) CHECK_EQ(classes[code], class);
        if (*category == 'Z') CHECK_EQ(classes[code], CLASS_SPACE);
    }
    memory_free(classes);
}

/* Where PCRE2's classes differ from Oniguruma's. */
static void test_patterns(void) {
    static const struct {
        const char *pattern, *text;
        bool match;
    } cases[] = {
        {"\\w", "\xC2\xB2", true}, /* a superscript 2 is in \w, but not in a class that has it */
        {"[\\w]", "\xC2\xB2", false},
        {"[^\\w]", "\xC2\xB2", true},
        {"\\W", "\xC2\xB2", false},
        {"\\p{Han}", "\xE4\xB8\xAD", true},
        {"\\p{Han}", "\xE3\x80\x81", false}, /* a comma that Chinese shares with Japanese */
        {"[\\p{Han}]", "\xE3\x80\x81", false},
        {"\\P{Han}", "\xE3\x80\x81", true},
        {"\\p{^Han}", "\xE3\x80\x81", true},
        {"\\p{Lu}{1}", "A", true},
        {"a{x", "a{x", true},
    };
    struct regex_scratch *scratch;
    CHECK_OK(regex_scratch_create(&scratch));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct regex *regex;
        bool found;
        size_t begin, end;
        CHECK_OK(regex_create(&regex, "t", cases[i].pattern));
        CHECK_OK(regex_search(regex, scratch, cases[i].text, strlen(cases[i].text), 0, &found, &begin, &end));
        if (found != cases[i].match) test_fail(__FILE__, __LINE__, cases[i].pattern);
        regex_free(regex);
    }
    regex_scratch_free(scratch);
    struct regex *regex;
    CHECK_FAILS(regex_create(&regex, "t", "\\p{N}{1,3}+"), STATUS_UNSUPPORTED, "t: the pattern uses + after {n,m}");
    CHECK_FAILS(regex_create(&regex, "t", "a{2}?"), STATUS_UNSUPPORTED, "{n}?");
    CHECK_FAILS(regex_create(&regex, "t", "a{,2}"), STATUS_UNSUPPORTED, "{,n}");
    CHECK_FAILS(regex_create(&regex, "t", "\\p{Han"), STATUS_UNSUPPORTED, "{ without }");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_reference();
    test_golden();
    test_lookup();
    test_decoding();
    test_invalid_bytes();
    test_long_word();
    test_refusals();
    test_newer_marks();
    test_newer_letters();
    test_patterns();
    return test_done();
}
