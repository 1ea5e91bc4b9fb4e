/* test_json.c -- the parser on valid and invalid texts; the parser reads what the writer wrote. */
#include "base/formats/json.h"
#include "tests/test.h"
#include <locale.h>

/* The events of a text as letters, "!" for an error. */
static const char *events(const char *text) {
    static char out[256];
    static const char letters[] = "!.{}[]ksntfz";
    struct json j;
    size_t n = 0;
    json_open(&j, "t", text, strlen(text));
    enum json_event e;
    do {
        e = json_next(&j);
        out[n++] = letters[e];
    } while (e != JSON_ERROR && e != JSON_END && n < sizeof out - 1);
    out[n] = 0;
    return out;
}

static void test_events(void) {
    CHECK_STR(events("{}"), "{}.");
    CHECK_STR(events(" [ ] "), "[].");
    CHECK_STR(events("{\"a\":[1,2.5e-3,-0,true,false,null,\"x\"],\"b\":{}}"), "{k[nnntfzs]k{}}.");
    CHECK_STR(events("12"), "n.");
    static const char *const bad[] = {
        "",    "{",     "[1,]",  "{\"a\"}", "{\"a\":}", "{\"a\":1,}",        "01",    "1.",
        "-",   ".5",    "1e",    "\"a",     "\"\\x\"",  "\"\\u12g4\"",       "[1 2]", "[1]]",
        "tru", "nulls", "{a:1}", "\"\n\"",  "\"\\",     "{\"a\":1 \"b\":2}", "+1",    "[1,,2]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(strchr(events(bad[i]), '!'));
    char deep[200];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    CHECK(strchr(events(deep), '!'));
}

static void test_strings(void) {
    static const char text[] = "\"a\\n\\u00e9\\ud83d\\ude00\\ud800x\\/\\\"\"";
    struct json j;
    json_open(&j, "t", text, strlen(text));
    CHECK(json_next(&j) == JSON_STRING);
    char out[64];
    size_t length = 0;
    CHECK_OK(json_string(&j, out, j.length + 1, &length));
    CHECK_STR(out, "a\n\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbdx/\"");
    CHECK_EQ(length, strlen(out));
    CHECK(json_equals(&j, out));
    CHECK(!json_equals(&j, "a"));
    CHECK_FAILS(json_string(&j, out, 3, NULL), STATUS_INVALID, "shorter string");
}

static void test_numbers(void) {
    static const char text[] = "[9223372036854775807, 9223372036854775808, 1.5, 1e999]";
    struct json j;
    json_open(&j, "f.json", text, strlen(text));
    int64_t i = 0;
    double d = 0;
    CHECK_OK(json_expect(&j, JSON_ARRAY, "array"));
    CHECK_OK(json_next_int(&j, &i));
    CHECK(i == INT64_MAX);
    CHECK_FAILS(json_next_int(&j, &i), STATUS_INVALID, "f.json: line 1, column 23: expected an integer of 64 bits");
    CHECK_OK(json_next_double(&j, &d));
    CHECK(d == 1.5);
    CHECK_FAILS(json_next_double(&j, &d), STATUS_INVALID, "finite");
    json_open(&j, "steps", "1.5", 3);
    CHECK_FAILS(json_next_int(&j, &i), STATUS_INVALID, "steps: line 1, column 1: expected an integer of 64 bits");
    CHECK(!strstr(status_message(), "ends"));
    json_open(&j, "data", "5", 1);
    CHECK_FAILS(json_expect(&j, JSON_ARRAY, "a list"), STATUS_INVALID, "expected a list");
    CHECK(!strstr(status_message(), "ends"));
    json_open(&j, "data", "[5", 2);
    CHECK_OK(json_expect(&j, JSON_ARRAY, "a list"));
    CHECK_OK(json_next_int(&j, &i));
    CHECK_FAILS(json_next_int(&j, &i), STATUS_INVALID, "expected an integer but the text ends there");
}

static void test_skipping(void) {
    static const char text[] = "{\"a\":{\"x\":[1,{\"y\":2}]},\"b\":3}";
    struct json j;
    json_open(&j, "t", text, strlen(text));
    CHECK(json_next(&j) == JSON_OBJECT && json_next(&j) == JSON_KEY);
    CHECK_OK(json_skip(&j));
    CHECK(json_next(&j) == JSON_KEY && json_equals(&j, "b"));
    int64_t v = 0;
    CHECK_OK(json_next_int(&j, &v));
    CHECK_EQ(v, 3);
    json_open(&j, "t", text, strlen(text));
    CHECK(json_next(&j) == JSON_OBJECT);
    CHECK_OK(json_skip_rest(&j));
    CHECK(json_next(&j) == JSON_END);
}

static void test_writer(int indent) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    struct json_writer w;
    json_write_open(&w, file, indent);
    json_write_object(&w);
    json_write_key(&w, "quote\"\x01");
    json_write_string(&w, "tab\t\xff\xc3\xa9");
    json_write_key(&w, "list");
    json_write_array(&w);
    json_write_int(&w, -5);
    json_write_double(&w, 0.1);
    json_write_double(&w, NAN);
    json_write_bool(&w, true);
    json_write_null(&w);
    json_write_array_end(&w);
    json_write_key(&w, "empty");
    json_write_object(&w);
    json_write_object_end(&w);
    json_write_object_end(&w);
    fclose(file);
    CHECK_STR(events(text), "{ks"
                            "k[nnztz]"
                            "k{}}.");
    CHECK(strstr(text, "tab\\t\xef\xbf\xbd\xc3\xa9"));
    CHECK(strstr(text, "0.1"));
    free(text);
}

