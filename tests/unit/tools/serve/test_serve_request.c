/* test_serve_request.c -- JSON bodies to requests: defaults, every wrong type, limits, refusals. */
#include "tests/test.h"
#include "tools/serve/wire/request.h"

static const struct request_limits limits = {
    .vocab_size = 100, .max_tokens = 1000, .max_prompt_tokens = 8, .max_prompts = 3, .chunk = 63};

static void refused(const char *body, const char *param, const char *message) {
    struct completion_request r;
    CHECK_FAILS(completion_request_parse(&r, body, strlen(body), &limits), STATUS_INVALID, message);
    CHECK_STR(r.param, param);
    completion_request_free(&r);
}

static struct completion_request accepted(const char *body) {
    struct completion_request r;
    CHECK_OK(completion_request_parse(&r, body, strlen(body), &limits));
    CHECK_STR(r.param, "");
    return r;
}

static void test_defaults(void) {
    struct completion_request r = accepted("{\"prompt\": \"a\\u00e9\\u0000b\"}");
    CHECK_EQ(r.n_prompts, 1);
    CHECK_EQ(r.prompts[0].bytes, 5);
    CHECK(memcmp(r.prompts[0].data, "a\xc3\xa9\0b", 5) == 0);
    CHECK_EQ(r.max_tokens, 16);
    CHECK(r.temperature == 1 && r.top_p == 1 && r.min_p == 0 && r.top_k == 0);
    CHECK(!r.seed_given && !r.stream && !r.echo && !r.source_given && r.logprobs == -1 && r.show == 0 && r.skip == 0);
    completion_request_free(&r);
}

/* The server's token memory is that of requests that state neither a source nor a memory. */
static void test_memory_default(void) {
    const struct request_limits with = {
        .vocab_size = 100, .memory = RETRIEVAL_MEMORY_BOTH, .max_tokens = 10, .max_prompt_tokens = 8, .max_prompts = 3};
    static const struct {
        const char *more;
        enum retrieval_source source;
        enum retrieval_memory memory;
    } cases[] = {{"", RETRIEVAL_NONE, RETRIEVAL_MEMORY_BOTH},
                 {", \"retrieval\": {\"k\": 2}", RETRIEVAL_NONE, RETRIEVAL_MEMORY_BOTH},
                 {", \"retrieval\": {\"memory\": \"own\"}", RETRIEVAL_NONE, RETRIEVAL_MEMORY_OWN_PAST},
                 {", \"retrieval\": {\"memory\": \"none\"}", RETRIEVAL_NONE, RETRIEVAL_MEMORY_NONE},
                 {", \"retrieval\": {\"source\": \"none\"}", RETRIEVAL_NONE, RETRIEVAL_MEMORY_NONE},
                 {", \"retrieval\": {\"source\": \"corpus\"}", RETRIEVAL_CORPUS, RETRIEVAL_MEMORY_NONE}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct completion_request r;
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\": \"a\"%s}", cases[i].more);
        CHECK_OK(completion_request_parse(&r, body, strlen(body), &with));
        CHECK(r.source == cases[i].source && r.memory == cases[i].memory);
        completion_request_free(&r);
    }
}

