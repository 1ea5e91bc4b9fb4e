/* request.h -- parses JSON bodies to requests. Every member is checked by name, type and range. Pure functions.
 *
 * A parse function fails with STATUS_INVALID and one line for the client. `param` of the request names the wrong member
 * ("": the whole body). A request owns its memory; free it also after a failure. Members of OpenAI's clients that are
 * not supported are accepted only with their neutral value. Unknown members are refused, because a misspelt one would
 * otherwise change the result silently. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REQUEST_STOPS = 16, REQUEST_PARAM = 64, REQUEST_NAME = 256, REQUEST_TOP_MAX = 64, REQUEST_HITS_MAX = 1000,
       REQUEST_CONTINUATION = 64, REQUEST_QUERY_TOKENS = 128 };

enum retrieval_source { RETRIEVAL_NONE, RETRIEVAL_OWN_PAST, RETRIEVAL_CORPUS, RETRIEVAL_BOTH, RETRIEVAL_SOURCES };
extern const char *const retrieval_source_names[RETRIEVAL_SOURCES];
enum retrieval_memory {
    RETRIEVAL_MEMORY_NONE, RETRIEVAL_MEMORY_OWN_PAST, RETRIEVAL_MEMORY_CORPUS, RETRIEVAL_MEMORY_BOTH,
    RETRIEVAL_MEMORIES
};
extern const char *const retrieval_memory_names[RETRIEVAL_MEMORIES];

struct request_limits {
    int vocab_size;
    int64_t max_tokens;                  /* of one answer */
    int64_t max_prompt_tokens;           /* of one prompt; that of a text is checked after it is tokenized */
    int max_prompts;                     /* of one request; also of its choices */
    int chunk;                           /* ids of a chunk, more than an overlap; 0: the model has no chunks */
    int64_t continuation, overlap, query_tokens;          /* of requests that do not state them */
    /* of requests with neither a source nor a memory; one of them is NONE */
    enum retrieval_source source;
    enum retrieval_memory memory;
};
enum request_searcher { SEARCH_LANDMARK, SEARCH_LEXICAL, SEARCH_HYBRID, SEARCH_KINDS };
extern const char *const request_searcher_names[SEARCH_KINDS];

/* A text, or ids; data is NULL for ids. */
struct request_text { char *data; size_t bytes; int32_t *ids; int64_t n_ids; };

struct completion_request {
    char param[REQUEST_PARAM], model[REQUEST_NAME];       /* model "": not given */
    struct request_text *prompts; int n_prompts;
    int64_t n;                           /* choices of each prompt; n * n_prompts <= max_prompts */
    int64_t max_tokens, top_k;
    double temperature, top_p, min_p, repeat_penalty;     /* min_p, repeat_penalty: 0 is off */
    uint64_t seed; bool seed_given;
    char *stops[REQUEST_STOPS]; int n_stops;
    int logprobs;                        /* alternatives of each token; -1: no log-probabilities */
    int64_t skip;                        /* as in drt_session_config; with echo and logprobs */
    bool echo, stream, include_usage, ignore_eos;
    bool source_given, memory_given;
    /* those of the limits if the request has neither */
    enum retrieval_source source;
    enum retrieval_memory memory;
    enum request_searcher searcher;      /* of the store, for `source` */
    int64_t continuation, overlap, query_tokens;          /* as in drt_session_config; 0 where they have no effect */
    int64_t show;                        /* retrieval.k: number of neighbours of each group in the answer */
};
enum status completion_request_parse(struct completion_request *out, const char *body, size_t bytes,
                                     const struct request_limits *limits);
void completion_request_free(struct completion_request *r);

struct search_request {
    char param[REQUEST_PARAM];
    struct request_text query;
    int64_t k;
    enum request_searcher searcher;
};
enum status search_request_parse(struct search_request *out, const char *body, size_t bytes,
                                 const struct request_limits *limits);
void search_request_free(struct search_request *r);

/* /tokenize {"prompt": text} (literal: special tokens are ordinary text) and /detokenize {"tokens": ids}. */
struct token_request { char param[REQUEST_PARAM]; struct request_text text; bool literal; };
enum status tokenize_request_parse(struct token_request *out, const char *body, size_t bytes);
enum status detokenize_request_parse(struct token_request *out, const char *body, size_t bytes,
                                     const struct request_limits *limits);
void token_request_free(struct token_request *r);
