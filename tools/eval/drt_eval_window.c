/* drt_eval_window.c -- sums of negative log-likelihoods over windows.
 *
 * A document is divided into windows of `context` tokens that do not overlap. The first `skip` tokens of a window are
 * read but not scored, because they have little context and hardly any retrieval. Each mode reads each window with a
 * new state. So every mode scores the same positions with the same left context. */
#include "base/clock.h"
#include "tools/eval/drt_eval_run.h"
#include "tools/eval/fit/drt_eval_searches.h"
#include "tools/shared/progress_line.h"
#include <math.h>
#include <stdio.h>

/* ---- progress -------------------------------------------------------------------------------------------- */

void eval_step(const struct eval_run *r, const char *detail) {
    const struct eval_file *f = &r->result->files[r->result->n_files - 1];
    const int64_t all = r->options->max_tokens;
    progress_step_detail(r->progress, f->path, detail, "tokens", f->tokens + r->done, all ? all : -1);
}

static void report_in_window(void *context, const struct progress_event *e) {
    char detail[96];
    snprintf(detail, sizeof detail, "%s by %lld of %lld %s", e->stage, (long long)e->done, (long long)e->total,
             e->unit);
    eval_step(context, detail);
}

static bool stop_in_window(void *context) {
    const struct eval_run *r = context;
    return progress_stop_requested(r->progress);
}

struct progress eval_window_progress(struct eval_run *r) {
    return (struct progress){report_in_window, stop_in_window, r};
}

/* ---- one window ------------------------------------------------------------------------------------------ */

/* The window's n ids begin at the document's id number `at`. */
static enum status score_window(struct eval_run *r, enum eval_mode mode, const int32_t *ids, int64_t at, int64_t n,
                                int64_t first, double *sum, int64_t token) {
    struct decoder_state *state = NULL;
    struct engine *engine = mode >= EVAL_BASE ? r->engines->base[mode - EVAL_BASE] : r->engine;
    const int64_t pass = engine_pass(engine);
    double start = clock_seconds();
    for (int64_t i = 0; i + 1 < n; i++)
        r->targets[i] = i + 1 < first ? -1 : ids[i + 1];
    if (r->retriever[mode]) chunk_retriever_reset(r->retriever[mode], r->stored, at / r->engine->model.config.chunk);
    TRY(decoder_state_create(&state, engine->decoder, r->retriever[mode]));
    enum status status = STATUS_OK;
    for (int64_t i = 0; i < n - 1 && status == STATUS_OK; i += pass) {
        if (progress_stop_requested(r->progress)) status = fail(STATUS_INTERRUPTED, "stopped in a window of text");
        if (status != STATUS_OK) break;
        const struct decoder_output out = {.targets = r->targets + i, .nll = r->nll + i};
        status = decoder_forward(state, &out, ids + i, n - 1 - i < pass ? n - 1 - i : pass);
    }
    decoder_state_free(state);
    TRY(status);
    for (int64_t i = first - 1; i < n - 1; i++) {
        *sum += (double)r->nll[i];
        r->result->tokens.nll[mode][token + i - (first - 1)] = r->nll[i];
    }
    r->result->seconds[mode] += clock_seconds() - start;
    return STATUS_OK;
}

/* Returns the bytes of the text of the tokens from `first` on. A character that crosses an edge is
 * counted on one side. */
static enum status window_bytes(struct eval_run *r, const int32_t *ids, int64_t n, int64_t first, int64_t *bytes) {
    struct tokenizer_stream stream;
    const char *text = NULL;
    size_t length = 0;
    tokenizer_stream_start(&stream, false);
    for (int64_t i = 0; i < n; i++) {
        TRY(tokenizer_stream_push(r->engine->model.tokenizer, &stream, r->decoding, ids[i], &text, &length));
        if (i >= first) *bytes += (int64_t)length;
    }
    TRY(tokenizer_stream_flush(&stream, r->decoding, &text, &length));
    *bytes += (int64_t)length;
    return STATUS_OK;
}

/* Stores the positions that the n scored tokens from `token` on will have in the overlap. The document will be the
 * overlap's next text, and `at` is an index of its tokens. */
