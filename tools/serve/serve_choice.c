/* serve_choice.c -- collects the tokens of a completion and writes them as OpenAI's "choice", with the chunks that each
 * token could read. */
#include "tools/serve/serve_choice.h"
#include "base/memory.h"
#include "tools/serve/serve_job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void choice_free(struct choice *c) {
    memory_free(c->text);
    memory_free(c->tokens);
    memory_free(c->alternatives);
    memory_free(c->records);
    memory_free(c->neighbours);
    memory_free(c->last);
    *c = (struct choice){0};
}

static void choice_written(struct choice *c) {
    c->bytes = c->n_tokens = c->n_alternatives = c->n_records = c->n_neighbours = 0;
}

/* Both keep memory; `last` is of the one that grows. */
void choice_take(struct choice *to, struct choice *from) {
    const struct choice old = *to;
    *to = *from;
    to->last = old.last, to->n_last = old.n_last, to->last_capacity = old.last_capacity;
    from->text = old.text, from->text_capacity = old.text_capacity;
    from->tokens = old.tokens, from->tokens_capacity = old.tokens_capacity;
    from->alternatives = old.alternatives, from->alternatives_capacity = old.alternatives_capacity;
    from->records = old.records, from->records_capacity = old.records_capacity;
    from->neighbours = old.neighbours, from->neighbours_capacity = old.neighbours_capacity;
    choice_written(from);
}

void choice_begin(struct choice *c, int index) {
    choice_written(c);
    c->index = index;
    c->offset = c->read = 0;
    c->memory_share = 0;
    c->n_last = 0;
}

enum status choice_text(struct choice *c, const char *text, size_t bytes) {
    TRY(memory_grow(&c->text, &c->text_capacity, c->bytes + bytes));
    if (bytes) memcpy(c->text + c->bytes, text, bytes);
    c->bytes += bytes;
    return STATUS_OK;
}

enum status choice_scored(struct choice *c, struct serve_model *m, int32_t id, float logprob,
                          const struct drt_alternative *alternatives, int n) {
    const char *data = "";
    size_t bytes = 0;
    if (n < 0) n = 0;
    TRY(memory_grow(&c->tokens, &c->tokens_capacity, c->n_tokens + 1));
    TRY(memory_grow(&c->alternatives, &c->alternatives_capacity, c->n_alternatives + (size_t)n));
    c->tokens[c->n_tokens++] = (struct choice_token){
        .offset = c->offset, .logprob = logprob, .id = id, .first = (int32_t)c->n_alternatives, .n = n};
    if (n) memcpy(c->alternatives + c->n_alternatives, alternatives, (size_t)n * sizeof *alternatives);
    c->n_alternatives += (size_t)n;
    if (drt_tokenizer_bytes(m->tokenizer, &data, &bytes, id) == DRT_OK) c->offset += reply_characters(data, bytes);
    return STATUS_OK;
}

static bool choice_same_neighbour(const struct drt_neighbour *a, const struct drt_neighbour *b) {
    return a->source == b->source && a->group == b->group && a->chunk == b->chunk &&
           a->token_offset == b->token_offset && a->weight == b->weight;
}

static bool choice_same_neighbours(const struct choice *c, const struct drt_token *token) {
    if (c->n_last != (size_t)token->n_neighbours) return false;
    for (size_t i = 0; i < c->n_last; i++)
        if (!choice_same_neighbour(&c->last[i], &token->neighbours[i])) return false;
    return true;
}

/* A record begins with the first token whose neighbours differ from those of the previous token. */
static enum status choice_neighbours(struct choice *c, const struct drt_token *token) {
    const size_t n = (size_t)token->n_neighbours;
    if (choice_same_neighbours(c, token)) return STATUS_OK;
    TRY(memory_grow(&c->last, &c->last_capacity, n));
    TRY(memory_grow(&c->records, &c->records_capacity, c->n_records + 1));
    TRY(memory_grow(&c->neighbours, &c->neighbours_capacity, c->n_neighbours + n));
    if (n) memcpy(c->last, token->neighbours, n * sizeof *c->last);
    c->n_last = n;
    struct choice_record *record = &c->records[c->n_records++];
    *record = (struct choice_record){.position = token->position, .first = (int32_t)c->n_neighbours};
    int group = -2, shown = 0;
    for (size_t i = 0; i < n; i++) {
        shown = token->neighbours[i].group == group ? shown + 1 : 0;
        group = token->neighbours[i].group;
        if (shown >= c->show || token->neighbours[i].chunk < 0) continue;
        c->neighbours[c->n_neighbours++] = token->neighbours[i];
        record->n++;
    }
    return STATUS_OK;
}

enum status choice_generated(struct choice *c, struct serve_model *m, const struct drt_token *token) {
    TRY(choice_text(c, token->text, token->bytes));
    if (c->logprobs) TRY(choice_scored(c, m, token->id, token->logprob, token->alternatives, token->n_alternatives));
    if (!c->retrieval) return STATUS_OK;
    c->read++;
    c->memory_share += (double)token->memory_share;
    return choice_neighbours(c, token);
}

