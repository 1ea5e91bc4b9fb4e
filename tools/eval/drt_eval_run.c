/* drt_eval_run.c -- reads documents, converts them to ids, and finds them in the store; drt_eval_window.c scores
 * them. */
#include "tools/eval/drt_eval_run.h"
#include "base/memory.h"
#include "data/readers/ids_check.h"
#include "data/readers/reader.h"
#include "indexer/build/indexer.h"
#include "session/corpus_search.h"
#include "tools/eval/fit/drt_eval_processes.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/report.h"
#include <string.h>

static enum status document_ids(struct eval_run *r, const struct document *document, const int32_t **ids, size_t *n) {
    if (document->text)
        return tokenizer_encode(r->engine->model.tokenizer, r->scratch, document->text, document->bytes,
                                TOKENIZER_LITERAL, ids, n);
    TRY(memory_grow(&r->ids, &r->ids_capacity, document->n_ids + 1));
    const struct ids_rules rules = indexer_ids_rules(&r->engine->model.config, r->engine->model.tokenizer);
    TRY(ids_check_document(&rules, document->source, document->offset, document->ids, document->n_ids));
    memcpy(r->ids, document->ids, document->n_ids * sizeof *r->ids);
    *ids = r->ids;
    *n = document->n_ids;
    return STATUS_OK;
}

/* Finds the document in the store, because it would find itself. */
static enum status look_up_stored(struct eval_run *r, struct eval_file *f, const struct document *document,
                                  const int32_t *ids, size_t n) {
    int64_t stored = r->stored = -1;
    if (!eval_uses_store(r->result) && eval_gca_mode(r->options) <= EVAL_OWN_PAST) return STATUS_OK;
    TRY(eval_find_stored(&stored, r, document, ids, n));
    f->stored_documents += stored >= 0;
    if (r->options->rule != EXCLUDE_NOTHING) r->stored = stored;
    return STATUS_OK;
}

static enum status next_document(struct eval_run *r, int file, const struct document *document) {
    struct eval_result *result = r->result;
    struct eval_file *f = &result->files[file];
    const struct eval_options *o = r->options;
    const int32_t *ids;
    size_t n;
    struct eval_document d = {.file = file, .number = f->read_documents++};
    if (d.number % 2 != (strcmp(o->documents, "odd") == 0) && strcmp(o->documents, "all") != 0) return STATUS_OK;
    TRY(document_ids(r, document, &ids, &n));
    TRY(look_up_stored(r, f, document, ids, n));
    int64_t left = o->max_tokens ? o->max_tokens - f->tokens : 0;
    if (o->document_tokens && (!left || o->document_tokens < left)) left = o->document_tokens;
    const int64_t tokens = o->processes ? eval_scored_tokens(o, (int64_t)n, left) : 0;
    if (tokens > 0 && !eval_processes_take(o->processes, tokens)) { /* another process scores it */
        f->documents++;
        f->tokens += tokens;
        if (result->overlap && r->stored >= 0) TRY(overlap_exclude(result->overlap, r->stored)); /* for all texts */
        return eval_processes_check(o->processes);
    }
    TRY(eval_score_document(r, &d, ids, (int64_t)n, left));
    if (d.tokens == 0 && progress_stop_requested(r->progress)) return STATUS_OK;
    if (d.tokens == 0) {
        f->short_documents++;
        return STATUS_OK;
    }
    TRY(memory_grow(&result->documents, &result->capacity, result->n_documents + 1));
    TRY(eval_add_overlap(result, ids, r->read, r->stored));
    result->documents[result->n_documents++] = d;
    f->documents++;
    f->tokens += d.tokens;
    f->bytes += d.bytes;
    return STATUS_OK;
}

/* ---- all files ------------------------------------------------------------------------------------------- */

static enum status run_file(struct eval_run *r, int file, enum reader_format format) {
    const struct eval_options *o = r->options;
    struct eval_file *f = &r->result->files[file];
    struct reader *reader = NULL;
    const struct reader_config config = {.inputs = &f->path,
                                         .n_inputs = 1,
                                         .format = format,
                                         .text_field = o->text_field,
                                         .skip_bad_lines = o->skip_bad_lines,
                                         .no_follow = o->no_follow,
                                         .progress = r->progress,
                                         .eod_id = o->eod_id == -1 ? r->engine->model.config.eos_id : o->eod_id};
    ids_check(r->progress, &config, r->engine->model.tokenizer);
    TRY(reader_open(&reader, &config));
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !r->result->partial && (!o->max_documents || f->documents < o->max_documents) &&
           (!o->max_tokens || f->tokens < o->max_tokens)) {
        struct document document;
        int more = 0;
        status = reader_next(reader, &document, &more);
        if (status != STATUS_OK || !more) break;
        status = next_document(r, file, &document);
        r->done = 0;
        r->result->partial = progress_stop_requested(r->progress); /* also in a window of the last document */
        eval_step(r, NULL);
    }
    f->skipped_lines = (int64_t)reader_position(reader).skipped;
    reader_note_left_out(reader, r->progress);
    reader_close(reader);
    return status;
}

