/* drt_eval_niah_run.c -- reads the ids of the haystack, then for each sample writes it, or reads it with the model and
 * checks the answer. */
#include "base/clock.h"
#include "base/file.h"
#include "base/formats/json.h"
#include "base/memory.h"
#include "base/minmax.h"
#include "data/readers/reader.h"
#include "tools/eval/tasks/drt_eval_niah.h"
#include "tools/tasks/task_file.h"
#include "train/step/answers.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { HAYSTACK_MORE = 1 << 20 }; /* ids in addition to the longest text, so that texts differ */

/* A neighbour: its chunk, and as in struct neighbours the ids of the chunk that are before it. */
struct niah_read {
    int64_t chunk;
    int offset;
    struct needle_span at; /* its ids in the sample's document or prompt; empty: it is of another one */
};

struct niah_state {
    const struct niah_options *options;
    struct task_run run;
    struct model_folder folder; /* used if no model is run */
    const struct tokenizer *tokenizer;
    int chunk;
    int32_t eos;
    int32_t *haystack;
    int64_t n_haystack;
    size_t capacity;
    FILE *file, *answers; /* of --write or --write-documents; of --answers. NULL: not given */
    const char *path;
    uint32_t *prompts; /* for each sample that was written as ids: where its answer begins */
    size_t prompts_capacity;
    int64_t written, tokens;
    enum needle_task task; /* task of the current sample, and its number */
    int64_t number;
    struct niah_read *neighbour; /* what the newest query of each group retrieved, of the own past or of the store */
    int n_neighbours;
    int32_t *chunk_ids; /* of one chunk of the store */
    struct tokenizer_scratch *scratch;
    const struct progress *progress;
};

/* ---- the haystack ---------------------------------------------------------------------------------------- */

static enum status niah_add_document(struct niah_state *s, const struct document *d, int64_t most) {
    const int32_t *ids = NULL;
    size_t n = d->n_ids;
    if (!d->ids) TRY(tokenizer_encode(s->tokenizer, s->scratch, d->text, d->bytes, TOKENIZER_LITERAL, &ids, &n));
    n = (size_t)min_i64((int64_t)n, most - s->n_haystack);
    TRY(memory_grow(&s->haystack, &s->capacity, (size_t)s->n_haystack + n + 1));
    for (size_t i = 0; i < n; i++) {
        const int64_t id = d->ids ? (int64_t)d->ids[i] : ids[i];
        if (id >= tokenizer_vocab_size(s->tokenizer))
            return fail(STATUS_INVALID, "%s: id %lld is not below the tokenizer's %d", d->source, (long long)id,
                        tokenizer_vocab_size(s->tokenizer));
        s->haystack[s->n_haystack++] = (int32_t)id;
    }
    return STATUS_OK;
}

static enum status niah_reader_config(struct reader_config *out, const struct niah_state *s, const char *const *inputs,
                                      int n) {
    const struct niah_options *o = s->options;
    *out = (struct reader_config){
        .inputs = inputs, .n_inputs = n, .text_field = o->text_field, .eod_id = s->eos, .progress = s->progress};
    return reader_format_parse(&out->format, o->format);
}

/* Reads one input until the haystack has `most` ids. */
static enum status niah_read(struct niah_state *s, const char *const *input, int64_t most) {
    struct reader_config config;
    struct reader *reader;
    struct document d;
    int more = 1;
    TRY(niah_reader_config(&config, s, input, 1));
    TRY(reader_open(&reader, &config));
    enum status status = STATUS_OK;
    while (status == STATUS_OK && s->n_haystack < most) {
        status = progress_stop_requested(s->progress) ? fail(STATUS_INTERRUPTED, "stopped while reading the haystack")
                                                      : reader_next(reader, &d, &more);
        if (status != STATUS_OK || !more) break;
        status = niah_add_document(s, &d, most);
        progress_step(s->progress, "read the haystack", "tokens", s->n_haystack, most);
    }
    reader_close(reader);
    return status;
}

/* Each input gives an equal share, or all it has: a text's needles then lie in every kind of text. */
static enum status niah_haystack(struct niah_state *s) {
    const struct niah_options *o = s->options;
    const int64_t most = o->context[o->n_contexts - 1] + HAYSTACK_MORE;
    for (int i = 0; i < o->data.count; i++)
        TRY(niah_read(s, &o->data.items[i], s->n_haystack + (most - s->n_haystack) / (o->data.count - i)));
    return STATUS_OK;
}

/* ---- samples that are written ---------------------------------------------------------------------------- */

static enum status niah_write_ids(struct niah_state *s, const int32_t *ids, int64_t n) {
    if (fwrite(ids, sizeof *ids, (size_t)n, s->file) != (size_t)n) return fail_errno("%s", s->path);
    return STATUS_OK;
}