static void note_tokens(struct eval_run *r, int64_t at, int64_t n, int64_t token) {
    int64_t begin = r->runs ? overlap_tokens(r->result->overlap) : 0;
    for (int64_t i = 0; r->runs && i < n; i++)
        r->result->tokens.run_at[token + i] = begin + at + i;
}

/* ---- one document ---------------------------------------------------------------------------------------- */

/* Returns the tokens of the window at `at`, which are scored from `first` on; 0: none is scored. done: tokens of the
 * document that are scored already. */
static int64_t window_length(const struct eval_options *o, int64_t n, int64_t at, int64_t tokens_left, int64_t done) {
    const int64_t first = o->skip > 1 ? o->skip : 1; /* the first token of a window has no context */
    int64_t length = n - at < o->context ? n - at : o->context;
    if (tokens_left > 0 && length - first > tokens_left - done) length = first + tokens_left - done;
    return length > first ? length : 0;
}

int64_t eval_scored_tokens(const struct eval_options *o, int64_t n, int64_t tokens_left) {
    int64_t done = 0;
    for (int64_t at = 0; at < n; at += o->context) {
        const int64_t length = window_length(o, n, at, tokens_left, done);
        if (length > 0) done += length - (o->skip > 1 ? o->skip : 1);
    }
    return done;
}

enum status eval_nothing_scored(const struct eval_options *o) {
    return fail(STATUS_INVALID,
                "no document has more than %lld tokens, so nothing could be scored: give longer texts, or a "
                "smaller --skip",
                (long long)(o->skip > 1 ? o->skip : 1));
}

/* Scores the tokens from `first` on of the document's window at `at`, with the numbers from `token` on. */
static enum status score_modes(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t at,
                               int64_t length, int64_t first, int64_t token) {
    for (int mode = 0; mode < EVAL_MEMORY_OWN_PAST; mode++) {
        if (!r->result->mode[mode]) continue;
        eval_step(r, eval_mode_names[mode]);
        TRY(score_window(r, mode, ids + at, at, length, first, &d->nll[mode], token));
    }
    if (r->memory_gca) chunk_retriever_reset(r->memory_gca, r->stored, at / r->engine->model.config.chunk);
    if (r->engines->searches) return eval_searches_window(r, ids + at, length, first);
    if (r->memory) TRY(eval_memory_score(r, d, ids + at, length, first, token));
    return window_bytes(r, ids + at, length, first, &d->bytes);
}

/* A mean over NaN says nothing. at: the document's id with the number `token`. */
static enum status check_numbers(const struct eval_run *r, const struct eval_document *d, int64_t token, int64_t at) {
    const struct eval_tokens *t = &r->result->tokens;
    for (int mode = 0; mode < EVAL_MODES; mode++)
        for (int64_t i = token; isnan(d->nll[mode]) && i < t->n; i++)
            if (isnan(t->nll[mode][i]))
                return fail(STATUS_INVALID,
                            "%s: document %lld, token %lld: the loss (%s) is not a number: numbers of the model "
                            "overflow, in its weights or in this --dtype",
                            r->result->files[d->file].path, (long long)d->number, (long long)(at + i - token),
                            eval_mode_names[mode]);
    return STATUS_OK;
}

enum status eval_score_document(struct eval_run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                                int64_t tokens_left) {
    const struct eval_options *o = r->options;
    const int64_t first = o->skip > 1 ? o->skip : 1;
    for (int64_t at = 0; at < n && !progress_stop_requested(r->progress); at += o->context) {
        const int64_t length = window_length(o, n, at, tokens_left, d->tokens);
        if (length == 0) continue;
        int64_t token;
        TRY(eval_tokens_add(&r->result->tokens, r->result->mode, length - first, (int32_t)r->result->n_documents,
                            &token));
        note_tokens(r, at + first, length - first, token);
        struct eval_document with = *d;
        const enum status status = score_modes(r, &with, ids, at, length, first, token);
        if (status == STATUS_INTERRUPTED && progress_stop_requested(r->progress)) {
            r->result->tokens.n = token;
            return STATUS_OK;
        }
        TRY(status);
        TRY(check_numbers(r, &with, token, at + first));
        *d = with;
        r->done = d->tokens += length - first;
        r->read = at + length;
    }
    return STATUS_OK;
}