/* If a window does not begin with a chunk of the document, each chunk of the window overlaps two of the document's. */
static int64_t exclude_window(const struct eval_run *r) {
    const struct eval_options *o = r->options;
    if (o->rule < 0) return -1;
    return o->rule + (o->context % r->engine->model.config.chunk != 0);
}

static bool reports_overlap(const struct eval_run *r) {
    return !r->options->no_overlap && !r->samples;
}

static enum status prepare_retriever(struct retriever **out, const struct eval_run *r, int mode) {
    const struct eval_options *o = r->options;
    const struct engine_retrieval how = {.searcher = corpus_search_kind(o->searcher),
                                         .own_past = mode == EVAL_OWN_PAST || mode == EVAL_BOTH,
                                         .corpus = mode == EVAL_CORPUS || mode == EVAL_BOTH || mode == EVAL_RANDOM,
                                         .random = mode == EVAL_RANDOM,
                                         .exact = o->exact && mode != EVAL_RANDOM,
                                         .exact_fallback = o->exact_fallback,
                                         .nprobe = (int)o->nprobe,
                                         .continuation = (int)o->continuation,
                                         .overlap = (int)o->overlap,
                                         .query_ids = (int)o->query_ids,
                                         .exclude_window = exclude_window(r),
                                         .seed = (uint64_t)o->seed};
    return engine_retriever(out, r->engine, &how);
}

static enum status eval_run_prepare(struct eval_run *r) {
    const struct eval_options *o = r->options;
    for (int mode = 0; mode < EVAL_GCA_MODES; mode++)
        if (r->result->mode[mode]) TRY(prepare_retriever(&r->retriever[mode], r, mode));
    if (eval_has_memory(r->result) && eval_gca_mode(o) != EVAL_NONE)
        TRY(prepare_retriever(&r->memory_gca, r, eval_gca_mode(o)));
    TRY(eval_memory_prepare(r));
    /* otherwise queries or searches are only collected */
    const bool scores = !r->engines->searches && (!r->engines->knn || memory_knn_searched(r->engines->knn));
    r->runs = scores && eval_has_memory(r->result) && eval_uses_store(r->result);
    if (r->runs || (scores && eval_uses_store(r->result) && reports_overlap(r)))
        TRY(overlap_create(&r->result->overlap));
    TRY(tokenizer_scratch_create(&r->scratch, r->engine->model.tokenizer));
    TRY(tokenizer_scratch_create(&r->decoding, r->engine->model.tokenizer));
    TRY(memory_allocate(&r->targets, (size_t)o->context));
    return memory_allocate(&r->nll, (size_t)o->context);
}

static enum status find_overlap(struct eval_run *r) {
    struct eval_result *result = r->result;
    TRY(eval_find_overlap(result, r->engine->view, r->progress));
    if (r->runs && result->overlap) TRY(eval_find_runs(result, r->options->skip > 1 ? r->options->skip : 1));
    if (reports_overlap(r)) return STATUS_OK;
    overlap_free(result->overlap);
    result->overlap = NULL;
    return STATUS_OK;
}

enum status eval_run(struct eval_result *result, const struct eval_engines *engines, const struct eval_options *o,
                     struct memory_samples *samples, const struct progress *progress) {
    struct eval_run *r; /* too large for a small stack */
    TRY(memory_allocate_zero(&r, 1));
    r->result = result, r->engine = engines->model, r->engines = engines;
    r->options = o, r->samples = samples, r->progress = progress;
    r->in_window = eval_window_progress(r);
    enum reader_format format = READER_AUTO;
    enum status status = reader_format_parse(&format, o->format);
    if (status == STATUS_OK) status = eval_run_prepare(r);
    for (int i = 0; i < o->data.count && status == STATUS_OK && !result->partial; i++) {
        result->files[result->n_files++] = (struct eval_file){.path = o->data.items[i]};
        status = run_file(r, i, format);
    }
    if (status == STATUS_OK) status = find_overlap(r);
    if (eval_processes_number(o->processes) == 0) report_missing("drt-eval", engines->model, o->exact_fallback);
    for (int mode = 0; mode < EVAL_MODES; mode++)
        engine_retriever_free(r->retriever[mode]);
    memory_window_free(r->memory);
    engine_retriever_free(r->memory_gca);
    tokenizer_scratch_free(r->scratch);
    tokenizer_scratch_free(r->decoding);
    memory_free(r->targets);
    memory_free(r->nll);
    memory_free(r->ids);
    memory_free(r);
    if (status != STATUS_OK || result->n_documents > 0) return status;
    if (result->partial) return fail(STATUS_INTERRUPTED, "stopped by a signal before anything was scored");
    return o->processes ? STATUS_OK : eval_nothing_scored(o);
}

void eval_result_free(struct eval_result *r) {
    eval_tokens_free(&r->tokens);
    overlap_free(r->overlap);
    for (int i = 0; i < r->n_files; i++)
        memory_free(r->names[i]);
    memory_free(r->documents);
}
