/* serve_exchange.c -- one request: checks its head, then its body, then answers it or passes it to the queue. */
#include "base/clock.h"
#include "base/memory.h"
#include "tools/serve/serve_connections.h"
#include "tools/serve/serve_http.h"
#include "tools/serve/serve_job.h"

#include <stdio.h>
#include <string.h>

static const char json_type[] = "application/json";
static const char no_path[] =
    "there is nothing at this path: the endpoints are /v1/completions, /v1/models, /tokenize, "
    "/detokenize, /tokenizer_info, /search, /documents/ID, /health, /metrics and /";

static void exchange_refuse(struct exchange *e, int status, const char *why) {
    e->status = status;
    e->refusal = why;
}

static void exchange_check_head(struct exchange *e, const struct exchange_head *head) {
    const struct serve_options *o = &e->serve->options;
    int64_t length = 0;
    e->cors = o->cors_origin && head->origin && strcmp(head->origin, o->cors_origin) == 0;
    e->closes = head->ambiguous;
    if (head->ambiguous)
        exchange_refuse(e, 400, "Host or the length of the body is given twice");
    else if (!route_host_allowed(head->host, o->hosts.items, o->hosts.count))
        exchange_refuse(e, 403, "the Host header does not name this server: see --allow-host");
    else if (!route_origin_allowed(head->origin, head->host, o->cors_origin))
        exchange_refuse(e, 403, "requests of pages of this origin are not allowed: see --cors-origin");
    else if (e->route.status == 404)
        exchange_refuse(e, 404, no_path);
    else if (e->route.status == 405)
        exchange_refuse(e, 405, "this path does not take this method");
    else if (!e->route.open && e->serve->key[0] && !route_key_matches(head->authorization, e->serve->key))
        exchange_refuse(e, 401, "the API key is missing or wrong: send it as \"Authorization: Bearer KEY\"");
    else if (e->route.model && strcmp(e->route.model, e->serve->model.name) != 0)
        exchange_refuse(e, 404, "there is no such model: /v1/models has the one of this server");
    else if (e->route.status == 400)
        exchange_refuse(e, 400, "a document's id is a whole number");
    else if (!route_number(head->first, 0, &e->first_chunk) || !route_number(head->chunks, INT64_MAX, &e->chunks))
        exchange_refuse(e, 400, "first and chunks are whole numbers");
    else if (!route_number(head->length, 0, &length) || (uint64_t)length > o->max_body)
        exchange_refuse(e, 413, "the body is larger than this server takes (--max-body)");
}

enum status exchange_create(struct exchange **out, struct serve *serve, const struct exchange_head *head) {
    struct exchange *e = NULL;
    TRY(memory_allocate_zero(&e, 1));
    enum status status = reply_open(&e->reply);
    if (status != STATUS_OK) {
        memory_free(e);
        return status;
    }
    e->serve = serve;
    e->start = clock_seconds();
    e->type = json_type;
    snprintf(e->method, sizeof e->method, "%s", head->method);
    snprintf(e->path, sizeof e->path, "%s", head->path);
    e->route = route_find(head->method, head->path);
    exchange_check_head(e, head);
    if (e->route.model) e->route.model = serve->model.name; /* the head does not stay */
    *out = e;
    return STATUS_OK;
}

void exchange_free(struct exchange *e, const char *peer, bool complete) {
    if (!e) return;
    double seconds = clock_seconds() - e->start;
    metrics_request(e->serve->metrics, e->route.endpoint, e->status);
    metrics_observe(e->serve->metrics, METRICS_REQUEST_SECONDS, seconds);
    serve_log_request(e, peer, complete, seconds);
    job_release(e->job);
    reply_close(&e->reply);
    memory_free(e->body);
    memory_free(e);
}

bool exchange_body(struct exchange *e, const char *data, size_t bytes) {
    const uint64_t limit = e->serve->options.max_body;
    if (e->bytes + bytes > limit || e->refusal) {
        if (!e->refusal) exchange_refuse(e, 413, "the body is larger than this server takes (--max-body)");
        e->bytes += bytes; /* only counted, because the answer must follow the body */
        return e->bytes <= 2 * limit;
    }
    if (!e->route.posts || bytes == 0) return true;
    if (memory_grow(&e->body, &e->capacity, e->bytes + bytes) != STATUS_OK) return false;
    memcpy(e->body + e->bytes, data, bytes);
    e->bytes += bytes;
    return true;
}