/* Defaults of the server apply where they have an effect; a member of a request that can have none is refused. */
static void test_continuations(void) {
    const struct request_limits with = {.vocab_size = 100,
                                        .source = RETRIEVAL_CORPUS,
                                        .max_tokens = 10,
                                        .max_prompt_tokens = 8,
                                        .max_prompts = 3,
                                        .chunk = 63,
                                        .continuation = 1,
                                        .overlap = 31,
                                        .query_tokens = 16};
    static const struct {
        const char *retrieval;
        int64_t continuation, overlap, query_tokens;
    } cases[] = {{"{}", 1, 31, 0},
                 {"{\"continuation\": 0}", 0, 0, 0},
                 {"{\"source\": \"none\"}", 0, 0, 0},
                 {"{\"memory\": \"own\"}", 0, 0, 0},
                 {"{\"source\": \"none\", \"continuation\": 0, \"overlap\": 0, \"query_tokens\": 0}", 0, 0, 0},
                 {"{\"source\": \"self\"}", 1, 31, 0},
                 {"{\"source\": \"self\", \"continuation\": 2}", 2, 31, 0},
                 {"{\"source\": \"self\", \"overlap\": 0}", 0, 0, 0},
                 {"{\"source\": \"both\", \"overlap\": 0}", 1, 0, 0},
                 {"{\"continuation\": 2}", 2, 31, 0},
                 {"{\"overlap\": 0}", 1, 0, 0},
                 {"{\"overlap\": 62, \"continuation\": 64}", 64, 62, 0},
                 {"{\"searcher\": \"lexical\"}", 1, 31, 16},
                 {"{\"searcher\": \"hybrid\", \"query_tokens\": 128}", 1, 31, 128},
                 {"{\"query_tokens\": 0, \"searcher\": \"hybrid\"}", 1, 31, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct completion_request r;
        char body[200];
        snprintf(body, sizeof body, "{\"prompt\": \"a\", \"retrieval\": %s}", cases[i].retrieval);
        CHECK_OK(completion_request_parse(&r, body, strlen(body), &with));
        CHECK_EQ(r.continuation, cases[i].continuation);
        CHECK_EQ(r.overlap, cases[i].overlap);
        CHECK_EQ(r.query_tokens, cases[i].query_tokens);
        completion_request_free(&r);
    }
    struct completion_request r = accepted("{\"prompt\": \"a\"}");
    CHECK(r.continuation == 0 && r.overlap == 0 && r.query_tokens == 0);
    completion_request_free(&r);
    refused("{\"prompt\": \"a\", \"retrieval\": {\"overlap\": 31}}", "retrieval.overlap", "of a continuation");
    static const char *const without[] = {
        "\"continuation\": 1",
        "\"source\": \"none\", \"continuation\": 1, \"overlap\": 31",
        "\"source\": \"self\", \"continuation\": 1",
        "\"source\": \"self\", \"continuation\": 1, \"overlap\": 0",
        "\"memory\": \"both\", \"continuation\": 1, \"overlap\": 31",
    };
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"prompt\": \"a\", \"retrieval\": {%s}}", without[i]);
        refused(body, "retrieval.continuation", "give retrieval.source \"corpus\" or \"both\"");
    }
    refused("{\"prompt\": \"a\", \"retrieval\": {\"searcher\": \"hybrid\"}}", "retrieval.searcher",
            "chunks of the store");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"source\": \"self\", \"searcher\": \"lexical\"}}",
            "retrieval.searcher", "chunks of the store");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"overlap\": 63}}", "retrieval.overlap", "from 0 to 62");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"overlap\": -1}}", "retrieval.overlap", "from 0 to 62");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"query_tokens\": 8}}", "retrieval.query_tokens", "by words");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"query_tokens\": 129}}", "retrieval.query_tokens", "from 0 to 128");
}

static void test_prompts(void) {
    struct completion_request r = accepted("{\"prompt\": [\"a\", \"\", \"bc\"]}");
    CHECK_EQ(r.n_prompts, 3);
    CHECK_STR(r.prompts[2].data, "bc");
    completion_request_free(&r);
    r = accepted("{\"prompt\": [1, 2, 99]}");
    CHECK_EQ(r.n_prompts, 1);
    CHECK_EQ(r.prompts[0].n_ids, 3);
    CHECK_EQ(r.prompts[0].ids[2], 99);
    completion_request_free(&r);
    r = accepted("{\"prompt\": [[1], [2, 3], []]}");
    CHECK_EQ(r.n_prompts, 3);
    CHECK_EQ(r.prompts[1].ids[1], 3);
    CHECK_EQ(r.prompts[2].n_ids, 0);
    completion_request_free(&r);
    refused("{\"prompt\": []}", "prompt", "empty array");
    refused("{\"prompt\": [\"a\", 1]}", "prompt", "prompt must be");
    refused("{\"prompt\": [1, \"a\"]}", "prompt", "token ids from 0 to 99");
    refused("{\"prompt\": [100]}", "prompt", "token ids from 0 to 99");
    refused("{\"prompt\": [[-1]]}", "prompt", "token ids from 0 to 99");
    refused("{\"prompt\": [1.5]}", "prompt", "token ids from 0 to 99");
    refused("{\"prompt\": [99999999999999999999]}", "prompt", "token ids");
    refused("{\"prompt\": [1,1,1,1,1,1,1,1,1]}", "prompt", "more than 8");
    refused("{\"prompt\": [\"\",\"\",\"\",\"\"]}", "prompt", "more than 3");
    refused("{\"prompt\": 3}", "prompt", "prompt must be");
    refused("{\"prompt\": {\"a\": 1}}", "prompt", "prompt must be");
    refused("{\"max_tokens\": 3}", "prompt", "prompt is missing");
    refused("{\"prompt\": null}", "prompt", "prompt is missing");
}

