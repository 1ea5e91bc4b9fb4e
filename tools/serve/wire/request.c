/* request.c -- the tables of each endpoint's members. */
#include "tools/serve/wire/request.h"
#include "base/memory.h"
#include "tools/serve/wire/members.h"

#include <stdio.h>
#include <string.h>

const char *const retrieval_source_names[RETRIEVAL_SOURCES] = {"none", "self", "corpus", "both"};
const char *const retrieval_memory_names[RETRIEVAL_MEMORIES] = {"none", "own", "corpus", "both"};
const char *const request_searcher_names[SEARCH_KINDS] = {"landmark", "lexical", "hybrid"};

#define TOP_P_MIN 1e-6

/* Fails for a combination of several members. */
static enum status request_wrong(char param[REQUEST_PARAM], const char *name, const char *message) {
    snprintf(param, REQUEST_PARAM, "%s", name);
    return fail(STATUS_INVALID, "%s", message);
}

static void request_text_free(struct request_text *t) {
    memory_free(t->data);
    memory_free(t->ids);
}

/* ---- prompts: a text, texts, ids, or arrays of ids ---- */

static enum status prompt_add(struct members *m, struct request_text **out) {
    struct completion_request *r = m->request;
    if (r->n_prompts == m->limits->max_prompts)
        return fail(STATUS_INVALID, "prompt has more than %d prompts, the limit of this server",
                    m->limits->max_prompts);
    size_t capacity = (size_t)r->n_prompts;
    TRY(memory_grow(&r->prompts, &capacity, (size_t)r->n_prompts + 1));
    *out = &r->prompts[r->n_prompts++];
    **out = (struct request_text){0};
    return STATUS_OK;
}

static enum status prompt_wrong(void) {
    return fail(STATUS_INVALID,
                "prompt must be a text, an array of texts, an array of token ids, or an array of such arrays");
}

static enum status prompt_read(struct members *m, enum json_event event) {
    struct completion_request *r = m->request;
    struct request_text *prompt = NULL;
    if (event == JSON_STRING) {
        TRY(prompt_add(m, &prompt));
        return members_text(m, prompt);
    }
    if (event != JSON_ARRAY) return prompt_wrong();
    enum json_event first = json_next(&m->json);
    if (first == JSON_NUMBER) {
        TRY(prompt_add(m, &prompt));
        return members_ids(m, prompt, true);
    }
    for (event = first; event != JSON_ARRAY_END; event = json_next(&m->json)) {
        if (event == JSON_ERROR) return json_fail(&m->json, "a prompt");
        if (event != first || (event != JSON_STRING && event != JSON_ARRAY)) return prompt_wrong();
        TRY(prompt_add(m, &prompt));
        TRY(event == JSON_STRING ? members_text(m, prompt) : members_ids(m, prompt, false));
    }
    return r->n_prompts > 0 ? STATUS_OK : fail(STATUS_INVALID, "prompt is an empty array");
}

/* ---- stop, stream_options, retrieval, model, logprobs ---- */

static enum status stop_add(struct members *m) {
    struct completion_request *r = m->request;
    struct request_text text = {0};
    if (r->n_stops == REQUEST_STOPS) return fail(STATUS_INVALID, "stop has more than %d strings", REQUEST_STOPS);
    enum status status = members_text(m, &text);
    if (status == STATUS_OK && (text.bytes == 0 || strlen(text.data) != text.bytes))
        status = fail(STATUS_INVALID, "stop has a string that is empty or contains U+0000");
    if (status == STATUS_OK)
        r->stops[r->n_stops++] = text.data;
    else
        memory_free(text.data);
    return status;
}

static enum status stop_read(struct members *m, enum json_event event) {
    if (event == JSON_STRING) return stop_add(m);
    if (event != JSON_ARRAY) return fail(STATUS_INVALID, "stop must be a string or an array of strings");
    while ((event = json_next(&m->json)) != JSON_ARRAY_END) {
        if (event == JSON_ERROR) return json_fail(&m->json, "a stop string");
        if (event != JSON_STRING) return fail(STATUS_INVALID, "stop must be a string or an array of strings");
        TRY(stop_add(m));
    }
    return STATUS_OK;
}

