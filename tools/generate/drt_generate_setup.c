/* drt_generate_setup.c -- opens all parts of a run before the prompt is read. */
#include "base/file.h"
#include "session/corpus_search.h"
#include "session/memory_folder.h"
#include "session/memory_search.h"
#include "tools/generate/drt_generate_state.h"
#include "tools/shared/report.h"
#include "tools/shared/search_options.h"

#include <string.h>

enum { CONTRIBUTORS = 6 }; /* of a token, in a trace */

static enum status make_trace(struct generate_state *r) {
    const struct generate_options *o = r->options;
    const struct model_config *config = &r->engine->model.config;
    if (!o->trace && !o->show_retrieved) return STATUS_OK;
    struct trace_config trace = {.tokenizer = r->engine->model.tokenizer,
                                 .view = r->engine->view,
                                 .chunk = config->base_lm ? 64 : config->chunk,
                                 .groups = config->groups ? config->groups : 1};
    if (o->trace) {
        TRY(file_apart(o->trace, &o->prompt_file, 1));
        char title[2 * FILE_PATH_MAX + 64];
        const char *slash = strrchr(r->engine->model.path, '/');
        bool own_past = o->own_past || strcmp(o->memory, "own") == 0 || strcmp(o->memory, "both") == 0;
        snprintf(title, sizeof title, "%s%s%s%s", slash && slash[1] ? slash + 1 : r->engine->model.path,
                 o->store ? " with the store " : "", o->store ? o->store : "",
                 own_past ? o->store ? " and its own past" : " with its own past" : "");
        TRY(trace_sink_for(&trace.sinks[trace.n_sinks], o->trace, title));
        trace.n_sinks++;
    }
    if (o->show_retrieved) {
        enum status status = trace_lines(&trace.sinks[trace.n_sinks], stderr, (int)o->show_retrieved);
        if (status != STATUS_OK) {
            if (trace.n_sinks) (void)trace.sinks[0]->end(trace.sinks[0], false);
            return status;
        }
        trace.n_sinks++;
    }
    return trace_create(&r->trace, &trace);
}

static enum status make_memory(struct generate_state *r, struct memory_text_config *out) {
    const struct generate_options *o = r->options;
    char file[FILE_PATH_MAX];
    int kind = 0;
    while (kind < MEMORY_KINDS && strcmp(o->memory, memory_kind_names[kind]) != 0)
        kind++;
    r->memory = kind < MEMORY_KINDS;
    if (!r->memory) return STATUS_OK;
    TRY(memory_options_config(&r->memory_config, file, &o->memory_options, &r->engine->model,
                              memory_folder_small(r->engine)));
    TRY(memory_options_fitted(&r->memory_config, file, (enum memory_kind)kind));
    const struct memory_search_config search = {
        .engine = r->engine, .kind = r->memory_config.searcher, .store = o->store};
    if (kind != MEMORY_OWN_PAST) TRY(memory_search_open(&r->memory_search, &search));
    *out = (struct memory_text_config){.engine = r->engine,
                                       .memory = &r->memory_config,
                                       .finder = memory_search_finder(r->memory_search),
                                       .kind = (enum memory_kind)kind,
                                       .past = memory_options_past(&o->memory_options)};
    return STATUS_OK;
}

enum status generate_trace_token(struct generate_state *r, const struct generation_token *token) {
    struct memory_text *memory = generation_memory(r->generation);
    struct memory_contributor from[CONTRIBUTORS];
    int n = 0;
    if (!r->trace || !memory || token->end == GENERATION_EOS) return STATUS_OK;
    TRY(memory_text_contributors(memory, from, &n, CONTRIBUTORS, token->id));
    return trace_memory(r->trace, generation_memory_share(r->generation, token->id), from, n);
}

static enum status on_fed(void *context, const int32_t *ids, int64_t n, bool prompt) {
    struct generate_state *r = context;
    return trace_tokens(r->trace, ids, n, prompt);
}

enum status generate_prepare(struct generate_state *r) {
    const struct generate_options *o = r->options;
    struct memory_text_config memory;
    struct decoder_watch watch;
    TRY(make_memory(r, &memory));
    TRY(make_trace(r));
    if (r->trace) watch = trace_watch(r->trace);
    const struct generation_config config = {.engine = r->engine,
                                             .retrieval = RETRIEVAL_OF_SEARCH(*o),
                                             .exclude_document = -1,
                                             .memory = r->memory ? &memory : NULL,
                                             .sampler = {.temperature = o->greedy ? 0 : (float)o->temperature,
                                                         .top_k = (int)o->top_k,
                                                         .top_p = (float)o->top_p,
                                                         .min_p = (float)o->min_p,
                                                         .repeat_penalty = (float)o->repeat_penalty,
                                                         .repeat_last = (int)o->repeat_last,
                                                         .seed = (uint64_t)o->seed},
                                             .stops = o->stops.items,
                                             .n_stops = o->stops.count,
                                             .max_tokens = o->interactive ? -1 : o->max_tokens,
                                             .ignore_eos = o->ignore_eos,
                                             .progress = r->progress,
                                             .watch = r->trace ? &watch : NULL,
                                             .fed = r->trace ? on_fed : NULL,
                                             .context = r};
    r->printer = (struct printer){.file = stdout, .ended = true};
    return generation_create(&r->generation, &config);
}

void generate_release(struct generate_state *r) {
    generation_free(r->generation);
    memory_search_close(r->memory_search);
    report_missing("drt-generate", r->engine, r->options->exact_fallback);
    (void)trace_end(r->trace, false);
}