static void test_members(void) {
    struct completion_request r =
        accepted("{\"model\": \"m\", \"prompt\": \"a\", \"max_tokens\": 7, \"temperature\": 0, \"top_p\": 0.5, "
                 "\"top_k\": 4, \"min_p\": 0.1, \"seed\": -3, \"stop\": [\"\\n\", \"END\"], \"n\": 1, \"echo\": true, "
                 "\"logprobs\": 5, \"stream\": true, \"stream_options\": {\"include_usage\": true}, \"user\": \"u\", "
                 "\"logit_bias\": {}, \"presence_penalty\": 0, \"suffix\": null, \"best_of\": 1, "
                 "\"retrieval\": {\"source\": \"both\", \"k\": 2}}");
    CHECK_STR(r.model, "m");
    CHECK_EQ(r.max_tokens, 7);
    CHECK_EQ(r.top_k, 4);
    CHECK(r.seed_given && (int64_t)r.seed == -3);
    CHECK_EQ(r.n_stops, 2);
    CHECK_STR(r.stops[1], "END");
    CHECK(r.echo && r.stream && r.include_usage && r.logprobs == 5);
    CHECK(r.source_given && r.source == RETRIEVAL_BOTH && r.memory == RETRIEVAL_MEMORY_NONE && r.show == 2);
    completion_request_free(&r);
    r = accepted("{\"prompt\": \"a\", \"stop\": \"x\", \"logprobs\": false, \"seed\": null}");
    CHECK(r.n_stops == 1 && r.logprobs == -1 && !r.seed_given && r.n == 1);
    completion_request_free(&r);
    /* What other servers and clients send: numbers with a fraction of zero, all seeds of 64 bits, "off" and "greedy".
     */
    r = accepted(
        "{\"prompt\": [1.0, 2e0], \"max_tokens\": 1e2, \"logprobs\": 2.0, \"n\": 3, \"best_of\": 3, \"top_k\": -1, "
        "\"top_p\": 0, \"seed\": 9223372036854775807}");
    CHECK(r.prompts[0].n_ids == 2 && r.prompts[0].ids[1] == 2);
    CHECK(r.max_tokens == 100 && r.logprobs == 2 && r.n == 3 && r.top_k == 0 && r.top_p > 0 && r.top_p <= 1e-6);
    CHECK(r.seed == INT64_MAX);
    completion_request_free(&r);
    r = accepted("{\"prompt\": \"a\", \"seed\": -9223372036854775808}");
    CHECK((int64_t)r.seed == INT64_MIN);
    completion_request_free(&r);
}

