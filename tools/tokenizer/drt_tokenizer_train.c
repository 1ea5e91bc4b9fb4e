/* drt_tokenizer_train.c -- drt-tokenizer train: a byte-level BPE tokenizer.json from a corpus. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/readers/reader.h"
#include "data/tokenizer/tokenizer_train.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include "tools/tokenizer/drt_tokenizer.h"

enum { DOCUMENTS_A_REPORT = 256 };

struct options {
    struct corpus_options corpus;
    const char *out, *pattern;
    struct arg_strings specials;
    bool no_special;
    int64_t vocab_size, reserve, min_frequency, threads;
};

struct times {
    double start, read, merged;
};

static void print_configuration(const struct options *o, const struct tokenizer_train_config *c, int threads) {
    fprintf(stderr,
            "drt-tokenizer train: vocabulary %lld (reserve %lld), pattern %s, min-frequency %lld, %d threads, "
            "%d special tokens",
            (long long)o->vocab_size, (long long)o->reserve, o->pattern, (long long)o->min_frequency, threads,
            c->n_specials);
    for (int i = 0; i < c->n_specials; i++)
        streams_printf(stderr, " %s", c->specials[i]);
    fputc('\n', stderr);
}

static enum status read_all(struct tokenizer_trainer *t, struct reader *reader, const struct progress *progress) {
    struct document d;
    int64_t documents = 0, done, total;
    for (int more = 1; more;) {
        TRY(reader_next(reader, &d, &more));
        if (more && d.ids)
            return fail(STATUS_INVALID, "%s: holds token ids already: train takes text (see --format)", d.source);
        if (more) TRY(tokenizer_trainer_add(t, d.text, d.bytes));
        documents += more;
        if (more && documents % DOCUMENTS_A_REPORT != 0) continue;
        reader_progress(reader, &done, &total);
        progress_step(progress, "count words", "bytes", done, total);
        if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped: nothing was written");
    }
    return documents > 0 ? STATUS_OK : fail(STATUS_INVALID, "the corpus has no documents");
}

static void print_report(const struct options *o, const struct tokenizer_train_report *r, const struct times *times) {
    char text[32], memory[32];
    streams_printf(
        stdout,
        "%s: %lld tokens (%lld merges) of %lld documents, %lld bytes, %lld words, %lld of them different; %.3f "
        "bytes a token\n",
        o->out, (long long)r->vocab, (long long)r->merges, (long long)r->documents, (long long)r->bytes,
        (long long)r->words, (long long)r->distinct, r->tokens ? (double)r->bytes / (double)r->tokens : 0.0);
    if (o->reserve > 0)
        printf("ids %lld to %lld are left to the model (its config.json: \"vocab_size\": %lld)\n",
               (long long)(o->vocab_size - o->reserve), (long long)o->vocab_size - 1, (long long)o->vocab_size);
    if (r->vocab < o->vocab_size - o->reserve)
        fprintf(stderr, "drt-tokenizer: no pair is left that occurs %lld times: the vocabulary stays smaller\n",
                (long long)(o->min_frequency > 1 ? o->min_frequency : 1));
    fprintf(stderr, "drt-tokenizer: read and counted in %s, ", progress_time_text(text, times->read - times->start));
    fprintf(stderr, "merged in %s, at most %s of memory\n", progress_time_text(text, times->merged - times->read),
            progress_bytes_text(memory, memory_resident_peak()));
}

/* Fails before the work begins if the output cannot be written. */
static enum status try_output(const char *path) {
    struct file_writer *file;
    TRY(file_create(&file, path));
    file_discard(file);
    return STATUS_OK;
}

