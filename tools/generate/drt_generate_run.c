/* drt_generate_run.c -- reads the prompt, then generates tokens. */
#include "base/clock.h"
#include "tools/generate/drt_generate_state.h"

static enum status token_loop(struct generate_state *r, bool *interrupted, int64_t *tokens) {
    struct generation_token token = {0};
    for (*tokens = 0; *tokens < r->options->max_tokens && token.end == GENERATION_RUNNING; ++*tokens) {
        *interrupted = progress_stop_requested(r->progress);
        if (*interrupted) break;
        TRY(generation_next(r->generation, &token));
        TRY(generate_trace_token(r, &token));
        if (r->options->stats) r->memory_share += generation_memory_share(r->generation, token.id);
        TRY(printer_put(&r->printer, token.text, token.bytes));
        if (token.end == GENERATION_EOS) break; /* it is not counted, because it is not text */
    }
    if (*interrupted) {
        TRY(generation_stop(r->generation, &token.text, &token.bytes));
        TRY(printer_put(&r->printer, token.text, token.bytes));
    }
    /* the last token belongs to the text, although it was not fed */
    if (*tokens > 0 && token.end != GENERATION_EOS && r->trace) TRY(trace_tokens(r->trace, &token.id, 1, false));
    return printer_end(&r->printer);
}

static struct generate_times take_times(struct generate_state *r, double start, int64_t tokens) {
    return generate_times_take(r->generation, &r->last, clock_seconds() - start, tokens);
}

static enum status generate_run_work(struct generate_state *r, bool *interrupted, const char *prompt,
                                     size_t prompt_bytes) {
    const int32_t *ids = NULL;
    int64_t n = 0, tokens = 0;
    TRY(generate_prepare(r));
    if (r->options->interactive) return generate_interactive(r, interrupted, prompt, prompt_bytes);
    double start = clock_seconds();
    TRY(generation_encode(r->generation, &ids, &n, prompt, prompt_bytes));
    TRY(generation_feed(r->generation, ids, n, NULL));
    TRY(device_sync(r->engine->device)); /* for the prompt's time */
    r->prompt = take_times(r, start, n);
    if (r->options->echo) TRY(printer_put(&r->printer, prompt, prompt_bytes));
    start = clock_seconds();
    TRY(token_loop(r, interrupted, &tokens));
    r->generated = take_times(r, start, tokens);
    struct trace *trace = r->trace;
    r->trace = NULL; /* the watch is not called after this */
    TRY(trace_end(trace, true));
    if (r->options->stats) generate_times_print(stderr, r->engine->searched_by.text, &r->prompt, &r->generated);
    if (r->options->stats && r->memory)
        fprintf(stderr, "memory     %.1f %% of the generated tokens' probability\n",
                tokens > 0 ? 100 * r->memory_share / (double)tokens : 0);
    return STATUS_OK;
}

enum status generate_run(bool *interrupted, struct engine *e, const struct generate_options *o, const char *prompt,
                         size_t prompt_bytes, const struct progress *progress) {
    struct generate_state r = {.engine = e, .options = o, .progress = progress};
    enum status status = generate_run_work(&r, interrupted, prompt, prompt_bytes);
    generate_release(&r);
    return status;
}