/* Writes a text, its answer and an end of document (ids), or a line in RULER's layout. */
static enum status niah_write(struct niah_state *s, const struct needle_sample *sample) {
    struct json_writer w;
    const char *text;
    size_t bytes;
    if (s->options->write_documents) {
        TRY(niah_write_ids(s, sample->document, sample->n_document));
        return niah_write_ids(s, &s->eos, 1);
    }
    if (strcmp(s->options->wording, "ruler") != 0 || strstr(s->options->write, ".u32")) {
        TRY(memory_grow(&s->prompts, &s->prompts_capacity, (size_t)s->written + 1));
        s->prompts[s->written++] = (uint32_t)sample->n_prompt;
        s->tokens += sample->n_prompt + sample->n_answer + 1;
        TRY(niah_write_ids(s, sample->prompt, sample->n_prompt));
        TRY(niah_write_ids(s, sample->answer, sample->n_answer));
        return niah_write_ids(s, &s->eos, 1);
    }
    TRY(tokenizer_decode(s->tokenizer, s->scratch, sample->prompt, (size_t)sample->n_prompt, false, &text, &bytes));
    json_write_open(&w, s->file, 0);
    json_write_object(&w);
    json_write_key(&w, "input");
    json_write_bytes(&w, text, bytes);
    json_write_key(&w, "outputs");
    json_write_array(&w);
    for (int i = 0; i < sample->n_outputs; i++)
        json_write_string(&w, sample->outputs[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    fputc('\n', s->file);
    return ferror(s->file) ? fail_errno("%s", s->path) : STATUS_OK;
}

/* ---- samples that a model answers ------------------------------------------------------------------------ */

static void niah_watch(void *context, int group, int64_t first_chunk, const struct neighbours *found) {
    struct niah_state *s = context;
    const int64_t *newest = found->id + (found->n - 1) * found->k;
    (void)first_chunk;
    if (group == 0) s->n_neighbours = 0;
    for (int i = 0; i < found->k; i++)
        if (newest[i] >= 0)
            s->neighbour[s->n_neighbours++] = (struct niah_read){
                .chunk = newest[i], .offset = found->offset ? found->offset[(found->n - 1) * found->k + i] : 0};
}

/* Finds the part of the sample's text that a neighbour is. In a store it is one with the ids of the document. */
static enum status niah_locate(struct niah_state *s, struct niah_read *r, const struct needle_sample *sample) {
    struct store_chunk found;
    if (!sample->document) {
        r->at = (struct needle_span){r->chunk * s->chunk, (r->chunk + 1) * s->chunk};
        return STATUS_OK;
    }
    TRY(store_view_ids(s->run.engine.view, &found, s->chunk_ids, r->chunk, r->offset));
    const int64_t at = found.token_offset;
    if (at + found.n_tokens <= sample->n_document &&
        memcmp(s->chunk_ids, sample->document + at, (size_t)found.n_tokens * sizeof *s->chunk_ids) == 0)
        r->at = (struct needle_span){at, at + found.n_tokens};
    return STATUS_OK;
}

/* *all: whether each id of each value is in a neighbour. */
static enum status niah_retrieved(struct niah_state *s, bool *all, const struct needle_sample *sample) {
    *all = sample->n_values > 0;
    for (int i = 0; i < s->n_neighbours; i++)
        TRY(niah_locate(s, &s->neighbour[i], sample));
    for (int v = 0; v < sample->n_values; v++)
        for (int64_t at = sample->value[v].from; at < sample->value[v].to; at++) {
            int i = 0;
            while (i < s->n_neighbours && (at < s->neighbour[i].at.from || at >= s->neighbour[i].at.to))
                i++;
            *all = *all && i < s->n_neighbours;
        }
    return STATUS_OK;
}

/* Whether ids [n] contain the run of m ids. */
static bool niah_contains(const int32_t *ids, int n, const int32_t *run, int64_t m) {
    for (int i = 0; i + m <= n; i++)
        if (memcmp(ids + i, run, (size_t)m * sizeof *run) == 0) return true;
    return false;
}

/* Share of the values that a greedy answer contains, in any order, as RULER scores an answer (docs/tasks.md). The text
 * is read again, because the known answer has been fed. */
static enum status niah_values(struct niah_state *s, double *share, const struct needle_sample *sample) {
    const int32_t *text = sample->document ? sample->document : sample->prompt;
    struct generation_token token = {0};
    int32_t ids[NEEDLE_ANSWER_MAX];
    const char *answer;
    size_t bytes;
    int n = 0, found = 0;
    TRY(generation_reset(s->run.generation, 0));
    TRY(generation_feed(s->run.generation, sample->prompt, sample->n_prompt, NULL));
    while (n < sample->n_answer) {
        TRY(generation_next(s->run.generation, &token));
        if (token.end != GENERATION_RUNNING) break;
        ids[n++] = token.id;
    }
    if (sample->n_outputs > 0) { /* RULER's wording: strings */
        const struct task_sample strings = {.outputs = sample->outputs, .n_outputs = sample->n_outputs};
        TRY(tokenizer_decode(s->tokenizer, s->scratch, ids, (size_t)n, false, &answer, &bytes));
        *share = task_contained(&strings, answer, bytes);
        return STATUS_OK;
    }
    for (int v = 0; v < sample->n_values; v++)
        found += niah_contains(ids, n, text + sample->value[v].from, sample->value[v].to - sample->value[v].from);
    *share = (double)found / sample->n_values;
    return STATUS_OK;
}

static void niah_write_number(struct json_writer *w, const char *key, int64_t value) {
    json_write_key(w, key);
    json_write_int(w, value);
}

struct niah_outcome {
    bool retrieved, found;
    double values; /* share of the values that a greedy answer contains */
};

/* Writes a line of --answers. best [n_answer]: the most probable ids. */
static enum status niah_write_answer(struct niah_state *s, const struct needle_sample *sample,
                                     const struct generation_alternative *best, const struct niah_outcome *o) {
    struct json_writer w;
    if (!s->answers) return STATUS_OK;
    json_write_open(&w, s->answers, 0);
    json_write_object(&w);
    json_write_key(&w, "task");
    json_write_string(&w, needle_task_names[s->task]);
    niah_write_number(&w, "sample", s->number);
    niah_write_number(&w, "tokens", sample->n_prompt);
    json_write_key(&w, "values");
    json_write_array(&w);
    for (int v = 0; v < sample->n_values; v++) {
        json_write_array(&w);
        json_write_int(&w, sample->value[v].from);
        json_write_int(&w, sample->value[v].to);
        json_write_array_end(&w);
    }
    json_write_array_end(&w);
    json_write_key(&w, "read");
    json_write_array(&w);
    for (int i = 0; i < s->n_neighbours; i++)
        json_write_int(&w, s->neighbour[i].chunk);
    json_write_array_end(&w);
    json_write_key(&w, "offsets");
    json_write_array(&w);
    for (int i = 0; i < s->n_neighbours; i++)
        json_write_int(&w, s->neighbour[i].offset);
    json_write_array_end(&w);
    niah_write_number(&w, "retrieved", o->retrieved);
    niah_write_number(&w, "found", o->found);
    json_write_key(&w, "values_found");
    json_write_double(&w, o->values);
    for (int likeliest = 0; likeliest < 2; likeliest++) {
        json_write_key(&w, likeliest ? "likeliest" : "answer");
        json_write_array(&w);
        for (int i = 0; i < sample->n_answer; i++)
            json_write_int(&w, likeliest ? best[i].id : sample->answer[i]);
        json_write_array_end(&w);
    }
    json_write_object_end(&w);
    fputc('\n', s->answers);
    return ferror(s->answers) ? fail_errno("%s", s->options->answers) : STATUS_OK;
}

static enum status niah_answer(struct niah_state *s, struct niah_cell *cell, const struct needle_sample *sample) {
    float logprob[NEEDLE_ANSWER_MAX];
    struct generation_alternative best[NEEDLE_ANSWER_MAX];
    const struct generation_scores scores = {.logprob = logprob, .alternatives = best, .top = 1};
    const struct decoder_watch watch = {.context = s, .retrieval = niah_watch};
    const double start = clock_seconds();
    struct niah_outcome o = {.found = true, .values = 1};
    s->n_neighbours = 0;
    TRY(generation_reset(s->run.generation, 0));
    decoder_state_watch(generation_state(s->run.generation), &watch);
    TRY(generation_feed(s->run.generation, sample->prompt, sample->n_prompt, NULL));
    TRY(niah_retrieved(s, &o.retrieved, sample)); /* before the answer, because the answer may complete another chunk */
    TRY(generation_feed(s->run.generation, sample->answer, sample->n_answer, &scores));
    cell->seconds += clock_seconds() - start;
    cell->tokens += sample->n_prompt + sample->n_answer;
    for (int i = 0; i < sample->n_answer; i++)
        o.found = o.found && best[i].id == sample->answer[i];
    const int depth = (int)fmin(sample->depth * NIAH_DEPTHS, NIAH_DEPTHS - 1);
    cell->trials++;
    cell->whole += o.found;
    cell->retrieved += o.retrieved;
    cell->scored += best[sample->scored].id == sample->answer[sample->scored];
    cell->depth_trials[depth]++;
    cell->depth_whole[depth] += o.found;
    cell->resident = memory_resident_peak();
    const struct retriever *retriever = generation_retriever(s->run.generation);
    if (retriever) cell->past_bytes = chunk_retriever_past_bytes(retriever);
    const int n = s->n_neighbours; /* of the text without the answer */
    decoder_state_watch(generation_state(s->run.generation), NULL);
    if (!o.found) TRY(niah_values(s, &o.values, sample));
    s->n_neighbours = n;
    cell->values += o.values;
    return niah_write_answer(s, sample, best, &o);
}

static enum status niah_trials(struct niah_state *s, struct niah_cell *cell, enum needle_task task, int which) {
    const int64_t context = s->options->context[which], trials = s->options->n_trials[which];
    const struct needle_config config = {.tokenizer = s->tokenizer,
                                         .haystack = s->haystack,
                                         .n_haystack = s->n_haystack,
                                         .task = task,
                                         .wording =
                                             strcmp(s->options->wording, "ruler") == 0 ? NEEDLE_RULER : NEEDLE_PAPERS,
                                         .context = context,
                                         .chunk = s->chunk,
                                         .elsewhere = s->options->run.corpus || s->options->write_documents,
                                         .value_ids = (int)s->options->value_ids,
                                         .keys = (int)s->options->keys,
                                         .seed = (uint64_t)s->options->run.seed};
    struct needle_maker *maker;
    char stage[64];
    TRY(needle_maker_create(&maker, &config));
    snprintf(stage, sizeof stage, "%s at %lld tokens", needle_task_names[task], (long long)context);
    enum status status = STATUS_OK;
    for (int64_t i = 0; status == STATUS_OK && i < trials; i++) {
        struct needle_sample sample;
        s->task = task;
        s->number = i;
        status =
            progress_stop_requested(s->progress) ? fail(STATUS_INTERRUPTED, "stopped") : needle_make(maker, i, &sample);
        if (status == STATUS_OK) status = s->file ? niah_write(s, &sample) : niah_answer(s, cell, &sample);
        progress_step(s->progress, stage, "samples", i + 1, trials);
    }
    needle_maker_free(maker);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static enum status niah_open(struct niah_state *s) {
    const struct niah_options *o = s->options;
    const struct model_folder *folder = &s->folder;
    const char *const written[] = {o->write, o->write_documents, o->answers, o->heat_map, o->plot};
    struct reader_config data;
    TRY(niah_reader_config(&data, s, o->data.items, o->data.count));
    for (size_t i = 0; i < ARRAY_LEN(written); i++)
        TRY(reader_apart(written[i], &data));
    s->path = o->write ? o->write : o->write_documents;
    if (s->path) {
        TRY(model_folder_open(&s->folder, o->run.model));
        s->file = fopen(s->path, "we");
        if (!s->file) return fail_errno("%s", s->path);
    } else {
        TRY(task_run_open(&s->run, &o->run, -1, NULL, s->progress));
        folder = &s->run.engine.model;
        if (o->answers && !(s->answers = fopen(o->answers, "we"))) return fail_errno("%s", o->answers);
        TRY(memory_allocate(&s->neighbour, (size_t)(folder->config.groups * folder->config.topk)));
        TRY(memory_allocate(&s->chunk_ids, (size_t)folder->config.chunk));
    }
    s->tokenizer = folder->tokenizer;
    s->chunk = folder->config.base_lm ? 63 : folder->config.chunk;
    s->eos = folder->config.eos_id;
    if (s->path && s->eos < 0) return fail(STATUS_INVALID, "%s: has no eos_id to end documents with", folder->path);
    return tokenizer_scratch_create(&s->scratch, s->tokenizer);
}

static void niah_close(struct niah_state *s) {
    tokenizer_scratch_free(s->scratch);
    memory_free(s->haystack);
    memory_free(s->prompts);
    memory_free(s->neighbour);
    memory_free(s->chunk_ids);
    task_run_close(&s->run);
    model_folder_close(&s->folder);
}

enum status niah_run(struct niah_result *out, const struct niah_options *o, const struct progress *progress) {
    struct niah_state s = {.options = o, .progress = progress};
    enum status status = niah_open(&s);
    if (status == STATUS_OK) status = niah_haystack(&s);
    for (int t = 0; t < o->n_tasks && status == STATUS_OK; t++)
        for (int c = 0; c < o->n_contexts && status == STATUS_OK; c++)
            status = niah_trials(&s, &out->cell[t][c], o->task[t], c);
    if (s.file && fclose(s.file) != 0 && status == STATUS_OK) status = fail_errno("%s", s.path);
    if (s.answers && fclose(s.answers) != 0 && status == STATUS_OK) status = fail_errno("%s", o->answers);
    if (status == STATUS_OK && s.written > 0) status = answers_write(s.path, s.prompts, s.written, s.tokens);
    niah_close(&s);
    return status;
}