static void test_wrong(void) {
    refused("{\"prompt\": \"a\", \"max_tokens\": \"7\"}", "max_tokens", "a whole number from 0 to 1000");
    refused("{\"prompt\": \"a\", \"max_tokens\": 7.5}", "max_tokens", "a whole number");
    refused("{\"prompt\": \"a\", \"max_tokens\": 1001}", "max_tokens", "from 0 to 1000");
    refused("{\"prompt\": \"a\", \"max_tokens\": -1}", "max_tokens", "from 0 to 1000");
    refused("{\"prompt\": \"a\", \"max_tokens\": 0}", "max_tokens", "needs echo");
    refused("{\"prompt\": \"a\", \"temperature\": 1e999}", "temperature", "from 0 to 100");
    refused("{\"prompt\": \"a\", \"max_tokens\": 1e300}", "max_tokens", "from 0 to 1000");
    refused("{\"prompt\": \"a\", \"top_p\": -1e-9}", "top_p", "from 0 to 1");
    refused("{\"prompt\": \"a\", \"top_k\": -2}", "top_k", "from -1 to 4194304");
    refused("{\"prompt\": \"a\", \"seed\": 9223372036854775808}", "seed",
            "a whole number from -9223372036854775808 to 9223372036854775807");
    refused("{\"prompt\": \"a\", \"seed\": 1e18}", "seed", "a whole number"); /* not exact as a double */
    refused("{\"prompt\": \"a\", \"stream\": 1}", "stream", "true or false");
    refused("{\"prompt\": \"a\", \"n\": 0}", "n", "from 1 to 3");
    refused("{\"prompt\": \"a\", \"n\": 4}", "n", "from 1 to 3");
    refused("{\"prompt\": [\"a\", \"b\"], \"n\": 2}", "n", "2 prompts with 2 choices each");
    refused("{\"prompt\": \"a\", \"n\": 2, \"best_of\": 3}", "best_of", "must be n");
    refused("{\"prompt\": \"a\", \"skip\": 1}", "skip", "give echo and logprobs");
    refused("{\"prompt\": \"a\", \"skip\": 1, \"echo\": true}", "skip", "give echo and logprobs");
    refused("{\"prompt\": \"a\", \"skip\": -1, \"echo\": true, \"logprobs\": 0}", "skip", "a whole number from 0");
    struct completion_request r = accepted("{\"prompt\": \"a\", \"skip\": 7, \"echo\": true, \"logprobs\": 0}");
    CHECK_EQ(r.skip, 7);
    completion_request_free(&r);
    refused("{\"prompt\": \"a\", \"presence_penalty\": 1}", "presence_penalty", "must be 0");
    refused("{\"prompt\": \"a\", \"suffix\": \"b\"}", "suffix", "does not support");
    refused("{\"prompt\": \"a\", \"logit_bias\": {\"1\": 2}}", "logit_bias", "does not support");
    refused("{\"prompt\": \"a\", \"stop\": [\"\"]}", "stop", "empty");
    refused("{\"prompt\": \"a\", \"stop\": \"a\\u0000\"}", "stop", "U+0000");
    refused("{\"prompt\": \"a\", \"stop\": [1]}", "stop", "stop must be");
    refused("{\"prompt\": \"a\", \"logprobs\": 65}", "logprobs", "from 0 to 64");
    refused("{\"prompt\": \"a\", \"model\": 1}", "model", "model must be");
    refused("{\"prompt\": \"a\", \"tempersture\": 1}", "tempersture", "unknown member \"tempersture\"");
    refused("{\"prompt\": \"a\", \"prompt\": \"b\"}", "prompt", "given once");
    refused("{\"prompt\": \"a\", \"retrieval\": []}", "retrieval", "must be an object");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"source\": \"web\"}}", "retrieval.source", "\"corpus\"");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"sauce\": 1}}", "retrieval.sauce", "unknown member");
    refused("{\"prompt\": \"a\", \"retrieval\": {\"source\": \"self\", \"memory\": \"own\"}}", "retrieval.memory",
            "without GCA");
    refused("", "", "a JSON object");
    refused("[]", "", "a JSON object");
    refused("{\"prompt\": \"a\"} x", "", "the end of the body");
    refused("{\"prompt\": \"a\"", "", "the end of the object");
    refused("{\"prompt\": \"a", "", "a value");
}

static void test_search(void) {
    struct search_request s;
    const char *good = "{\"ids\": [1, 2], \"k\": 3, \"searcher\": \"hybrid\"}";
    CHECK_OK(search_request_parse(&s, good, strlen(good), &limits));
    CHECK(s.query.n_ids == 2 && s.k == 3 && s.searcher == SEARCH_HYBRID);
    search_request_free(&s);
    const struct {
        const char *body, *param, *message;
    } bad[] = {{"{}", "text", "missing"},
               {"{\"text\": \"\"}", "text", "empty"},
               {"{\"text\": \"a\", \"ids\": [1]}", "ids", "not both"},
               {"{\"text\": \"a\", \"k\": 0}", "k", "from 1 to 1000"},
               {"{\"text\": \"a\", \"searcher\": \"x\"}", "searcher", "\"lexical\""},
               {"{\"text\": 1}", "text", "must be a text"}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_FAILS(search_request_parse(&s, bad[i].body, strlen(bad[i].body), &limits), STATUS_INVALID,
                    bad[i].message);
        CHECK_STR(s.param, bad[i].param);
        search_request_free(&s);
    }
}

static void test_tokens(void) {
    struct token_request t;
    const char *tokenize = "{\"prompt\": \"x\", \"add_special_tokens\": false}", *detokenize = "{\"tokens\": []}";
    CHECK_OK(tokenize_request_parse(&t, tokenize, strlen(tokenize)));
    CHECK_STR(t.text.data, "x");
    token_request_free(&t);
    CHECK_OK(detokenize_request_parse(&t, detokenize, strlen(detokenize), &limits));
    CHECK_EQ(t.text.n_ids, 0);
    token_request_free(&t);
    CHECK_FAILS(detokenize_request_parse(&t, "{}", 2, &limits), STATUS_INVALID, "tokens is missing");
    token_request_free(&t);
    CHECK_FAILS(tokenize_request_parse(&t, "{}", 2), STATUS_INVALID, "prompt is missing");
    token_request_free(&t);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    test_defaults();
    test_memory_default();
    test_continuations();
    test_prompts();
    test_members();
    test_wrong();
    test_search();
    test_tokens();
    return test_done();
}
