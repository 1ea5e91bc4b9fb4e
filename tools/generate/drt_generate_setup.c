/* drt_generate_setup.c -- everything that a run needs, made before the prompt is read. */
#include "base/memory.h"
#include "tools/generate/drt_generate_state.h"
#include "tools/shared/report.h"

#include <string.h>

static enum status find_unspoken(struct generate_state *r) {
    const struct model_config *config = &r->engine->model.config;
    TRY(memory_allocate(&r->unspoken, (size_t)config->vocab_size));
    for (int32_t id = 0; id < config->vocab_size; id++)
        if (id >= tokenizer_vocab_size(r->engine->model.tokenizer) || !tokenizer_token(r->engine->model.tokenizer, id))
            r->unspoken[r->n_unspoken++] = id;
    return STATUS_OK;
}

static enum status make_sampler(struct generate_state *r) {
    const struct generate_options *o = r->options;
    const struct model_config *config = &r->engine->model.config;
    struct sampler_config sampler = {.temperature = o->greedy ? 0 : (float)o->temperature,
                                     .top_k = (int)o->top_k,
                                     .top_p = (float)o->top_p,
                                     .min_p = (float)o->min_p,
                                     .repeat_penalty = (float)o->repeat_penalty,
                                     .repeat_last = (int)o->repeat_last,
                                     .seed = (uint64_t)o->seed};
    const int32_t banned[] = {config->landmark_id, config->pad_id, config->mask_id};
    for (size_t i = 0; i < ARRAY_LEN(banned); i++)
        if (banned[i] >= 0 && banned[i] != config->eos_id) sampler.banned[sampler.n_banned++] = banned[i];
    return sampler_create(&r->sampler, &sampler, config->vocab_size);
}

static enum status make_trace(struct generate_state *r) {
    const struct generate_options *o = r->options;
    const struct model_config *config = &r->engine->model.config;
    if (!o->trace && !o->show_retrieved) return STATUS_OK;
    struct trace_config trace = {.tokenizer = r->engine->model.tokenizer,
                                 .view = r->engine->view,
                                 .chunk = config->base_lm ? 64 : config->chunk,
                                 .groups = config->groups ? config->groups : 1};
    if (o->trace) {
        char title[2 * FILE_PATH_MAX + 64];
        snprintf(title, sizeof title, "%s%s%s%s", r->engine->model.path, o->store ? " with the store " : "",
                 o->store ? o->store : "", o->self ? o->store ? " and its own past" : " with its own past" : "");
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

static enum status make_memory(struct generate_state *r) {
    const struct generate_options *o = r->options;
    int kind = 0;
    while (kind < MEMORY_KINDS && strcmp(o->memory, memory_kind_names[kind]) != 0)
        kind++;
    if (kind == MEMORY_KINDS) return STATUS_OK;
    TRY(memory_options_config(&r->memory_config, &o->memory_options, &r->engine->model.config));
    if (!r->memory_config.mixture[kind].given)
        return fail(STATUS_INVALID, "%s: has nothing fitted for \"%s\": take another --memory, or fit again",
                    o->memory_options.config, o->memory);
    TRY(memory_options_lexical(&r->lexical, &o->memory_options));
    const struct memory_text_config config = {.engine = r->engine,
                                              .memory = &r->memory_config,
                                              .lexical = r->lexical,
                                              .kind = (enum memory_kind)kind,
                                              .past = o->memory_past};
    return memory_text_create(&r->memory, &config);
}

enum status generate_prepare(struct generate_state *r) {
    const struct generate_options *o = r->options;
    const struct engine_retrieval how = {.self = o->self,
                                         .corpus = o->corpus,
                                         .exact = o->exact,
                                         .exact_fallback = o->exact_fallback,
                                         .nprobe = (int)o->nprobe};
    TRY(tokenizer_scratch_create(&r->scratch, r->engine->model.tokenizer));
    TRY(find_unspoken(r));
    TRY(make_sampler(r));
    TRY(printer_create(&r->printer, stdout, &o->stops));
    TRY(device_allocate_host(r->engine->device, &r->logits, (size_t)r->engine->model.config.vocab_size));
    TRY(make_memory(r));
    TRY(make_trace(r));
    TRY(engine_retriever(&r->retriever, r->engine, &how));
    TRY(decoder_state_create(&r->state, r->engine->decoder, r->retriever));
    if (r->trace) {
        struct decoder_watch watch = trace_watch(r->trace);
        decoder_state_watch(r->state, &watch);
    }
    return STATUS_OK;
}

void generate_release(struct generate_state *r) {
    decoder_state_free(r->state);
    report_missing("drt-generate", r->engine, r->options->exact_fallback);
    engine_retriever_free(r->retriever);
    (void)trace_end(r->trace, false);
    memory_text_free(r->memory);
    lexical_close(r->lexical);
    printer_free(r->printer);
    sampler_free(r->sampler);
    tokenizer_scratch_free(r->scratch);
    device_release_host(r->engine->device, r->logits);
    memory_free(r->unspoken);
}
