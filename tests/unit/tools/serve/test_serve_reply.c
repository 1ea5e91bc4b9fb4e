/* test_serve_reply.c -- server-sent events, error objects, and the texts of single tokens. */
#include "tests/test.h"
#include "tools/serve/wire/reply.h"

static const char *text_of(struct reply *r) {
    CHECK_OK(reply_flush(r));
    CHECK_OK(reply_add(r, "", 1));
    r->bytes--;
    return r->data;
}

/* An event is one line of data and an empty line, for any text. */
static void test_events(void) {
    struct reply r;
    const char hostile[] = "a\n\ndata: [DONE]\r\n\0</script>\xff\xe2\x80";
    CHECK_OK(reply_open(&r));
    for (int i = 0; i < 2; i++) {
        reply_event_begin(&r);
        json_write_object(&r.json);
        json_write_key(&r.json, "text");
        json_write_bytes(&r.json, hostile, sizeof hostile - 1);
        json_write_object_end(&r.json);
        CHECK_OK(reply_event_end(&r));
    }
    CHECK_OK(reply_event_done(&r));
    const char *text = text_of(&r);
    CHECK(strncmp(text, "data: {\"text\":", 14) == 0);
    int lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    CHECK_EQ(lines, 6);
    CHECK(!strchr(text, '\r'));
    CHECK_STR(text + r.bytes - 16, "\n\ndata: [DONE]\n\n");
    reply_clear(&r);
    CHECK_STR(text_of(&r), "");
    reply_close(&r);
}

static void test_errors(void) {
    struct reply r;
    CHECK_OK(reply_open(&r));
    reply_error(&r, 400, "no \"x\"", "prompt", NULL);
    CHECK_STR(text_of(&r), "{\"error\":{\"message\":\"no \\\"x\\\"\",\"type\":\"invalid_request_error\",\"param\":"
                           "\"prompt\",\"code\":null}}");
    reply_clear(&r);
    json_write_open(&r.json, r.file, 0);
    reply_error(&r, 404, "m", "", "model_not_found");
    CHECK_STR(text_of(&r), "{\"error\":{\"message\":\"m\",\"type\":\"not_found_error\",\"param\":null,\"code\":"
                           "\"model_not_found\"}}");
    reply_close(&r);
}

/* Clients look for a token among the names of its alternatives: both are written alike. */
static void token_is(const char *data, size_t bytes, const char *wanted) {
    struct reply r;
    CHECK_OK(reply_open(&r));
    json_write_array(&r.json);
    reply_token_text(&r, data, bytes, false);
    json_write_object(&r.json);
    reply_token_text(&r, data, bytes, true);
    json_write_int(&r.json, 1);
    json_write_object_end(&r.json);
    json_write_array_end(&r.json);
    char all[400];
    snprintf(all, sizeof all, "[%s,{%s:1}]", wanted, wanted);
    CHECK_STR(text_of(&r), all);
    reply_close(&r);
}

static void test_tokens(void) {
    char large[600];
    memset(large, 'x', sizeof large);
    token_is(" the", 4, "\" the\"");
    token_is("", 0, "\"\"");
    token_is("\xe2\x80", 2, "\"bytes:\\\\xe2\\\\x80\"");
    token_is("a\0b", 3, "\"bytes:\\\\x61\\\\x00\\\\x62\"");
    struct reply r;
    CHECK_OK(reply_open(&r));
    json_write_object(&r.json);
    reply_token_text(&r, large, sizeof large, true); /* truncated without an overflow */
    json_write_int(&r.json, 1);
    json_write_object_end(&r.json);
    CHECK(strlen(text_of(&r)) < 1100);
    reply_close(&r);
    CHECK_EQ(reply_characters("a\xc3\xa9\xe2\x82", 5), 3);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_events();
    test_errors();
    test_tokens();
    return test_done();
}
