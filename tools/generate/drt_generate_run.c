/* drt_generate_run.c -- prompt in passes, then the token loop. */
#include "base/clock.h"
#include "base/memory.h"
#include "tools/generate/drt_generate_state.h"
#include "tools/shared/progress_line.h"

#include <math.h>
#include <string.h>

enum { PROGRESS_FROM = 16 }; /* prompts of fewer passes are read without a progress line */

static enum status feed(struct generate_state *r, const int32_t *ids, int64_t n, bool logits, bool prompt) {
    const struct decoder_output out = {.logits = logits ? r->logits : NULL};
    if (r->memory)
        TRY(memory_text_feed(r->memory, r->state, out.logits, ids, n));
    else
        TRY(decoder_forward(r->state, &out, ids, n));
    return r->trace ? trace_tokens(r->trace, ids, n, prompt) : STATUS_OK;
}

/* In passes of whole chunks, so that a long prompt shows progress and can be interrupted. */
static enum status feed_prompt(struct generate_state *r, const int32_t *ids, int64_t n) {
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
static enum status pick(struct generate_state *r, int32_t *id, enum generate_end *end, bool *done) {
    const struct model_config *config = &r->engine->model.config;
    const char *text = "";
    size_t bytes = 0;
    for (int i = 0; i < r->n_unspoken; i++)
        r->logits[r->unspoken[i]] = -INFINITY;
    *id = sampler_pick(r->sampler, r->logits);
    if (r->memory) r->memory_share += memory_text_share(r->memory, *id);
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

static enum status token_loop(struct generate_state *r, enum generate_end *end, int64_t *tokens) {
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

static enum status work(struct generate_state *r, enum generate_end *end, const char *prompt, size_t prompt_bytes) {
    const struct model_config *config = &r->engine->model.config;
    const int32_t *ids = NULL;
    size_t n = 0;
    int64_t tokens = 0;
    TRY(generate_prepare(r));
    double start = clock_seconds();
    TRY(tokenizer_encode(r->engine->model.tokenizer, r->scratch, prompt, prompt_bytes, TOKENIZER_RECOGNISE, &ids, &n));
    int32_t *copy = NULL, begin = config->eos_id;
    if (n == 0 && begin < 0)
        return fail(STATUS_INVALID,
                    "the prompt is empty, and the model has no eos_id to begin a document with: give a prompt");
    /* The ids live in the scratch, which the trace's and the stream's decoding do not touch only while it is ours. */
    TRY(memory_allocate(&copy, n + 1));
    memcpy(copy, n ? ids : &begin, (n ? n : 1) * sizeof *copy);
    if (n == 0) n = 1; /* without a prompt the text begins after an end-of-document token */
    sampler_see(r->sampler, copy, (int64_t)n);
    enum status status = feed_prompt(r, copy, (int64_t)n);
    memory_free(copy);
    TRY(status);
    r->prompt = generate_times_take(r->state, r->retriever, &r->last, clock_seconds() - start, (int64_t)n);
    tokenizer_stream_start(&r->stream, true);
    if (r->options->echo) TRY(printer_echo(r->printer, prompt, prompt_bytes));
    start = clock_seconds();
    TRY(token_loop(r, end, &tokens));
    r->generated = generate_times_take(r->state, r->retriever, &r->last, clock_seconds() - start, tokens);
    struct trace *trace = r->trace;
    r->trace = NULL; /* the watcher is not called any more */
    TRY(trace_end(trace, true));
    if (r->options->stats) generate_times_print(stderr, r->engine->searched_by.text, &r->prompt, &r->generated);
    if (r->options->stats && r->memory)
        fprintf(stderr, "memory     %.1f %% of the generated tokens' probability\n",
                tokens > 0 ? 100 * r->memory_share / (double)tokens : 0);
    return STATUS_OK;
}

enum status generate_run(enum generate_end *end, struct engine *e, const struct generate_options *o, const char *prompt,
                         size_t prompt_bytes, const struct progress *progress) {
    struct generate_state r = {.engine = e, .options = o, .progress = progress};
    enum status status = work(&r, end, prompt, prompt_bytes);
    generate_release(&r);
    return status;
}