static void choice_write_name(struct serve_model *m, struct reply *reply, int32_t id, bool key) {
    const char *data = "";
    size_t bytes = 0;
    char number[24]; /* a model may have more ids than its tokenizer; each has a name of its own */
    if (drt_tokenizer_bytes(m->tokenizer, &data, &bytes, id) != DRT_OK) {
        bytes = (size_t)snprintf(number, sizeof number, "id:%d", (int)id);
        data = number;
    }
    reply_token_text(reply, data, bytes, key);
}

/* Writes the alternatives, and the token itself if it is not one of them. */
static void choice_write_top(const struct choice *c, struct serve_model *m, struct reply *reply,
                             const struct choice_token *token) {
    struct json_writer *w = &reply->json;
    bool seen = false;
    if (isnan(token->logprob)) {
        json_write_null(w);
        return;
    }
    json_write_object(w);
    for (int i = 0; i < token->n; i++) {
        const struct drt_alternative *a = &c->alternatives[token->first + i];
        if (a->id < 0) continue;
        seen = seen || a->id == token->id;
        choice_write_name(m, reply, a->id, true);
        json_write_double(w, (double)a->logprob);
    }
    if (!seen) {
        choice_write_name(m, reply, token->id, true);
        json_write_double(w, (double)token->logprob);
    }
    json_write_object_end(w);
}

static void choice_write_logprobs(const struct choice *c, struct serve_model *m, struct reply *reply) {
    struct json_writer *w = &reply->json;
    json_write_object(w);
    json_write_key(w, "tokens");
    json_write_array(w);
    for (size_t i = 0; i < c->n_tokens; i++)
        choice_write_name(m, reply, c->tokens[i].id, false);
    json_write_array_end(w);
    json_write_key(w, "token_logprobs");
    json_write_array(w);
    for (size_t i = 0; i < c->n_tokens; i++)
        json_write_double(w, (double)c->tokens[i].logprob); /* NaN: null */
    json_write_array_end(w);
    json_write_key(w, "top_logprobs");
    json_write_array(w);
    for (size_t i = 0; i < c->n_tokens; i++)
        choice_write_top(c, m, reply, &c->tokens[i]);
    json_write_array_end(w);
    json_write_key(w, "text_offset");
    json_write_array(w);
    for (size_t i = 0; i < c->n_tokens; i++)
        json_write_int(w, c->tokens[i].offset);
    json_write_array_end(w);
    json_write_object_end(w);
}

static void choice_write_neighbour(struct serve_model *m, struct json_writer *w, const struct drt_neighbour *n) {
    json_write_object(w);
    json_write_key(w, "group");
    json_write_int(w, n->group);
    json_write_key(w, "source");
    json_write_string(w, n->source == DRT_SOURCE_CORPUS ? "corpus" : "self");
    json_write_key(w, "chunk");
    json_write_int(w, n->chunk);
    json_write_key(w, "weight");
    json_write_double(w, (double)n->weight);
    json_write_key(w, "score");
    json_write_double(w, (double)n->score);
    json_write_key(w, "token_offset");
    json_write_int(w, n->token_offset);
    if (n->source == DRT_SOURCE_CORPUS && m->store) {
        lookup_write_document(m, w, n->document);
        lookup_write_text(m, w, n->chunk, n->group < 0 ? -1 : n->token_offset); /* -1: an entry, not a passage */
    }
    json_write_object_end(w);
}

static void choice_write_retrieval(const struct choice *c, struct serve_model *m, struct json_writer *w) {
    json_write_object(w);
    json_write_key(w, "memory_share");
    json_write_double(w, c->read ? c->memory_share / (double)c->read : 0);
    json_write_key(w, "records");
    json_write_array(w);
    for (size_t i = 0; i < c->n_records; i++) {
        json_write_object(w);
        json_write_key(w, "position");
        json_write_int(w, c->records[i].position);
        json_write_key(w, "neighbours");
        json_write_array(w);
        for (int32_t k = 0; k < c->records[i].n; k++)
            choice_write_neighbour(m, w, &c->neighbours[c->records[i].first + k]);
        json_write_array_end(w);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

void choice_write(struct choice *c, struct serve_model *m, struct reply *reply, const char *finish) {
    struct json_writer *w = &reply->json;
    json_write_object(w);
    json_write_key(w, "index");
    json_write_int(w, c->index);
    json_write_key(w, "text");
    json_write_bytes(w, c->text ? c->text : "", c->bytes);
    json_write_key(w, "logprobs");
    if (c->logprobs)
        choice_write_logprobs(c, m, reply);
    else
        json_write_null(w);
    json_write_key(w, "finish_reason");
    if (finish)
        json_write_string(w, finish);
    else
        json_write_null(w);
    if (c->retrieval) {
        json_write_key(w, "retrieval");
        choice_write_retrieval(c, m, w);
    }
    json_write_object_end(w);
}