static enum status stream_options_read(struct members *m, enum json_event event) {
    struct completion_request *r = m->request;
    bool obfuscation = false;
    const struct member table[] = {{.name = "include_usage", .kind = MEMBER_BOOL, .value = &r->include_usage},
                                   {.name = "include_obfuscation", .kind = MEMBER_BOOL, .value = &obfuscation}};
    if (event != JSON_OBJECT) return fail(STATUS_INVALID, "stream_options must be an object");
    m->prefix = "stream_options.";
    TRY(members_object(m, table, ARRAY_LEN(table)));
    m->prefix = "";
    return STATUS_OK;
}

static enum status retrieval_read(struct members *m, enum json_event event) {
    struct completion_request *r = m->request;
    int source = (int)r->source, memory = (int)r->memory, searcher = (int)r->searcher;
    const int chunk = m->limits->chunk;
    const struct member table[] = {
        {.name = "source",
         .kind = MEMBER_CHOICE,
         .value = &source,
         .names = retrieval_source_names,
         .n_names = RETRIEVAL_SOURCES,
         .given = &r->source_given},
        {.name = "memory",
         .kind = MEMBER_CHOICE,
         .value = &memory,
         .names = retrieval_memory_names,
         .n_names = RETRIEVAL_MEMORIES,
         .given = &r->memory_given},
        {.name = "searcher",
         .kind = MEMBER_CHOICE,
         .value = &searcher,
         .names = request_searcher_names,
         .n_names = SEARCH_KINDS},
        {.name = "continuation", .kind = MEMBER_INT, .value = &r->continuation, .min = 0, .max = REQUEST_CONTINUATION},
        {.name = "overlap", .kind = MEMBER_INT, .value = &r->overlap, .min = 0, .max = chunk > 0 ? chunk - 1 : 0},
        {.name = "query_tokens", .kind = MEMBER_INT, .value = &r->query_tokens, .min = 0, .max = REQUEST_QUERY_TOKENS},
        {.name = "k", .kind = MEMBER_INT, .value = &r->show, .min = 0, .max = REQUEST_TOP_MAX},
    };
    if (event != JSON_OBJECT) return fail(STATUS_INVALID, "retrieval must be an object");
    m->prefix = "retrieval.";
    TRY(members_object(m, table, ARRAY_LEN(table)));
    m->prefix = "";
    r->source = (enum retrieval_source)source;
    r->memory = (enum retrieval_memory)memory;
    r->searcher = (enum request_searcher)searcher;
    return STATUS_OK;
}

static enum status model_read(struct members *m, enum json_event event) {
    struct completion_request *r = m->request;
    size_t length = 0;
    if (event != JSON_STRING || json_string(&m->json, r->model, sizeof r->model, &length) != STATUS_OK ||
        strlen(r->model) != length)
        return fail(STATUS_INVALID, "model must be a text of at most %d bytes", REQUEST_NAME - 1);
    return STATUS_OK;
}

/* OpenAI's chat clients send true */
static enum status logprobs_read(struct members *m, enum json_event event) {
    struct completion_request *r = m->request;
    int64_t n = -1;
    if (event == JSON_FALSE) return STATUS_OK;
    if (event == JSON_TRUE)
        n = 0;
    else if (event != JSON_NUMBER || !members_whole(m, &n) || n < 0 || n > REQUEST_TOP_MAX)
        return fail(STATUS_INVALID, "logprobs must be a whole number from 0 to %d", REQUEST_TOP_MAX);
    r->logprobs = (int)n;
    return STATUS_OK;
}

/* Reads a member that has no effect. */
static enum status ignored_text_read(struct members *m, enum json_event event) {
    return event == JSON_STRING ? STATUS_OK : fail(STATUS_INVALID, "%s must be a text", m->param);
}

