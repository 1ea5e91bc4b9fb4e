/* drt_eval_run.c -- documents to windows, windows to sums of negative log-likelihoods.
 *
 * A document is cut into windows of `context` tokens that do not overlap. The first `skip` tokens of a window are only
 * read: they have little context, and no retrieval to speak of. Each window runs once for each mode with a fresh state,
 * so every mode scores exactly the same positions with the same left context. */
#include "base/memory.h"
#include "data/reader.h"
#include "tools/drt_eval.h"
#include "tools/progress_line.h"

#include <string.h>

const char *const eval_mode_names[EVAL_MODES] = {"none", "self", "corpus", "both", "random"};

struct run {
    struct eval_result *result;
    struct engine *engine;
    const struct eval_options *options;
    const struct progress *progress;
    struct retriever *retriever[EVAL_MODES];
    struct tokenizer_scratch *scratch, *decoding; /* ids being scored must survive decoding */
    int32_t *targets;
    float *nll;
    int32_t *ids;
    size_t ids_capacity; /* of token inputs, which come unsigned */
};

/* ---- one window ------------------------------------------------------------------------------------------ */

static enum status score_window(struct run *r, enum eval_mode mode, const int32_t *ids, int64_t n, int64_t first,
                                double *sum) {
    struct decoder_state *state = NULL;
    const int64_t pass = engine_pass(r->engine);
    double start = progress_now();
    for (int64_t i = 0; i + 1 < n; i++)
        r->targets[i] = i + 1 < first ? -1 : ids[i + 1];
    if (r->retriever[mode]) chunk_retriever_reset(r->retriever[mode], -1);
    TRY(decoder_state_create(&state, r->engine->decoder, r->retriever[mode]));
    enum status status = STATUS_OK;
    for (int64_t at = 0; at < n - 1 && status == STATUS_OK; at += pass) {
        const struct decoder_output out = {.targets = r->targets + at, .nll = r->nll + at};
        status = decoder_forward(state, &out, ids + at, n - 1 - at < pass ? n - 1 - at : pass);
    }
    decoder_state_free(state);
    TRY(status);
    for (int64_t i = first - 1; i < n - 1; i++)
        *sum += (double)r->nll[i];
    r->result->seconds[mode] += progress_now() - start;
    return STATUS_OK;
}