static enum status train_run(const void *options, const char *const *inputs, int n, const struct progress *progress) {
    const struct options *o = options;
    static const char *const end_of_text[] = {"<|endoftext|>"};
    struct tokenizer_train_config config = {
        .vocab_size = (int)o->vocab_size,
        .reserve = (int)o->reserve,
        .min_frequency = o->min_frequency,
        .pattern = o->pattern,
        .specials = o->specials.count ? o->specials.items : end_of_text,
        .n_specials = o->specials.count ? o->specials.count : !o->no_special,
    };
    struct threads *threads = NULL;
    struct tokenizer_trainer *t = NULL;
    struct reader *reader = NULL;
    struct times times = {.start = clock_seconds()};
    enum status s;
    TRY_GOTO(s, threads_create(&threads, (int)o->threads), out);
    TRY_GOTO(s, tokenizer_trainer_create(&t, &config, threads), out);
    TRY_GOTO(s, drt_tokenizer_corpus(&reader, &o->corpus, o->out, inputs, n, progress), out);
    TRY_GOTO(s, try_output(o->out), out);
    print_configuration(o, &config, threads_count(threads));
    TRY_GOTO(s, read_all(t, reader, progress), out);
    reader_note_left_out(reader, progress);
    times.read = clock_seconds();
    TRY_GOTO(s, tokenizer_trainer_merge(t, progress), out);
    times.merged = clock_seconds();
    TRY_GOTO(s, tokenizer_trainer_save(t, o->out), out);
    struct tokenizer_train_report report = tokenizer_trainer_report(t);
    print_report(o, &report, &times);
out:
    reader_close(reader);
    tokenizer_trainer_free(t);
    threads_free(threads);
    return s;
}

int drt_tokenizer_train(int argc, char **argv, const char **operands) {
    struct options o = {.corpus = {.format = "auto", .text_field = "text"}, .pattern = "gpt2", .vocab_size = 16384};
    const struct arg_option options[] = {
        {"out", ARG_PATH, &o.out, "FILE", "the tokenizer.json (required)", 0, 0},
        {"vocab-size", ARG_INT, &o.vocab_size, "N",
         "number of ids: special tokens, 256 bytes, merges, and those that --reserve keeps free", 1, 1 << 24},
        {"reserve", ARG_INT, &o.reserve, "N",
         "keep the last N ids free of tokens, for ids of the model itself (a DRT model\n"
         "needs 2: pad_id and chunk_id, the landmark)",
         0, 1 << 24},
        {"min-frequency", ARG_INT, &o.min_frequency, "N", "merge only pairs that occur at least N times", 0, 9e15},
        {"special", ARG_STRINGS, &o.specials, "TOKEN",
         "a special token; may be repeated; they get the ids 0, 1, ... in order (default\n<|endoftext|>)", 0, 0},
        {"no-special", ARG_FLAG, &o.no_special, NULL, "no special tokens", 0, 0},
        {"pattern", ARG_CHOICE, &o.pattern, "gpt2|llama3|qwen2", "how text is split into words before merging", 0, 0},
        OPTION_TEXT_FORMAT(o.corpus.format),
        OPTIONS_OF_TEXTS(o.corpus),
        OPTION_THREADS(o.threads),
    };
    const struct arg_program program = {
        .name = "drt-tokenizer train",
        .synopsis = "CORPUS... --out tokenizer.json [options]",
        .about =
            "Trains a byte-level BPE tokenizer. The result is the same file that BpeTrainer of the Python package\n"
            "`tokenizers` makes from the same documents (train_from_iterator), for any number of threads.\n"
            "CORPUS is a file, a folder, or - for standard input: jsonl (also .gz .zst .xz), parquet, arrow or\n"
            "folders of text files. Memory grows with the number of different words of the corpus, not with its size.",
        .examples = "  drt-tokenizer train train.jsonl.xz --vocab-size 16384 --reserve 2 --out tokenizer.json\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = -1};
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.out) return drt_tokenizer_usage("train", "--out is missing");
    if (o.no_special && o.specials.count > 0)
        return drt_tokenizer_usage("train", "--special and --no-special exclude each other");
    return drt_tokenizer_run(train_run, &o, operands, n);
}