/* Fails for a member that can have no effect beside the others. -1: not given. */
static enum status retrieval_refuse(struct completion_request *r, const struct request_limits *limits) {
    const bool store = r->source >= RETRIEVAL_CORPUS;
    const int64_t overlap = r->overlap < 0 ? limits->overlap : r->overlap;
    if (r->searcher != SEARCH_LANDMARK && !store)
        return request_wrong(r->param, "retrieval.searcher",
                             "retrieval.searcher finds chunks of the store: give retrieval.source \"corpus\" or "
                             "\"both\"");
    if (r->continuation > 0 && !store && !(r->source == RETRIEVAL_OWN_PAST && overlap > 0))
        return request_wrong(r->param, "retrieval.continuation",
                             "retrieval.continuation is of chunks of the store: give retrieval.source \"corpus\" or "
                             "\"both\"; or \"self\" and retrieval.overlap");
    if (r->overlap > 0 && (r->continuation < 0 ? limits->continuation : r->continuation) == 0)
        return request_wrong(r->param, "retrieval.overlap",
                             "retrieval.overlap is of a continuation: give retrieval.continuation, too");
    if (r->overlap > 0 && r->source == RETRIEVAL_NONE)
        return request_wrong(r->param, "retrieval.overlap",
                             "retrieval.overlap is of retrieved chunks: give retrieval.source \"self\", \"corpus\" or "
                             "\"both\"");
    if (r->query_tokens > 0 && r->searcher == SEARCH_LANDMARK)
        return request_wrong(r->param, "retrieval.query_tokens",
                             "retrieval.query_tokens is of a search by words: give retrieval.searcher \"lexical\" or "
                             "\"hybrid\"");
    return STATUS_OK;
}

/* A default of the server applies where it has an effect, and is no error elsewhere. */
static enum status retrieval_check(struct completion_request *r, const struct request_limits *limits) {
    if (!r->source_given && r->memory == RETRIEVAL_MEMORY_NONE) r->source = limits->source;
    if (!r->source_given && !r->memory_given) r->memory = limits->memory;
    TRY(retrieval_refuse(r, limits));
    if (r->continuation < 0) r->continuation = limits->continuation;
    if (r->overlap < 0) r->overlap = limits->overlap;
    if (r->query_tokens < 0) r->query_tokens = r->searcher != SEARCH_LANDMARK ? limits->query_tokens : 0;
    if (r->continuation == 0) r->overlap = 0;
    /* chunks of the own past are continued with an overlap only */
    if (r->source == RETRIEVAL_NONE || (r->source == RETRIEVAL_OWN_PAST && r->overlap == 0))
        r->continuation = r->overlap = 0;
    return STATUS_OK;
}

static enum status completion_check(struct completion_request *r, const struct request_limits *limits) {
    if (r->n_prompts == 0) return request_wrong(r->param, "prompt", "prompt is missing");
    if (r->n * r->n_prompts > limits->max_prompts) {
        snprintf(r->param, REQUEST_PARAM, "n");
        return fail(STATUS_INVALID,
                    "n: %d prompts with %lld choices each; this server takes %d choices (--max-prompts)", r->n_prompts,
                    (long long)r->n, limits->max_prompts);
    }
    if (r->max_tokens == 0 && !r->echo)
        return request_wrong(r->param, "max_tokens", "max_tokens 0 needs echo: there would be nothing to answer");
    if (r->skip > 0 && (!r->echo || r->logprobs < 0))
        return request_wrong(r->param, "skip",
                             "skip is of log-probabilities of the prompt: give echo and logprobs, too");
    if (r->memory != RETRIEVAL_MEMORY_NONE && r->source != RETRIEVAL_NONE)
        return request_wrong(r->param, "retrieval.memory",
                             "retrieval.memory needs retrieval.source \"none\": a token memory is read without GCA");
    return STATUS_OK;
}

