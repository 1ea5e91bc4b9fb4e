/* fuzz_serve_request.c -- any bytes as a request: the first line is a path, a Host, an Origin and a key, the rest a
 * body. An accepted body is within every limit; a refused one leaves a message, and its memory can be freed.
 */
#include "tools/serve/wire/reply.h"
#include "tools/serve/wire/request.h"
#include "tools/serve/wire/route.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct request_limits limits = {
    .vocab_size = 1000, .max_tokens = 100, .max_prompt_tokens = 50, .max_prompts = 4, .chunk = 63};

static void must(bool condition) {
    if (!condition) abort();
}

static void check_ids(const struct request_text *text) {
    must(text->n_ids <= limits.max_prompt_tokens);
    for (int64_t i = 0; i < text->n_ids; i++)
        must(text->ids[i] >= 0 && text->ids[i] < limits.vocab_size);
}

static void try_completion(const char *body, size_t bytes) {
    struct completion_request r;
    if (completion_request_parse(&r, body, bytes, &limits) == STATUS_OK) {
        must(r.n_prompts >= 1 && r.n_prompts <= limits.max_prompts && r.n_stops <= REQUEST_STOPS);
        must(r.max_tokens >= 0 && r.max_tokens <= limits.max_tokens && (r.max_tokens > 0 || r.echo));
        must(r.temperature >= 0 && r.temperature <= 100 && r.top_p > 0 && r.top_p <= 1 && r.min_p >= 0 && r.min_p <= 1);
        must(r.logprobs >= -1 && r.logprobs <= REQUEST_TOP_MAX && r.show >= 0 && r.show <= REQUEST_TOP_MAX);
        must(r.continuation >= 0 && r.continuation <= REQUEST_CONTINUATION && r.overlap >= 0 &&
             r.overlap < limits.chunk);
        must(r.overlap == 0 || r.continuation > 0);
        must(r.query_tokens >= 0 && r.query_tokens <= REQUEST_QUERY_TOKENS);
        must(r.query_tokens == 0 || r.searcher != SEARCH_LANDMARK);
        must(r.source < RETRIEVAL_SOURCES && r.memory < RETRIEVAL_MEMORIES);
        for (int i = 0; i < r.n_prompts; i++)
            check_ids(&r.prompts[i]);
        for (int i = 0; i < r.n_stops; i++)
            must(r.stops[i][0] != 0);
    } else {
        must(status_message()[0] != 0 && memchr(r.param, 0, sizeof r.param) != NULL);
    }
    completion_request_free(&r);
}

static void try_others(const char *body, size_t bytes) {
    struct search_request s;
    struct token_request t;
    if (search_request_parse(&s, body, bytes, &limits) == STATUS_OK) {
        must((s.query.bytes > 0) != (s.query.n_ids > 0) && s.k >= 1 && s.k <= REQUEST_HITS_MAX);
        check_ids(&s.query);
    }
    search_request_free(&s);
    if (tokenize_request_parse(&t, body, bytes) == STATUS_OK) must(t.text.data != NULL);
    token_request_free(&t);
    if (detokenize_request_parse(&t, body, bytes, &limits) == STATUS_OK) check_ids(&t.text);
    token_request_free(&t);
}

/* Any bytes as a token's text: an event is one line. */
static void try_reply(const char *body, size_t bytes) {
    struct reply r;
    must(reply_open(&r) == STATUS_OK);
    reply_event_begin(&r);
    json_write_object(&r.json);
    reply_token_text(&r, body, bytes, true);
    reply_token_text(&r, body, bytes, false);
    json_write_object_end(&r.json);
    must(reply_event_end(&r) == STATUS_OK);
    must(memchr(r.data, '\n', r.bytes) == r.data + r.bytes - 2);
    reply_close(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char line[256];
    const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
    size_t head = newline ? (size_t)(newline - data) : 0;
    if (head >= sizeof line) head = sizeof line - 1;
    if (head) memcpy(line, data, head);
    line[head] = 0;
    char *at = line;
    const char *parts[4];
    for (int i = 0; i < 4; i++)
        parts[i] = at ? strsep(&at, "\t") : NULL;
    const char *path = parts[0] ? parts[0] : "";
    for (int i = 0; i < 4; i++) {
        static const char *const methods[] = {"GET", "POST", "OPTIONS", "X"};
        struct route r = route_find(methods[i], path);
        must(r.endpoint < ENDPOINTS && (r.status != 200 || r.endpoint != ENDPOINT_UNKNOWN));
        must(r.status != 405 || r.allow);
    }
    if (route_host_allowed(parts[1], NULL, 0))
        must(strncasecmp(parts[1], "localhost", 9) == 0 || strspn(parts[1], "127.0[:]") > 4);
    if (parts[2] && route_origin_allowed(parts[2], parts[1], NULL)) must(parts[1] && strcasestr(parts[2], parts[1]));
    if (parts[3]) must(!route_key_matches(parts[3], "a key that no input has"));
    const char *body = newline ? (const char *)newline + 1 : (const char *)data;
    size_t bytes = size - (size_t)(newline ? newline + 1 - data : 0);
    try_completion(body, bytes);
    try_others(body, bytes);
    if (bytes) try_reply(body, bytes);
    return 0;
}
