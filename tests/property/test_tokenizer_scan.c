/* test_tokenizer_scan.c -- the hand-written scanners cut random Unicode text exactly as their patterns do in PCRE2, and
 * as many words at a time as one by one. */
#include "base/memory.h"
#include "base/rng.h"
#include "data/tokenizer/tokenizer_internal.h"
#include "data/tokenizer/utf8.h"
#include "tests/test.h"

enum { ROUNDS = 60000, LENGTH_MAX = 40, LONG_ROUNDS = 20000, LONG_MAX = 400 };

static uint32_t random_code(struct rng *rng) {
    static const uint32_t often[] = {' ',    ' ',   ' ',   '\n',   '\r',    '\t',   '\'',   '\'',   's',    'S',  'T',
                                     'l',    'L',   'r',   'e',    'V',     'd',    'M',    'a',    'Z',    '0',  '9',
                                     '!',    '-',   0x17F, 0x85,   0xA0,    0x3000, 0x2028, 0x180E, 0x200B, 0xE9, 0x301,
                                     0x4E2D, 0x663, 0xBD,  0x2160, 0x1F600, 0xFEFF, 0x1C5,  0};
    uint64_t kind = rng_below(rng, 10);
    if (kind < 7) return often[rng_below(rng, ARRAY_LEN(often))];
    uint32_t code = kind == 7 ? (uint32_t)rng_below(rng, 0x3000) : (uint32_t)rng_below(rng, 0x110000);
    return code >= 0xD800 && code < 0xE000 ? 'x' : code;
}

/* PCRE2 and utf8proc may know different versions of Unicode: characters whose class differs are left out. */
static uint8_t *agreed(const uint8_t *classes) {
    static const char *const patterns[] = {"[^\\s\\p{L}\\p{N}]", "\\p{L}", "\\p{N}", "\\s"};
    struct regex *regex[4];
    struct regex_scratch *scratch;
    uint8_t *good = calloc(0x110000, 1);
    CHECK_OK(regex_scratch_create(&scratch));
    for (int i = 0; i < 4; i++)
        CHECK_OK(regex_create(&regex[i], "test", patterns[i]));
    int count = 0;
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xD800 && code < 0xE000) continue;
        char text[4];
        bool found;
        size_t begin, end;
        CHECK_OK(regex_search(regex[classes[code]], scratch, text, (size_t)utf8_encode(text, code), 0, &found, &begin,
                              &end));
        good[code] = found;
        count += found;
    }
    CHECK(count > 1100000); /* nearly all of 1,112,064: some thousand new letters are left out */
    for (int i = 0; i < 4; i++)
        regex_free(regex[i]);
    regex_scratch_free(scratch);
    return good;
}

static void test_scanner(enum scanner scanner, const uint8_t *classes, const uint8_t *good) {
    struct regex *regex;
    struct regex_scratch *scratch;
    struct rng rng = rng_make(test_seed(), (uint64_t)scanner);
    CHECK_EQ(scanner_find(scanner_pattern(scanner)), scanner);
    CHECK_OK(regex_create(&regex, "test", scanner_pattern(scanner)));
    CHECK_OK(regex_scratch_create(&scratch));
    for (int round = 0; round < ROUNDS; round++) {
        char text[4 * LENGTH_MAX];
        size_t bytes = 0;
        int length = 1 + (int)rng_below(&rng, LENGTH_MAX);
        for (int i = 0; i < length; i++) {
            uint32_t code = random_code(&rng);
            if (good[code]) bytes += (size_t)utf8_encode(text + bytes, code);
        }
        char *exact = malloc(bytes ? bytes : 1); /* so that a sanitizer sees a read past the end */
        memcpy(exact, text, bytes);
        for (size_t at = 0; at < bytes;) {
            bool found;
            size_t begin, end, got = scanner_next(scanner, classes, exact, bytes, at);
            CHECK_OK(regex_search(regex, scratch, exact, bytes, at, &found, &begin, &end));
            if (!found || begin != at || end != at + got) {
                fprintf(stderr, "scanner %d, round %d, at %zu: %zu bytes, PCRE2 says %zu: \"%.*s\"\n", (int)scanner,
                        round, at, got, end - begin, (int)bytes, exact);
                test_fail(__FILE__, __LINE__, "the scanner differs from its pattern");
            }
            at = end;
        }
        free(exact);
    }
    regex_free(regex);
    regex_scratch_free(scratch);
}

/* Characters of ASCII, and in some rounds others. */
static size_t random_long(struct rng *rng, char *text) {
    static const char often[] = "  \n\t\r''''sdmtrevl llaZ09!-_AZ[az{/:@`";
    const uint64_t others = rng_below(rng, 4) == 0 ? 1 + rng_below(rng, 40) : 1000000, repeats = rng_below(rng, 6);
    const int length = 1 + (int)rng_below(rng, LONG_MAX);
    size_t bytes = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && rng_below(rng, 8) < repeats && (uint8_t)text[bytes - 1] < 0x80) {
            text[bytes] = text[bytes - 1];
            bytes++;
        } else if (rng_below(rng, others) == 0) {
            bytes += (size_t)utf8_encode(text + bytes, random_code(rng));
        } else {
            text[bytes++] =
                rng_below(rng, 4) == 0 ? (char)rng_below(rng, 0x80) : often[rng_below(rng, sizeof often - 1)];
        }
    }
    return bytes;
}

/* Many words at a time are those that are found one by one. */
static void test_words(enum scanner scanner, const uint8_t *classes) {
    struct rng rng = rng_make(test_seed(), 10 + (uint64_t)scanner);
    for (int round = 0; round < LONG_ROUNDS; round++) {
        char text[4 * LONG_MAX];
        const size_t bytes = random_long(&rng, text);
        char *exact = malloc(bytes); /* so that a sanitizer sees a read past the end */
        memcpy(exact, text, bytes);
        size_t ends[SCANNER_WORDS_MAX];
        for (size_t at = 0; at < bytes;) {
            const int n = scanner_words(scanner, classes, exact, bytes, at, ends);
            CHECK(n > 0 && n <= SCANNER_WORDS_MAX);
            for (int i = 0; i < n; at = ends[i++])
                if (at >= bytes || ends[i] != at + scanner_next(scanner, classes, exact, bytes, at)) {
                    fprintf(stderr, "scanner %d, round %d, at %zu: the word ends at %zu: \"%.*s\"\n", (int)scanner,
                            round, at, ends[i], (int)bytes, exact);
                    test_fail(__FILE__, __LINE__, "words at a time differ from one by one");
                }
        }
        free(exact);
    }
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    uint8_t *classes;
    CHECK_OK(scanner_classes(&classes));
    uint8_t *good = agreed(classes);
    test_scanner(SCANNER_GPT2, classes, good);
    test_scanner(SCANNER_CL100K, classes, good);
    test_scanner(SCANNER_QWEN2, classes, good);
    test_words(SCANNER_GPT2, classes);
    test_words(SCANNER_CL100K, classes);
    test_words(SCANNER_NONE, classes);
    free(good);
    memory_free(classes);
    return test_done();
}