/* Bytes of text that the tokens from `first` on decode to. Characters cut at an edge count on one side. */
static enum status window_bytes(struct run *r, const int32_t *ids, int64_t n, int64_t first, int64_t *bytes) {
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

/* ---- one document ---------------------------------------------------------------------------------------- */

static enum status score_document(struct run *r, struct eval_document *d, const int32_t *ids, int64_t n,
                                  int64_t tokens_left) {
    const struct eval_options *o = r->options;
    const int64_t first = o->skip > 1 ? o->skip : 1; /* the first token of a window has no context at all */
    for (int64_t at = 0; at < n; at += o->context) {
        int64_t length = n - at < o->context ? n - at : o->context;
        if (tokens_left > 0 && length - first > tokens_left - d->tokens) length = first + tokens_left - d->tokens;
        if (length <= first) continue;
        for (int mode = 0; mode < EVAL_MODES; mode++)
            if (r->result->mode[mode]) TRY(score_window(r, mode, ids + at, length, first, &d->nll[mode]));
        TRY(window_bytes(r, ids + at, length, first, &d->bytes));
        d->tokens += length - first;
    }
    return STATUS_OK;
}

static enum status document_ids(struct run *r, const struct document *document, const int32_t **ids, size_t *n) {
    if (document->text)
        return tokenizer_encode(r->engine->model.tokenizer, r->scratch, document->text, document->bytes,
                                TOKENIZER_LITERAL, ids, n);
    TRY(memory_grow((void **)&r->ids, &r->ids_capacity, document->n_ids + 1, sizeof *r->ids));
    for (size_t i = 0; i < document->n_ids; i++) {
        if (document->ids[i] >= (uint32_t)r->engine->model.config.vocab_size)
            return fail(STATUS_MISMATCH,
                        "%s: byte %llu: holds id %u, but the model's vocabulary is %d: tokens of another "
                        "tokenizer",
                        document->source, (unsigned long long)document->offset, document->ids[i],
                        r->engine->model.config.vocab_size);
        r->ids[i] = (int32_t)document->ids[i];
    }
    *ids = r->ids;
    *n = document->n_ids;
    return STATUS_OK;
}

static enum status next_document(struct run *r, int file, const struct document *document) {
    struct eval_result *result = r->result;
    struct eval_file *f = &result->files[file];
    const struct eval_options *o = r->options;
    const int32_t *ids = NULL;
    size_t n = 0;
    struct eval_document d = {.file = file};
    TRY(document_ids(r, document, &ids, &n));
    TRY(score_document(r, &d, ids, (int64_t)n, o->max_tokens ? o->max_tokens - f->tokens : 0));
    if (d.tokens == 0) {
        f->short_documents++;
        return STATUS_OK;
    }
    TRY(memory_grow((void **)&result->documents, &result->capacity, result->n_documents + 1, sizeof d));
    result->documents[result->n_documents++] = d;
    f->documents++;
    f->tokens += d.tokens;
    return STATUS_OK;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static enum status run_file(struct run *r, int file, enum reader_format format) {
    const struct eval_options *o = r->options;
    struct eval_file *f = &r->result->files[file];
    struct reader *reader = NULL;
    const struct reader_config config = {
        .inputs = &f->path, .n_inputs = 1, .format = format, .text_field = o->text_field, .eod_id = o->eod_id};
    TRY(reader_open(&reader, &config));
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (!o->max_documents || f->documents < o->max_documents) &&
           (!o->max_tokens || f->tokens < o->max_tokens)) {
        struct document document;
        int more = 0;
        if (progress_stop_requested(r->progress)) {
            status = fail(STATUS_INTERRUPTED, "stopped by a signal: nothing is reported");
            break;
        }
        status = reader_next(reader, &document, &more);
        if (status != STATUS_OK || !more) break;
        status = next_document(r, file, &document);
        progress_step(r->progress, f->path, "tokens", f->tokens, o->max_tokens ? o->max_tokens : -1);
    }
    reader_close(reader);
    return status;
}

static enum status prepare(struct run *r) {
    const struct eval_options *o = r->options;
    for (int mode = 0; mode < EVAL_MODES; mode++) {
        const struct engine_retrieval how = {.self = mode == EVAL_SELF || mode == EVAL_BOTH,
                                             .corpus = mode == EVAL_CORPUS || mode == EVAL_BOTH || mode == EVAL_RANDOM,
                                             .random = mode == EVAL_RANDOM,
                                             .exact = o->exact && mode != EVAL_RANDOM,
                                             .nprobe = (int)o->nprobe,
                                             .seed = (uint64_t)o->seed};
        if (r->result->mode[mode]) TRY(engine_retriever(&r->retriever[mode], r->engine, &how));
    }
    TRY(tokenizer_scratch_create(&r->scratch, r->engine->model.tokenizer));
    TRY(tokenizer_scratch_create(&r->decoding, r->engine->model.tokenizer));
    TRY(memory_allocate((void **)&r->targets, (size_t)o->context, sizeof *r->targets));
    return memory_allocate((void **)&r->nll, (size_t)o->context, sizeof *r->nll);
}

enum status eval_run(struct eval_result *result, struct engine *e, const struct eval_options *o,
                     const struct progress *progress) {
    struct run r = {.result = result, .engine = e, .options = o, .progress = progress};
    enum reader_format format = READER_AUTO;
    enum status status = reader_format_parse(&format, o->format);
    if (status == STATUS_OK) status = prepare(&r);
    for (int i = 0; i < o->data.count && status == STATUS_OK; i++) {
        result->files[result->n_files++] = (struct eval_file){.path = o->data.items[i]};
        status = run_file(&r, i, format);
    }
    for (int mode = 0; mode < EVAL_MODES; mode++)
        engine_retriever_free(r.retriever[mode]);
    tokenizer_scratch_free(r.scratch);
    tokenizer_scratch_free(r.decoding);
    memory_free(r.targets);
    memory_free(r.nll);
    memory_free(r.ids);
    if (status == STATUS_OK && result->n_documents == 0)
        return fail(STATUS_INVALID,
                    "no document has more than %lld tokens, so nothing could be scored: give longer texts, or a "
                    "smaller --skip",
                    (long long)(o->skip > 1 ? o->skip : 1));
    return status;
}

void eval_result_free(struct eval_result *r) {
    memory_free(r->documents);
}