/* Returns the body, or "" if there is none. */
static const char *exchange_text(const struct exchange *e) {
    return e->body ? e->body : "";
}

static void exchange_error(struct exchange *e, int status, const char *message, const char *param, const char *code) {
    e->status = status;
    e->retry = status == 503;
    if (status == 503) metrics_add(e->serve->metrics, METRICS_REFUSED, 1);
    reply_clear(&e->reply);
    json_write_open(&e->reply.json, e->reply.file, 0);
    reply_error(&e->reply, status, message, param, code);
}

/* ---- immediate answers ---- */

static void write_string(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_string(w, value);
}

static void write_int(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

static void exchange_model(struct exchange *e) {
    const struct serve_model *m = &e->serve->model;
    struct json_writer *w = &e->reply.json;
    json_write_object(w);
    write_string(w, "id", m->name);
    write_string(w, "object", "model");
    write_int(w, "created", m->opened);
    write_string(w, "owned_by", "drt");
    write_int(w, "max_model_len", e->serve->limits.max_prompt_tokens + e->serve->limits.max_tokens);
    json_write_key(w, "drt");
    json_write_object(w);
    write_string(w, "variant", m->info.variant);
    write_string(w, "device", m->info.device);
    write_string(w, "dtype", m->info.dtype);
    write_int(w, "parameters", m->info.parameters);
    write_int(w, "vocab_size", m->info.vocab_size);
    write_int(w, "chunk", m->info.chunk);
    write_string(w, "retrieval", retrieval_source_names[e->serve->limits.source]);
    write_string(w, "memory", retrieval_memory_names[e->serve->limits.memory]);
    json_write_key(w, "store");
    if (m->store) {
        json_write_object(w);
        write_int(w, "generation", (int64_t)m->store_info.generation);
        write_int(w, "chunks", m->store_info.chunks);
        write_int(w, "documents", m->store_info.documents);
        write_int(w, "tokens", m->store_info.tokens);
        json_write_key(w, "landmarks");
        json_write_bool(w, m->store_info.dim > 0);
        json_write_key(w, "lexical");
        json_write_bool(w, m->store_info.lexical);
        json_write_object_end(w);
    } else {
        json_write_null(w);
    }
    json_write_object_end(w);
    json_write_object_end(w);
}

static void exchange_models(struct exchange *e) {
    struct json_writer *w = &e->reply.json;
    if (e->route.model) {
        exchange_model(e);
        return;
    }
    json_write_object(w);
    write_string(w, "object", "list");
    json_write_key(w, "data");
    json_write_array(w);
    exchange_model(e);
    json_write_array_end(w);
    json_write_object_end(w);
}

static void exchange_tokenizer_info(struct exchange *e) {
    const struct serve_model *m = &e->serve->model;
    struct json_writer *w = &e->reply.json;
    const char *pad = m->info.pad_id < 0 ? NULL : drt_tokenizer_spelling(m->tokenizer, m->info.pad_id);
    json_write_object(w);
    write_string(w, "tokenizer_class", "drt");
    write_int(w, "vocab_size", drt_tokenizer_vocab_size(m->tokenizer));
    const char *const names[] = {"eos_token", "bos_token", "pad_token", "chat_template"};
    const char *const values[] = {m->eos_text[0] ? m->eos_text : NULL, NULL, pad, NULL};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_write_key(w, names[i]);
        if (values[i])
            json_write_string(w, values[i]);
        else
            json_write_null(w);
    }
    json_write_object_end(w);
}

static void exchange_metrics(struct exchange *e) {
    struct serve *serve = e->serve;
    struct drt_version_info version = {.size = sizeof version};
    char text[80] = "unknown";
    int64_t answering = 0;
    struct metrics_gauges gauges = {
        .seconds = clock_seconds() - serve->started, .store_chunks = serve->model.store_info.chunks, .version = text};
    if (drt_version(&version) == DRT_OK)
        snprintf(text, sizeof text, "%d.%d.%d", version.major, version.minor, version.patch);
    serve_queue_counts(serve->queue, &gauges.waiting, &gauges.running);
    connections_counts(e->connections, &gauges.connections, &answering);
    metrics_write(serve->metrics, &e->reply, &gauges);
    e->type = "text/plain; version=0.0.4; charset=utf-8";
}

