/* drt_tokenizer_samples.c -- drt-tokenizer samples: writes the prompts and answers of jsonl files to a token file, and
 * the position at which each answer begins to a second file. The prompt has the same ids as in drt-eval tasks. The
 * answer is encoded separately, because a model continues a prompt that is encoded already. */
#include "base/file.h"
#include "base/little_endian.h"
#include "base/memory.h"
#include "tools/shared/args.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include "tools/tasks/task_file.h"
#include "tools/tokenizer/drt_tokenizer.h"
#include "train/step/answers.h"
#include <string.h>

struct samples_options {
    const char *tokenizer, *out;
    int64_t eod_id, max_tokens;
};

struct samples_work {
    const struct samples_options *options;
    struct token_output output;
    struct tokenizer_scratch *scratch;
    struct file_writer *file;
    const char *path; /* of the file of samples */
    int32_t *suffix;  /* of TASK_SUMMARY */
    int64_t n_suffix;
    int32_t *ids; /* of the prompt, then of the answer */
    char *answer;
    uint32_t *prompts;
    size_t ids_capacity, answer_capacity, prompts_capacity;
    int64_t samples, tokens, answer_tokens, longest, cut;
};

/* Appends the ids of a text to w->ids [*n]. A sample's text is data: special tokens in it are ordinary text. */
static enum status samples_encode(struct samples_work *w, int64_t *n, const char *text, size_t bytes) {
    const int32_t *ids = NULL;
    size_t count = 0;
    if (bytes) TRY(tokenizer_encode(w->output.tokenizer, w->scratch, text, bytes, TOKENIZER_LITERAL, &ids, &count));
    TRY(memory_grow(&w->ids, &w->ids_capacity, (size_t)*n + count + 1));
    if (count) memcpy(w->ids + *n, ids, count * sizeof *ids);
    *n += (int64_t)count;
    return STATUS_OK;
}

/* Appends " a summary", or " 1, 2" of RULER's outputs. The space is part of the answer, because the prompt does
 * not end with one. */
static enum status samples_answer(struct samples_work *w, size_t *bytes, const struct task_sample *s) {
    *bytes = 0;
    for (int i = 0; i < s->n_outputs; i++) {
        const char *text = s->outputs[i] + strspn(s->outputs[i], " \t\r\n");
        size_t n = strlen(text);
        TRY(memory_grow(&w->answer, &w->answer_capacity, *bytes + n + 3));
        *bytes += (size_t)snprintf(w->answer + *bytes, n + 3, "%s%s", i ? ", " : " ", text);
    }
    return STATUS_OK;
}

/* Shortens a prompt of n ids if it is too long together with its answer of n_answer ids. A document is shortened at its
 * end; other prompts cannot be shortened. */
static enum status samples_cut(struct samples_work *w, int64_t *n, const struct task_sample *s, int64_t n_answer) {
    const int64_t most = w->options->max_tokens - n_answer;
    if (w->options->max_tokens == 0 || *n <= most) return STATUS_OK;
    if (!s->summary || most <= w->n_suffix)
        return fail(STATUS_INVALID,
                    "%s: line %lld has %lld tokens, with its answer of %lld: raise --max-tokens, or leave the line out",
                    w->path, (long long)s->line, (long long)(*n + n_answer), (long long)n_answer);
    memmove(w->ids + most - w->n_suffix, w->suffix, (size_t)w->n_suffix * sizeof *w->ids);
    memmove(w->ids + most, w->ids + *n, (size_t)n_answer * sizeof *w->ids);
    *n = most;
    w->cut++;
    return STATUS_OK;
}

static enum status samples_write(struct samples_work *w, int64_t n) {
    uint8_t bytes[1024];
    for (int64_t at = 0; at < n;) {
        size_t used = 0;
        for (; at < n && used < sizeof bytes; at++, used += (size_t)w->output.width)
            little_endian_put(bytes + used, (uint64_t)w->ids[at], w->output.width);
        TRY(file_write(w->file, bytes, used));
    }
    return STATUS_OK;
}

static enum status samples_one(struct samples_work *w, const struct task_sample *s) {
    int64_t prompt = 0, all;
    size_t bytes;
    TRY(samples_answer(w, &bytes, s));
    TRY(samples_encode(w, &prompt, s->prompt, s->prompt_bytes));
    if (prompt == 0) return fail(STATUS_INVALID, "%s: line %lld has an empty prompt", w->path, (long long)s->line);
    all = prompt;
    TRY(samples_encode(w, &all, w->answer, bytes));
    w->ids[all++] = w->output.end;
    const int64_t answer = all - prompt;
    TRY(samples_cut(w, &prompt, s, answer));
    TRY(samples_write(w, prompt + answer));
    TRY(memory_grow(&w->prompts, &w->prompts_capacity, (size_t)w->samples + 1));
    w->prompts[w->samples++] = (uint32_t)prompt;
    w->tokens += prompt + answer;
    w->answer_tokens += answer;
    if (prompt + answer > w->longest) w->longest = prompt + answer;
    return STATUS_OK;
}