/* Makes the locale zz_ZZ, whose numbers have a decimal comma. Returns whether this machine could. */
static bool make_comma_locale(void) {
    FILE *file = fopen(test_path("comma"), "w");
    fputs("LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n", file);
    fclose(file);
    file = fopen(test_path("ascii"), "w");
    fputs("<code_set_name> ASCII\n<comment_char> %\n<escape_char> /\nCHARMAP\n", file);
    for (int i = 0; i < 128; i++)
        fprintf(file, "<U%04X> /x%02x X\n", i, i);
    fputs("END CHARMAP\n", file);
    fclose(file);
    char command[4096];
    snprintf(command, sizeof command, "cd '%s' && localedef -c -i ./comma -f ./ascii ./zz_ZZ >/dev/null 2>&1",
             test_path("."));
    (void)!system(command); /* warns that all other categories are missing, and exits with 1 */
    setenv("LOCPATH", test_path("."), 1);
    return setlocale(LC_NUMERIC, "zz_ZZ") != NULL;
}

/* A program that uses the library may have called setlocale. */
static void test_decimal_comma(void) {
    if (!make_comma_locale()) {
        puts("not tried: a locale with a decimal comma (localedef)");
        return;
    }
    char number[16];
    snprintf(number, sizeof number, "%.1f", 0.5);
    CHECK_STR(number, "0,5");
    test_numbers();
    test_writer(0);
    struct json j;
    double d = 0;
    json_open(&j, "t", "-1234.5678", 10);
    CHECK_OK(json_next_double(&j, &d));
    CHECK(d == -1234.5678);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    struct json_writer w;
    json_write_open(&w, file, 0);
    json_write_double(&w, -1234.5678);
    fclose(file);
    CHECK_STR(text, "-1234.5678");
    free(text);
    snprintf(number, sizeof number, "%.1f", 0.5); /* the program's locale is as before */
    CHECK_STR(number, "0,5");
    setlocale(LC_NUMERIC, "C");
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_events();
    test_strings();
    test_numbers();
    test_skipping();
    test_writer(0);
    test_writer(2);
    test_decimal_comma();
    return test_done();
}