static void exchange_health(struct exchange *e) {
    struct json_writer *w = &e->reply.json;
    const bool stopping = atomic_load(&e->serve->stopping);
    json_write_object(w);
    write_string(w, "status", stopping ? "stopping" : "ok");
    json_write_object_end(w);
    e->status = stopping ? 503 : 200;
}

static void exchange_page(struct exchange *e) {
    for (int i = 0; i < n_page_files; i++) {
        if (strcmp(page_files[i].name, e->route.file) != 0) continue;
        e->type = page_files[i].type;
        if (reply_add(&e->reply, page_files[i].data, page_files[i].bytes) != STATUS_OK) e->status = 500;
        return;
    }
    exchange_error(e, 404, "this page was not built in", NULL, NULL);
}

static enum status exchange_tokenize(struct exchange *e, struct token_request *r) {
    int32_t *ids = NULL;
    size_t n = 0;
    struct json_writer *w = &e->reply.json;
    TRY(tokenize_request_parse(r, exchange_text(e), e->bytes));
    TRY(serve_status(
        drt_tokenizer_encode(e->serve->model.tokenizer, &ids, &n, r->text.data, r->text.bytes, !r->literal)));
    json_write_object(w);
    json_write_key(w, "tokens");
    json_write_array(w);
    for (size_t i = 0; i < n; i++)
        json_write_int(w, ids[i]);
    json_write_array_end(w);
    write_int(w, "count", (int64_t)n);
    write_int(w, "max_model_len", e->serve->limits.max_prompt_tokens + e->serve->limits.max_tokens);
    json_write_object_end(w);
    drt_free(ids);
    return STATUS_OK;
}

static enum status exchange_detokenize(struct exchange *e, struct token_request *r) {
    char *text = NULL;
    size_t bytes = 0;
    struct json_writer *w = &e->reply.json;
    struct request_limits limits = e->serve->limits;
    limits.max_prompt_tokens = INT64_MAX; /* the limit of the body suffices */
    TRY(detokenize_request_parse(r, exchange_text(e), e->bytes, &limits));
    TRY(serve_status(
        drt_tokenizer_decode(e->serve->model.tokenizer, &text, &bytes, r->text.ids, (size_t)r->text.n_ids, false)));
    json_write_object(w);
    json_write_key(w, "prompt");
    json_write_bytes(w, text, bytes);
    json_write_object_end(w);
    drt_free(text);
    return STATUS_OK;
}

static void exchange_tokens(struct exchange *e) {
    struct token_request r = {0};
    enum status status = e->route.endpoint == ENDPOINT_TOKENIZE ? exchange_tokenize(e, &r) : exchange_detokenize(e, &r);
    if (status != STATUS_OK) exchange_error(e, serve_http_status(status), status_message(), r.param, NULL);
    token_request_free(&r);
}

/* ---- answers of the queue ---- */

/* Makes the ids of a prompt. An empty prompt begins a document. */
static enum status exchange_prompt_ids(struct exchange *e, struct job *job, int i) {
    struct request_text *prompt = &job->completion.prompts[i];
    const int32_t eos = e->serve->model.info.eos_id;
    const int32_t *ids = prompt->ids;
    int32_t *encoded = NULL;
    size_t n = (size_t)prompt->n_ids;
    if (prompt->data) {
        TRY(serve_status(
            drt_tokenizer_encode(e->serve->model.tokenizer, &encoded, &n, prompt->data, prompt->bytes, true)));
        ids = encoded;
    }
    enum status status = STATUS_OK;
    if ((int64_t)n > e->serve->limits.max_prompt_tokens)
        status = fail(STATUS_INVALID, "the prompt has %zu tokens; this server takes %lld (--max-prompt-tokens)", n,
                      (long long)e->serve->limits.max_prompt_tokens);
    else if (n == 0 && eos < 0)
        status = fail(STATUS_INVALID, "the prompt is empty, and the model has no token to begin a document with");
    else
        status = memory_allocate(&job->prompt_ids[i], n + 1);
    if (status == STATUS_OK) {
        job->prompt_ids[i][0] = eos;
        if (n) memcpy(job->prompt_ids[i], ids, n * sizeof *ids);
        job->n_prompt_ids[i] = n ? n : 1;
    }
    drt_free(encoded);
    return status;
}

