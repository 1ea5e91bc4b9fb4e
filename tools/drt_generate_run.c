/* drt_generate_run.c -- prompt in passes, then the token loop. */
#include "base/memory.h"
#include "tools/drt_generate.h"
#include "tools/progress_line.h"

#include <math.h>
#include <string.h>

enum { PROGRESS_FROM = 16 }; /* prompts of fewer passes are read without a progress line */

struct run {
    struct engine *engine;
    const struct generate_options *options;
    const struct progress *progress;
    struct tokenizer_scratch *scratch;
    struct retriever *retriever;
    struct decoder_state *state;
    struct sampler *sampler;
    struct printer *printer;
    struct tokenizer_stream stream;
    struct trace *trace; /* NULL: nobody looks */
    float *logits;
    int32_t *unspoken;
    int n_unspoken; /* ids of the model that the tokenizer has no text for */
    struct chunk_retriever_times last;
    struct generate_times prompt, generated;
};

/* ---- setting up ------------------------------------------------------------------------------------------ */

static enum status find_unspoken(struct run *r) {
    const struct model_config *config = &r->engine->model.config;
    TRY(memory_allocate((void **)&r->unspoken, (size_t)config->vocab_size, sizeof *r->unspoken));
    for (int32_t id = 0; id < config->vocab_size; id++)
        if (id >= tokenizer_vocab_size(r->engine->model.tokenizer) || !tokenizer_token(r->engine->model.tokenizer, id))
            r->unspoken[r->n_unspoken++] = id;
    return STATUS_OK;
}

static enum status make_sampler(struct run *r) {
    const struct generate_options *o = r->options;
    const struct model_config *config = &r->engine->model.config;
    struct sampler_config sampler = {.temperature = o->greedy ? 0 : (float)o->temperature,
                                     .top_k = (int)o->top_k,
                                     .top_p = (float)o->top_p,
                                     .seed = (uint64_t)o->seed};
    const int32_t banned[] = {config->landmark_id, config->pad_id, config->mask_id};
    for (size_t i = 0; i < ARRAY_LEN(banned); i++)
        if (banned[i] >= 0 && banned[i] != config->eos_id) sampler.banned[sampler.n_banned++] = banned[i];
    return sampler_create(&r->sampler, &sampler, config->vocab_size);
}

static enum status make_trace(struct run *r) {
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
        enum status status = trace_lines(&trace.sinks[trace.n_sinks], stderr);
        if (status != STATUS_OK) {
            if (trace.n_sinks) (void)trace.sinks[0]->end(trace.sinks[0], false);
            return status;
        }
        trace.n_sinks++;
    }
    return trace_create(&r->trace, &trace);
}

static enum status prepare(struct run *r) {
    const struct generate_options *o = r->options;
    const struct engine_retrieval how = {
        .self = o->self, .corpus = o->corpus, .exact = o->exact, .nprobe = (int)o->nprobe};
    TRY(tokenizer_scratch_create(&r->scratch, r->engine->model.tokenizer));
    TRY(find_unspoken(r));
    TRY(make_sampler(r));
    TRY(printer_create(&r->printer, stdout, &o->stops));
    TRY(memory_allocate_aligned((void **)&r->logits, (size_t)r->engine->model.config.vocab_size, sizeof *r->logits));
    TRY(make_trace(r));
    TRY(engine_retriever(&r->retriever, r->engine, &how));
    TRY(decoder_state_create(&r->state, r->engine->decoder, r->retriever));
    if (r->trace) {
        struct decoder_watch watch = trace_watch(r->trace);
        decoder_state_watch(r->state, &watch);
    }
    return STATUS_OK;
}

static void run_free(struct run *r) {
    decoder_state_free(r->state);
    engine_retriever_free(r->retriever);
    (void)trace_end(r->trace, false);
    printer_free(r->printer);
    sampler_free(r->sampler);
    tokenizer_scratch_free(r->scratch);
    memory_free(r->logits);
    memory_free(r->unspoken);
}

/* ---- running --------------------------------------------------------------------------------------------- */

static enum status feed(struct run *r, const int32_t *ids, int64_t n, bool logits, bool prompt) {
    const struct decoder_output out = {.logits = logits ? r->logits : NULL};
    TRY(decoder_forward(r->state, &out, ids, n));
    return r->trace ? trace_tokens(r->trace, ids, n, prompt) : STATUS_OK;
}