enum status completion_request_parse(struct completion_request *out, const char *body, size_t bytes,
                                     const struct request_limits *limits) {
    struct completion_request *r = out;
    int64_t seed = 0, best_of = 0;
    *r = (struct completion_request){.n = 1,
                                     .max_tokens = limits->max_tokens < 16 ? limits->max_tokens : 16,
                                     .temperature = 1,
                                     .top_p = 1,
                                     .logprobs = -1,
                                     .continuation = -1,
                                     .overlap = -1,
                                     .query_tokens = -1};
    const struct member table[] = {
        {.name = "prompt", .kind = MEMBER_READ, .read = prompt_read},
        {.name = "model", .kind = MEMBER_READ, .read = model_read},
        {.name = "max_tokens", .kind = MEMBER_INT, .value = &r->max_tokens, .max = (double)limits->max_tokens},
        {.name = "temperature", .kind = MEMBER_DOUBLE, .value = &r->temperature, .max = 100},
        {.name = "top_p", .kind = MEMBER_DOUBLE, .value = &r->top_p, .max = 1},
        {.name = "top_k", .kind = MEMBER_INT, .value = &r->top_k, .min = -1, .max = 1 << 22},
        {.name = "min_p", .kind = MEMBER_DOUBLE, .value = &r->min_p, .max = 1},
        {.name = "repetition_penalty", .kind = MEMBER_DOUBLE, .value = &r->repeat_penalty, .min = 0.01, .max = 100},
        {.name = "seed",
         .kind = MEMBER_INT,
         .value = &seed,
         .min = (double)INT64_MIN,
         .max = (double)INT64_MAX,
         .given = &r->seed_given},
        {.name = "stop", .kind = MEMBER_READ, .read = stop_read},
        {.name = "echo", .kind = MEMBER_BOOL, .value = &r->echo},
        {.name = "stream", .kind = MEMBER_BOOL, .value = &r->stream},
        {.name = "stream_options", .kind = MEMBER_READ, .read = stream_options_read},
        {.name = "logprobs", .kind = MEMBER_READ, .read = logprobs_read},
        {.name = "skip", .kind = MEMBER_INT, .value = &r->skip, .max = 1 << 30},
        {.name = "ignore_eos", .kind = MEMBER_BOOL, .value = &r->ignore_eos},
        {.name = "retrieval", .kind = MEMBER_READ, .read = retrieval_read},
        {.name = "user", .kind = MEMBER_READ, .read = ignored_text_read},
        {.name = "n", .kind = MEMBER_INT, .value = &r->n, .min = 1, .max = limits->max_prompts},
        {.name = "best_of", .kind = MEMBER_INT, .value = &best_of, .min = 1, .max = limits->max_prompts},
        {.name = "presence_penalty", .kind = MEMBER_ZERO, .min = 0},
        {.name = "frequency_penalty", .kind = MEMBER_ZERO, .min = 0},
        {.name = "logit_bias", .kind = MEMBER_NULL},
        {.name = "suffix", .kind = MEMBER_NULL},
    };
    struct members m = {.param = r->param, .prefix = "", .limits = limits, .request = r};
    TRY(members_parse(&m, body, bytes, table, ARRAY_LEN(table)));
    r->seed = (uint64_t)seed;
    if (r->top_k < 0) r->top_k = 0;                 /* -1 is "off" for other servers */
    if (r->top_p < TOP_P_MIN) r->top_p = TOP_P_MIN; /* the most probable token; in libdrt 0 is "off" */
    if (best_of > 0 && best_of != r->n)
        return request_wrong(r->param, "best_of", "best_of must be n: the answer has all choices that are generated");
    TRY(retrieval_check(r, limits));
    return completion_check(r, limits);
}

void completion_request_free(struct completion_request *r) {
    for (int i = 0; i < r->n_prompts; i++)
        request_text_free(&r->prompts[i]);
    for (int i = 0; i < r->n_stops; i++)
        memory_free(r->stops[i]);
    memory_free(r->prompts);
}

