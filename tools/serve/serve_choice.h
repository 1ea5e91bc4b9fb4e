/* serve_choice.h -- the part of a completion that is not written yet, as a "choice" of OpenAI's API. One thread
 * uses it at a time. Offsets count characters of the answer's text. Neighbours are those that a token could read. */
#pragma once
#include "tools/serve/serve.h"

struct choice_token { int64_t offset; float logprob; int32_t id, first, n; };          /* first, n: its alternatives */
struct choice_record { int64_t position; int32_t first, n; };                          /* first, n: its neighbours */
struct choice {
    int index;
    bool logprobs, retrieval;            /* optional members of the answer that the request turns on */
    int show;                            /* neighbours of each group */
    int64_t offset;                      /* number of characters of all tokens so far */
    char *text; size_t bytes, text_capacity;
    struct choice_token *tokens; size_t n_tokens, tokens_capacity;
    struct drt_alternative *alternatives; size_t n_alternatives, alternatives_capacity;
    struct choice_record *records; size_t n_records, records_capacity;
    struct drt_neighbour *neighbours; size_t n_neighbours, neighbours_capacity;
    int64_t read;                        /* tokens generated; their sum of memory_share */
    double memory_share;
    struct drt_neighbour *last; size_t n_last, last_capacity;   /* of the previous token */
};
void choice_free(struct choice *c);
void choice_begin(struct choice *c, int index);           /* starts another text */
void choice_take(struct choice *to, struct choice *from); /* what is not written yet; the rest of `to` is discarded */
enum status choice_text(struct choice *c, const char *text, size_t bytes);
enum status choice_scored(struct choice *c, struct serve_model *m, int32_t id, float logprob,
                          const struct drt_alternative *alternatives, int n);
enum status choice_generated(struct choice *c, struct serve_model *m, const struct drt_token *token);
/* finish NULL: the completion continues. */
void choice_write(struct choice *c, struct serve_model *m, struct reply *reply, const char *finish);
