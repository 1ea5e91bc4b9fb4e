/* drt_serve.c -- drt-serve: an HTTP server for a model and its store, with OpenAI's completions API. */
#include "base/clock.h"
#include "base/system/threads.h"
#include "tools/serve/serve.h"
#include "tools/shared/commands.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/search_options.h"

#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LARGE_BLOCK = 256 * 1024 };

static int serve_failed(enum status status) {
    log_failure("drt-serve", status);
    return 1;
}

static int serve_parse(struct serve_options *o, int argc, char **argv, const char **operands) {
    const struct arg_option options[] = {
        {NULL, ARG_FLAG, NULL, NULL, "Model and store", 0, 0},
        OPTION_MODEL(o->model),
        {"model-name", ARG_STRING, &o->model_name, "NAME", "its name in /v1/models (default: the folder's)", 0, 0},
        OPTION_STORE_OF_MODEL(o->store),
        {"retrieval", ARG_CHOICE, &o->retrieval, "none|self|corpus|both",
         "what a request retrieves from if it does not state it", 0, 0},
        {"continuation", ARG_INT, &o->continuation, "N",
         "for requests that do not state it: retrieve with each found chunk of the store the next N chunks of its "
         "document",
         0, REQUEST_CONTINUATION},
        {"overlap", ARG_INT, &o->overlap, "N",
         "for requests that do not state it: begin each continuation N tokens before the end of the chunk that it "
         "continues; chunks of the own past are then continued, too",
         0, REQUEST_CONTINUATION - 1},
        {"query-tokens", ARG_INT, &o->query_tokens, "N",
         "for requests that do not state it: words of a query are those of the last N tokens; 0: of the last 128", 0,
         REQUEST_QUERY_TOKENS},
        OPTION_EXACT(o->exact),
        OPTION_NPROBE(o->nprobe),
        OPTIONS_OF_WORKERS(o->workers),
        {"memory", ARG_CHOICE, &o->memory, "none|own|corpus|both",
         "the token memory of a request that states neither it nor what it retrieves from", 0, 0},
        {"memory-config", ARG_PATH, &o->memory_config, "FILE", "memory.json of token memories (default: the model's)",
         0, 0},
        {"memory-searcher", ARG_CHOICE, &o->memory_searcher, "landmark|lexical|hybrid",
         "how token memories find chunks; all requests then share one searcher (default: as memory.json says)", 0, 0},
        {"memory-keys", ARG_CHOICE, &o->memory_keys, "auto|stored|device|encoded",
         "keys of the chunks that token memories find, as in drt-generate (default: auto)", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Network", 0, 0},
        {"address", ARG_STRING, &o->address, "IP", "where to listen; addresses other than loopback need --api-key-file",
         0, 0},
        {"port", ARG_INT, &o->port, "N", "where to listen; 0: any free port", 0, 65535},
        {"port-file", ARG_PATH, &o->port_file, "FILE", "the port is written there once requests are answered", 0, 0},
        {"allow-host", ARG_STRINGS, &o->hosts, "NAME",
         "a Host header to accept besides loopback's; may be given several times", 0, 0},
        {"cors-origin", ARG_STRING, &o->cors_origin, "ORIGIN", "pages of this origin may send requests", 0, 0},
        {"api-key-file", ARG_PATH, &o->key_file, "FILE", "its first line is the key that requests must have", 0, 0},
        {NULL, ARG_FLAG, NULL, NULL, "Limits", 0, 0},
        {"sessions", ARG_INT, &o->sessions, "N",
         "completions that are computed at the same time; 0: 8 on a CPU, 32 on a GPU", 0, 1024},
        {"batch", ARG_INT, &o->batch, "N",
         "completions whose tokens are computed in one pass; on a GPU 1 gives the same bits as drt-generate", 1, 64},
        {"same-answers", ARG_FLAG, &o->same_answers, NULL,
         "on a GPU: compute a single completion like a batch, so that answers do not depend on the load", 0, 0},
        {"sample-threads", ARG_INT, &o->sample_threads, "N",
         "threads that sample the tokens of a batch and make their text; 0: one", 0, 256},
        {"queue", ARG_INT, &o->queue, "N", "requests that may wait; further ones get 503", 1, 100000},
        {"connections", ARG_INT, &o->connections, "N", "connections that may be open at the same time", 1, 100000},
        {"max-body", ARG_BYTES, &o->max_body, "SIZE", "largest body of a request, in bytes", 1024, ldexp(1, 30)},
        {"max-tokens", ARG_INT, &o->max_tokens, "N", "most tokens of an answer", 1, 1 << 20},
        {"max-prompt-tokens", ARG_INT, &o->max_prompt_tokens, "N", "most tokens of a prompt", 1, 1 << 24},
        {"max-prompts", ARG_INT, &o->max_prompts, "N",
         "most prompts of a request, and most choices of its answer (prompts times n)", 1, 4096},
        {"request-seconds", ARG_INT, &o->request_seconds, "N", "time of a request, its wait included", 1, 86400},
        {"receive-seconds", ARG_INT, &o->receive_seconds, "N",
         "seconds in which a request must arrive; a longer silence closes a connection", 1, 3600},
        {"prefill-chunks", ARG_INT, &o->prefill_chunks, "N", "chunks of a prompt that a round reads", 1, 256},
        {NULL, ARG_FLAG, NULL, NULL, "Machine", 0, 0},
        OPTIONS_OF_MACHINE(*o, o->threads),
        OPTION_DEVICES(o->devices, DEVICES_SEARCH),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-serve",
        .synopsis = "[--model DIR] [--store DIR] [--port N] [options]",
        .about = "Answers OpenAI's /v1/completions, and searches a store, over HTTP. A page at / shows what each token "
                 "could read. docs/serve.md describes every endpoint. SIGTERM lets running requests finish; a second "
                 "one ends them.",
        .examples =
            "  drt-serve --store docs.store --retrieval corpus\n"
            "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"The river\", \"max_tokens\": 32}'\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .max_operands = 0};
    int n_operands = 0;
    return args_parse(&program, argc, argv, operands, &n_operands);
}

static bool serve_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static int serve_usage(const char *format, ...) PRINTF_LIKE(1, 2);
static int serve_usage(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log_line(LOG_ERROR, "usage", "drt-serve", "%s; see drt-serve --help", text);
    return 2;
}

/* Returns the index of a name that the table of options has checked. */
static int name_index(const char *const names[], const char *name) {
    int i = 0;
    while (strcmp(name, names[i]) != 0)
        i++;
    return i;
}

/* Returns -1, or the exit status after an error. */
static int serve_check(const struct serve_options *o) {
    if (!network_is_address(o->address))
        return serve_usage("--address '%s' is not an IP address: give a numeric one, such as 127.0.0.1 or ::1",
                           o->address);
    if (!serve_loopback(o->address) && !o->key_file)
        return serve_usage("--address %s is open to other machines: give --api-key-file FILE", o->address);
    if (o->model_name && !o->model_name[0]) return serve_usage("--model-name '': the name is empty");
    if (!o->store && (strcmp(o->retrieval, "corpus") == 0 || strcmp(o->retrieval, "both") == 0))
        return serve_usage("--retrieval %s needs --store DIR", o->retrieval);
    if (strcmp(o->memory, "none") != 0 && strcmp(o->retrieval, "none") != 0)
        return serve_usage("--memory %s: a token memory is read without GCA: leave out --retrieval %s", o->memory,
                           o->retrieval);
    if (!o->store && name_index(retrieval_memory_names, o->memory) >= RETRIEVAL_MEMORY_CORPUS)
        return serve_usage("--memory %s needs --store DIR", o->memory);
    if (o->workers.addresses && !o->store) return serve_usage("--workers search a store: give --store DIR");
    if (o->memory_keys && strcmp(o->memory_keys, "device") == 0 && !o->store)
        return serve_usage("--memory-keys device copies keys of a store: give --store DIR");
    if (worker_options_wrong(&o->workers)) return serve_usage("%s", worker_options_wrong(&o->workers));
    if (o->devices && (!o->store || o->workers.addresses))
        return serve_usage("--devices share the landmarks of a store: give --store DIR, and no workers");
    return -1;
}

static int serve_listen(int argc, char **argv, const char **operands) {
    struct serve serve = {.options = {.device = "auto",
                                      .dtype = "auto",
                                      .retrieval = "none",
                                      .memory = "none",
                                      .address = "127.0.0.1",
                                      .port = 8080,
                                      .batch = 32,
                                      .queue = 64,
                                      .connections = 128,
                                      .prefill_chunks = 4,
                                      .max_tokens = 4096,
                                      .max_prompt_tokens = 32768,
                                      .max_prompts = 64,
                                      .request_seconds = 600,
                                      .receive_seconds = 30,
                                      .max_body = 4 << 20},
                          .started = clock_seconds()};
    struct serve_options *o = &serve.options;
    sigset_t set;
    int code = serve_parse(o, argc, argv, operands);
    if (code >= 0) return code;
    code = serve_check(o);
    if (code >= 0) return code;
    struct device_choice where = {.device = o->device};
    if (devices_choose(&where, o->devices) != STATUS_OK) return serve_usage("%s", status_message());
    enum status status = o->key_file ? network_key_read(serve.key, o->key_file) : STATUS_OK;
    if (status != STATUS_OK) return serve_failed(status);
    o->device = where.device;
    o->n_devices = where.devices;
    serve.limits =
        (struct request_limits){.max_tokens = o->max_tokens,
                                .max_prompt_tokens = o->max_prompt_tokens,
                                .max_prompts = (int)o->max_prompts,
                                .continuation = o->continuation,
                                .overlap = o->overlap,
                                .query_tokens = o->query_tokens,
                                .source = (enum retrieval_source)name_index(retrieval_source_names, o->retrieval),
                                .memory = (enum retrieval_memory)name_index(retrieval_memory_names, o->memory)};
    /* The memory of a session's buffers is returned to the system when the session ends. Without this setting, glibc
     * would raise the threshold when the first one is freed. */
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    network_signals_block(&set);
    status = serve_run(&serve, &set);
    return status == STATUS_OK ? 0 : serve_failed(status);
}

int main(int argc, char **argv) {
    return commands_run("drt-serve", serve_listen, argc, argv);
}