/* ---- search, tokenize, detokenize ---- */

static enum status query_text_read(struct members *m, enum json_event event) {
    struct search_request *r = m->request;
    if (event != JSON_STRING) return fail(STATUS_INVALID, "text must be a text");
    return members_text(m, &r->query);
}

static enum status query_ids_read(struct members *m, enum json_event event) {
    struct search_request *r = m->request;
    if (event != JSON_ARRAY) return fail(STATUS_INVALID, "ids must be an array of token ids");
    return members_ids(m, &r->query, false);
}

enum status search_request_parse(struct search_request *out, const char *body, size_t bytes,
                                 const struct request_limits *limits) {
    int searcher = SEARCH_LANDMARK;
    *out = (struct search_request){.k = 10};
    const struct member table[] = {
        {.name = "text", .kind = MEMBER_READ, .read = query_text_read},
        {.name = "ids", .kind = MEMBER_READ, .read = query_ids_read},
        {.name = "k", .kind = MEMBER_INT, .value = &out->k, .min = 1, .max = REQUEST_HITS_MAX},
        {.name = "searcher",
         .kind = MEMBER_CHOICE,
         .value = &searcher,
         .names = request_searcher_names,
         .n_names = SEARCH_KINDS},
    };
    struct members m = {.param = out->param, .prefix = "", .limits = limits, .request = out};
    TRY(members_parse(&m, body, bytes, table, ARRAY_LEN(table)));
    out->searcher = (enum request_searcher)searcher;
    if (out->query.data && out->query.ids) return request_wrong(out->param, "ids", "give text or ids, not both");
    if (out->query.bytes == 0 && out->query.n_ids == 0)
        return request_wrong(out->param, "text", "text (or ids) is missing or empty");
    return STATUS_OK;
}

void search_request_free(struct search_request *r) {
    request_text_free(&r->query);
}

static enum status tokenize_prompt_read(struct members *m, enum json_event event) {
    struct token_request *r = m->request;
    if (event != JSON_STRING) return fail(STATUS_INVALID, "prompt must be a text");
    return members_text(m, &r->text);
}

enum status tokenize_request_parse(struct token_request *out, const char *body, size_t bytes) {
    bool add = false;
    *out = (struct token_request){0};
    const struct member table[] = {
        {.name = "prompt", .kind = MEMBER_READ, .read = tokenize_prompt_read},
        {.name = "literal", .kind = MEMBER_BOOL, .value = &out->literal},
        {.name = "add_special_tokens", .kind = MEMBER_BOOL, .value = &add}, /* no supported model adds any */
        {.name = "model", .kind = MEMBER_READ, .read = ignored_text_read},
    };
    struct members m = {.param = out->param, .prefix = "", .request = out};
    TRY(members_parse(&m, body, bytes, table, ARRAY_LEN(table)));
    return out->text.data ? STATUS_OK : request_wrong(out->param, "prompt", "prompt is missing");
}

static enum status detokenize_tokens_read(struct members *m, enum json_event event) {
    struct token_request *r = m->request;
    if (event != JSON_ARRAY) return fail(STATUS_INVALID, "tokens must be an array of token ids");
    return members_ids(m, &r->text, false);
}

enum status detokenize_request_parse(struct token_request *out, const char *body, size_t bytes,
                                     const struct request_limits *limits) {
    bool given = false;
    *out = (struct token_request){0};
    const struct member table[] = {
        {.name = "tokens", .kind = MEMBER_READ, .read = detokenize_tokens_read, .given = &given},
        {.name = "model", .kind = MEMBER_READ, .read = ignored_text_read},
    };
    struct members m = {.param = out->param, .prefix = "", .limits = limits, .request = out};
    TRY(members_parse(&m, body, bytes, table, ARRAY_LEN(table)));
    return given ? STATUS_OK : request_wrong(out->param, "tokens", "tokens is missing");
}

void token_request_free(struct token_request *r) {
    request_text_free(&r->text);
}
