/* serve_model.c -- the model and its store. */
#include "base/memory.h"
#include "tools/serve/serve.h"
#include "tools/serve/serve_http.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum status serve_status(enum drt_status status) {
    /* The numbers of enum drt_status are those of enum status. */
    return status == DRT_OK ? STATUS_OK : fail((enum status)status, "%s", drt_message());
}

static enum status serve_model_name(struct serve_model *m, const char *name) {
    if (!name) {
        const char *slash = strrchr(m->info.path, '/');
        name = slash && slash[1] ? slash + 1 : m->info.path;
    }
    if (snprintf(m->name, sizeof m->name, "%s", name) >= (int)sizeof m->name)
        return fail(STATUS_INVALID, "--model-name takes at most %zu bytes", sizeof m->name - 1);
    return STATUS_OK;
}

static enum status serve_model_open_searcher(struct serve_model *m, enum request_searcher kind) {
    static const enum drt_search_kind kinds[SEARCH_KINDS] = {DRT_SEARCH_AUTO, DRT_SEARCH_LEXICAL, DRT_SEARCH_HYBRID};
    const struct serve_options *o = m->options;
    const bool landmark = kind == SEARCH_LANDMARK;
    struct slices_remote workers = {0};
    if (kind != SEARCH_LEXICAL) TRY(worker_options_remote(&workers, m->worker_key, &o->workers));
    const struct drt_searcher_config config = {.size = sizeof config,
                                               .kind = kinds[kind],
                                               .exact = landmark && o->exact,
                                               .nprobe = landmark ? (int)o->nprobe : 0,
                                               .threads = landmark ? (int)o->threads : 0,
                                               .workers = workers.addresses,
                                               .worker_key = workers.key,
                                               .worker_timeout = workers.timeout,
                                               .devices = kind != SEARCH_LEXICAL ? o->n_devices : 0};
    return serve_status(drt_searcher_open(&m->searchers[kind], m->store, m->model, &config));
}

enum drt_memory_keys serve_memory_keys(const struct serve_model *m) {
    static const char *const names[] = {"auto", "stored", "device", "encoded"}; /* in the order of the enum */
    for (size_t i = 0; m->options->memory_keys && i < ARRAY_LEN(names); i++)
        if (strcmp(m->options->memory_keys, names[i]) == 0) return (enum drt_memory_keys)i;
    return DRT_MEMORY_KEYS_AUTO;
}

/* Opens a session with a token memory, so that a failure ends the start of the server. */
static enum drt_status serve_model_try_memory(struct serve_model *m, enum drt_memory kind) {
    const struct drt_session_config config = {.size = sizeof config,
                                              .store = kind == DRT_MEMORY_OWN ? NULL : m->store,
                                              .memory = kind,
                                              .memory_config = m->options->memory_config,
                                              .memory_keys = serve_memory_keys(m)};
    struct drt_session *session = NULL;
    const enum drt_status s = drt_session_open(&session, m->model, &config);
    drt_session_close(session);
    return s;
}

/* The first session copies the keys; those of requests then find them there. memory.json may lack one of the kinds. */
static enum status serve_model_copy_keys(struct serve_model *m) {
    enum drt_status s = DRT_OK;
    if (serve_memory_keys(m) != DRT_MEMORY_KEYS_DEVICE) return STATUS_OK;
    if (serve_model_on_gpu(m))
        serve_log("note", "copying the keys of %lld chunks of %s into the GPU's memory",
                  (long long)m->store_info.keys_chunks, m->options->store);
    for (enum drt_memory kind = DRT_MEMORY_CORPUS; kind <= DRT_MEMORY_BOTH; kind++) {
        s = serve_model_try_memory(m, kind);
        if (s != DRT_INVALID) break;
    }
    return serve_status(s);
}

/* Workers open the newest generation. If the store has changed meanwhile, that is not this view's generation. */
static enum status serve_model_store(struct serve_model *m, const struct serve_options *o) {
    TRY(serve_status(drt_store_open(&m->store, o->store)));
    m->store_info.size = sizeof m->store_info;
    TRY(serve_status(drt_store_info(m->store, &m->store_info)));
    if (m->store_info.dim == 0 && (strcmp(o->retrieval, "corpus") == 0 || strcmp(o->retrieval, "both") == 0))
        return fail(
            STATUS_UNSUPPORTED,
            "%s: has no landmarks (it was built with --landmarks none), which --retrieval %s searches: leave it "
            "out, and let requests use a token memory",
            o->store, o->retrieval);
    TRY(serve_model_copy_keys(m));
    TRY(serve_model_open_searcher(m, SEARCH_LANDMARK));
    return o->workers.addresses && m->store_info.lexical ? serve_model_open_searcher(m, SEARCH_HYBRID) : STATUS_OK;
}

enum status serve_model_open(struct serve_model *out, const struct serve_options *o) {
    struct serve_model *m = out;
    const struct drt_model_config config = {
        .size = sizeof config, .device = o->device, .dtype = o->dtype, .threads = (int)o->threads};
    *m = (struct serve_model){.options = o, .opened = (int64_t)time(NULL)};
    TRY(serve_status(drt_model_open(&m->model, o->model, &config)));
    m->info.size = sizeof m->info;
    TRY(serve_status(drt_model_info(m->model, &m->info)));
    if (o->overlap > 0 && o->overlap >= m->info.chunk)
        return fail(STATUS_INVALID, "--overlap %lld: a chunk of %s has %d tokens: give at most %d",
                    (long long)o->overlap, m->info.path, m->info.chunk, m->info.chunk > 0 ? m->info.chunk - 1 : 0);
    m->tokenizer = drt_model_tokenizer(m->model);
    TRY(serve_model_name(m, o->model_name));
    const char *eos = m->info.eos_id < 0 ? NULL : drt_tokenizer_spelling(m->tokenizer, m->info.eos_id);
    snprintf(m->eos_text, sizeof m->eos_text, "%s", eos ? eos : "");
    if (strcmp(m->info.variant, "base") == 0 && strcmp(o->retrieval, "none") != 0)
        return fail(STATUS_UNSUPPORTED,
                    "%s: is a Base LM, which has no retrieval: leave out --retrieval %s (a Base LM reads a store by a "
                    "token memory: --memory), or take another model",
                    m->info.path, o->retrieval);
    if (o->store) TRY(serve_model_store(m, o));
    for (size_t i = 1; o->memory && i < RETRIEVAL_MEMORIES; i++)
        if (strcmp(o->memory, retrieval_memory_names[i]) == 0)
            return serve_status(serve_model_try_memory(m, (enum drt_memory)i));
    return STATUS_OK;
}

void serve_model_close(struct serve_model *m) {
    for (int i = 0; i < SEARCH_KINDS; i++)
        drt_searcher_close(m->searchers[i]);
    drt_store_close(m->store);
    drt_model_close(m->model);
    *m = (struct serve_model){0};
}

bool serve_model_on_gpu(const struct serve_model *m) {
    return strcmp(m->info.device, "cuda") == 0;
}

enum status serve_model_searcher(struct drt_searcher **out, struct serve_model *m, enum request_searcher kind) {
    if (!m->store) return fail(STATUS_NOT_FOUND, "this server has no store: start it with --store DIR");
    if (!m->searchers[kind]) TRY(serve_model_open_searcher(m, kind));
    *out = m->searchers[kind];
    return STATUS_OK;
}