/* In passes of whole chunks, so that a long prompt shows progress and can be interrupted. */
static enum status feed_prompt(struct run *r, const int32_t *ids, int64_t n) {
    const int64_t pass = engine_pass(r->engine);
    for (int64_t at = 0; at < n; at += pass) {
        int64_t now = n - at < pass ? n - at : pass;
        if (progress_stop_requested(r->progress)) return fail(STATUS_INTERRUPTED, "stopped while reading the prompt");
        TRY(feed(r, ids + at, now, at + now == n, true));
        if (n >= PROGRESS_FROM * pass) progress_step(r->progress, "read the prompt", "tokens", at + now, n);
    }
    return STATUS_OK;
}

/* The next id, shown as far as it can be. Ids without text never come out. */
static enum status pick(struct run *r, int32_t *id, enum generate_end *end, bool *done) {
    const struct model_config *config = &r->engine->model.config;
    const char *text = "";
    size_t bytes = 0;
    for (int i = 0; i < r->n_unspoken; i++)
        r->logits[r->unspoken[i]] = -INFINITY;
    *id = sampler_pick(r->sampler, r->logits);
    if (*id == config->eos_id && !r->options->ignore_eos) {
        *end = GENERATE_EOS;
        *done = true;
        return STATUS_OK;
    }
    TRY(tokenizer_stream_push(r->engine->model.tokenizer, &r->stream, r->scratch, *id, &text, &bytes));
    TRY(printer_put(r->printer, text, bytes, done));
    if (*done) *end = GENERATE_STOP;
    return STATUS_OK;
}

static enum status token_loop(struct run *r, enum generate_end *end, int64_t *tokens) {
    bool done = false;
    *end = GENERATE_LENGTH;
    for (*tokens = 0; *tokens < r->options->max_tokens && !done;) {
        int32_t id = 0;
        if (progress_stop_requested(r->progress)) {
            *end = GENERATE_INTERRUPTED;
            break;
        }
        TRY(pick(r, &id, end, &done));
        if (*end == GENERATE_EOS) break;
        ++*tokens;
        bool last = done || *tokens == r->options->max_tokens;
        if (!last)
            TRY(feed(r, &id, 1, true, false));
        else if (r->trace)
            TRY(trace_tokens(r->trace, &id, 1, false));
    }
    if (*end == GENERATE_STOP) return printer_end(r->printer);
    const char *text = "";
    size_t bytes = 0;
    TRY(tokenizer_stream_flush(&r->stream, r->scratch, &text, &bytes));
    TRY(printer_put(r->printer, text, bytes, &done));
    return printer_end(r->printer);
}

static enum status work(struct run *r, enum generate_end *end, const char *prompt, size_t prompt_bytes) {
    const struct model_config *config = &r->engine->model.config;
    const int32_t *ids = NULL;
    size_t n = 0;
    int64_t tokens = 0;
    bool stopped = false;
    TRY(prepare(r));
    double start = progress_now();
    TRY(tokenizer_encode(r->engine->model.tokenizer, r->scratch, prompt, prompt_bytes, TOKENIZER_RECOGNISE, &ids, &n));
    int32_t *copy = NULL, begin = config->eos_id;
    if (n == 0 && begin < 0)
        return fail(STATUS_INVALID,
                    "the prompt is empty, and the model has no eos_id to begin a document with: give a prompt");
    /* The ids live in the scratch, which the trace's and the stream's decoding do not touch only while it is ours. */
    TRY(memory_allocate((void **)&copy, n + 1, sizeof *copy));
    memcpy(copy, n ? ids : &begin, (n ? n : 1) * sizeof *copy);
    if (n == 0) n = 1; /* a document begins behind the end of another */
    enum status status = feed_prompt(r, copy, (int64_t)n);
    memory_free(copy);
    TRY(status);
    r->prompt = generate_times_take(r->state, r->retriever, &r->last, progress_now() - start, (int64_t)n);
    tokenizer_stream_start(&r->stream, true);
    if (r->options->echo) {
        fwrite(prompt, 1, prompt_bytes, stdout);
        TRY(printer_put(r->printer, "", 0, &stopped));
    }
    start = progress_now();
    TRY(token_loop(r, end, &tokens));
    r->generated = generate_times_take(r->state, r->retriever, &r->last, progress_now() - start, tokens);
    struct trace *trace = r->trace;
    r->trace = NULL; /* the watcher is not called any more */
    TRY(trace_end(trace, true));
    if (r->options->stats) generate_times_print(stderr, &r->prompt, &r->generated);
    return STATUS_OK;
}

enum status generate_run(enum generate_end *end, struct engine *e, const struct generate_options *o, const char *prompt,
                         size_t prompt_bytes, const struct progress *progress) {
    struct run r = {.engine = e, .options = o, .progress = progress};
    enum status status = work(&r, end, prompt, prompt_bytes);
    run_free(&r);
    return status;
}