static enum status samples_file(struct samples_work *w, const char *path, const struct progress *progress) {
    struct task_file *file;
    struct task_sample sample;
    bool more = true;
    w->path = path;
    TRY(task_file_open(&file, path));
    enum status s = STATUS_OK;
    while (s == STATUS_OK && more) {
        s = progress_stop_requested(progress) ? fail(STATUS_INTERRUPTED, "stopped: nothing was written")
                                              : task_file_next(file, &sample, &more);
        if (s == STATUS_OK && more) s = samples_one(w, &sample);
        progress_step(progress, path, "samples", w->samples, -1);
    }
    task_file_close(file);
    return s;
}

static enum status samples_open(struct samples_work *w) {
    const struct samples_options *o = w->options;
    TRY(drt_tokenizer_output(&w->output, o->tokenizer, o->out, o->eod_id));
    TRY(tokenizer_scratch_create(&w->scratch, w->output.tokenizer));
    TRY(samples_encode(w, &w->n_suffix, TASK_SUMMARY, strlen(TASK_SUMMARY)));
    TRY(memory_allocate(&w->suffix, (size_t)w->n_suffix));
    memcpy(w->suffix, w->ids, (size_t)w->n_suffix * sizeof *w->suffix);
    return file_create(&w->file, o->out);
}

static enum status samples_run(const void *options, const char *const *inputs, int n, const struct progress *progress) {
    const struct samples_options *o = options;
    struct samples_work w = {.options = o};
    enum status s = file_apart(o->out, inputs, n);
    if (s == STATUS_OK) s = samples_open(&w);
    for (int i = 0; i < n && s == STATUS_OK; i++)
        s = samples_file(&w, inputs[i], progress);
    if (s == STATUS_OK && w.samples == 0) s = fail(STATUS_INVALID, "%s: has no samples", inputs[0]);
    /* answers are written first, so that a file of tokens always has its answers */
    if (s == STATUS_OK) s = answers_write(o->out, w.prompts, w.samples, w.tokens);
    if (s == STATUS_OK) s = file_publish(w.file), w.file = NULL;
    if (s == STATUS_OK)
        streams_printf(stdout,
                       "%s: %lld samples, %lld tokens (%d bytes each, end of document %d), %lld of them answers; the "
                       "longest sample has %lld tokens, %lld were cut\n",
                       o->out, (long long)w.samples, (long long)w.tokens, w.output.width, w.output.end,
                       (long long)w.answer_tokens, (long long)w.longest, (long long)w.cut);
    file_discard(w.file);
    memory_free(w.suffix);
    memory_free(w.ids);
    memory_free(w.answer);
    memory_free(w.prompts);
    tokenizer_scratch_free(w.scratch);
    tokenizer_free(w.output.tokenizer);
    return s;
}

int drt_tokenizer_samples(int argc, char **argv, const char **operands) {
    struct samples_options o = {.eod_id = -1};
    const struct arg_option options[] = {
        OPTION_TOKENIZER(o.tokenizer),
        OPTION_TOKEN_FILE(o.out),
        {"eod-id", ARG_INT, &o.eod_id, "N", "id after each answer; -1: the tokenizer's <|endoftext|>", -1, INT32_MAX},
        {"max-tokens", ARG_INT, &o.max_tokens, "N",
         "tokens of a sample at most: a document that is too long loses its end; 0: no limit", 0, INT32_MAX},
    };
    const struct arg_program program = {
        .name = "drt-tokenizer samples",
        .synopsis = "FILE... --tokenizer FILE --out FILE.u16 [options]",
        .about =
            "Writes the samples of jsonl files (also .gz .zst .xz, and - for standard input) as ids: prompt, answer "
            "and\n"
            "end of document of each, and where the answers begin as FILE.u16.answers. The layouts and prompts are\n"
            "those of drt-eval tasks. drt-train with the key samples predicts the answers only.",
        .examples =
            "  drt-tokenizer samples xsum-train.jsonl --tokenizer tokenizer.json --out xsum.u16 --max-tokens 1008\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = -1};
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.tokenizer || !o.out)
        return drt_tokenizer_usage("samples", o.tokenizer ? "--out is missing" : "--tokenizer is missing");
    return drt_tokenizer_run(samples_run, &o, operands, n);
}