/* Refuses requests that need a store, or a model with retrieval, before they wait in the queue. */
static enum status exchange_check_retrieval(const struct serve *serve, struct completion_request *r) {
    const bool corpus = r->source == RETRIEVAL_CORPUS || r->source == RETRIEVAL_BOTH;
    snprintf(r->param, sizeof r->param, "retrieval");
    if ((corpus || r->memory >= RETRIEVAL_MEMORY_CORPUS) && !serve->model.store)
        return fail(STATUS_INVALID, "this server has no store to retrieve from: start it with --store DIR");
    if (r->source != RETRIEVAL_NONE && strcmp(serve->model.info.variant, "base") == 0)
        return fail(STATUS_INVALID, "%s is a Base LM, which has no GCA: give retrieval.memory, not retrieval.source",
                    serve->model.name);
    r->param[0] = 0;
    return STATUS_OK;
}

static enum status exchange_completion(struct exchange *e, struct job *job, const char **code) {
    struct completion_request *r = &job->completion;
    TRY(completion_request_parse(r, exchange_text(e), e->bytes, &e->serve->limits));
    if (r->model[0] && strcmp(r->model, e->serve->model.name) != 0) {
        snprintf(r->param, sizeof r->param, "model");
        *code = "model_not_found";
        return fail(STATUS_NOT_FOUND, "there is no model \"%s\": this server has \"%s\"", r->model,
                    e->serve->model.name);
    }
    TRY(exchange_check_retrieval(e->serve, r));
    TRY(memory_allocate_zero(&job->prompt_ids, (size_t)r->n_prompts));
    TRY(memory_allocate_zero(&job->n_prompt_ids, (size_t)r->n_prompts));
    snprintf(r->param, sizeof r->param, "prompt");
    for (int i = 0; i < r->n_prompts; i++)
        TRY(exchange_prompt_ids(e, job, i));
    r->param[0] = 0;
    if (!r->seed_given) r->seed = (uint64_t)(clock_seconds() * 1e9) ^ (uintptr_t)job;
    job->streams = r->stream;
    return STATUS_OK;
}

static void exchange_queue(struct exchange *e) {
    struct job *job = NULL;
    const char *code = NULL, *param = "";
    enum status status = job_create(&job, e->route.endpoint);
    if (status == STATUS_OK) {
        job->deadline = job->submitted + (double)e->serve->options.request_seconds;
        job->document = e->route.document;
        job->first_chunk = e->first_chunk;
        job->chunks = e->chunks;
        if (job->kind == ENDPOINT_COMPLETIONS) {
            status = exchange_completion(e, job, &code);
            param = job->completion.param;
        } else if (job->kind == ENDPOINT_SEARCH) {
            status = search_request_parse(&job->search, exchange_text(e), e->bytes, &e->serve->limits);
            param = job->search.param;
        }
        if (status == STATUS_OK && atomic_load(&e->serve->stopping))
            status = fail(STATUS_BUSY, "the server is stopping");
        if (status == STATUS_OK) {
            param = "";
            status = serve_queue_submit(e->serve->queue, job);
        }
    }
    if (status != STATUS_OK)
        exchange_error(e, serve_http_status(status), status_message(), param, code);
    else
        e->job = job;
    if (status != STATUS_OK) job_release(job);
}

/* Handles a request that passed all checks of its head. */
static void exchange_serve(struct exchange *e) {
    switch (e->route.endpoint) {
    case ENDPOINT_MODELS:
        exchange_models(e);
        break;
    case ENDPOINT_TOKENIZER_INFO:
        exchange_tokenizer_info(e);
        break;
    case ENDPOINT_HEALTH:
        exchange_health(e);
        break;
    case ENDPOINT_METRICS:
        exchange_metrics(e);
        break;
    case ENDPOINT_PAGE:
        exchange_page(e);
        break;
    case ENDPOINT_TOKENIZE:
    case ENDPOINT_DETOKENIZE:
        exchange_tokens(e);
        break;
    case ENDPOINT_COMPLETIONS:
    case ENDPOINT_SEARCH:
    case ENDPOINT_DOCUMENT:
        exchange_queue(e);
        break;
    case ENDPOINT_UNKNOWN:
    case ENDPOINTS:
        break;
    }
}

void exchange_run(struct exchange *e) {
    if (e->refusal) {
        const char *code = e->status == 401 ? "invalid_api_key" : NULL;
        exchange_error(e, e->status, e->refusal, NULL, e->status == 404 && e->route.model ? "model_not_found" : code);
    } else {
        e->status = e->route.status;
        if (e->status == 200) exchange_serve(e);
    }
    if (!e->job && reply_flush(&e->reply) != STATUS_OK) e->status = 500;
}
