/* drt_tokenizer_encode.c -- drt-tokenizer encode: writes a corpus as one file of ids, with the end-of-document id after
 * each document. Documents are read in batches, encoded by all threads, and written in the order of the input. */
#include "base/file.h"
#include "base/memory.h"
#include "base/system/threads.h"
#include "data/readers/reader.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/progress_line.h"
#include "tools/shared/streams.h"
#include "tools/tokenizer/drt_tokenizer.h"
#include <string.h>

enum { BATCH_DOCUMENTS = 4096, BATCH_BYTES = 16 << 20 };

struct options {
    struct corpus_options corpus;
    const char *tokenizer, *out;
    int64_t eod_id, threads;
};

struct item {
    size_t begin, bytes; /* range of batch.text */
    uint8_t *ids;        /* in the format of the file, including the end-of-document id */
    size_t n_ids, capacity;
    int64_t n_ends; /* ids of its text that equal the end-of-document id */
};

struct work {
    struct token_output output;
    struct threads *threads;
    struct tokenizer_scratch **scratch; /* one per worker */
    struct item *items;
    int n_items;
    char *text;
    size_t bytes, capacity;
    enum status failed; /* status of a failed thread, with its message */
    char message[512];
    int64_t documents, tokens, text_bytes, replaced, ends;
};

static void put_id(uint8_t *at, int32_t id, int width) {
    for (int i = 0; i < width; i++)
        at[i] = (uint8_t)((uint32_t)id >> 8 * i);
}

static enum status encode_one(struct work *w, struct item *d, int worker) {
    const int32_t *ids = NULL;
    size_t n = 0, width = (size_t)w->output.width;
    if (d->bytes)
        TRY(tokenizer_encode(w->output.tokenizer, w->scratch[worker], w->text + d->begin, d->bytes, TOKENIZER_LITERAL,
                             &ids, &n));
    TRY(memory_grow(&d->ids, &d->capacity, (n + 1) * width));
    d->n_ends = 0;
    for (size_t i = 0; i < n; i++) {
        put_id(d->ids + i * width, ids[i], w->output.width);
        d->n_ends += ids[i] == w->output.end;
    }
    put_id(d->ids + n * width, w->output.end, w->output.width);
    d->n_ids = n + 1;
    return STATUS_OK;
}

static void encode_body(void *context, int64_t begin, int64_t end, int worker) {
    struct work *w = context;
    for (int64_t i = begin; i < end; i++) {
        enum status s = encode_one(w, &w->items[i], worker), none = STATUS_OK;
        if (s == STATUS_OK) continue;
        /* The first thread that fails copies its message, because a message belongs to its thread. */
        if (__atomic_compare_exchange_n(&w->failed, &none, s, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            snprintf(w->message, sizeof w->message, "%s", status_message());
    }
}

static enum status flush_batch(struct work *w, struct file_writer *out) {
    threads_for(w->threads, w->n_items, 1, encode_body, w);
    if (w->failed != STATUS_OK) return fail(w->failed, "%s", w->message);
    for (int i = 0; i < w->n_items; i++) {
        TRY(file_write(out, w->items[i].ids, w->items[i].n_ids * (size_t)w->output.width));
        w->tokens += (int64_t)w->items[i].n_ids;
        w->ends += w->items[i].n_ends;
    }
    w->n_items = 0, w->bytes = 0;
    return STATUS_OK;
}

static enum status tokenizer_encode_take(struct work *w, const struct document *d) {
    if (d->ids) return fail(STATUS_INVALID, "%s: holds token ids already: encode takes text (see --format)", d->source);
    TRY(memory_grow(&w->text, &w->capacity, w->bytes + d->bytes + 1));
    if (d->bytes) memcpy(w->text + w->bytes, d->text, d->bytes);
    struct item *item = &w->items[w->n_items++];
    item->begin = w->bytes, item->bytes = d->bytes;
    w->bytes += d->bytes;
    w->documents++, w->text_bytes += (int64_t)d->bytes;
    w->replaced += (int64_t)d->replaced;
    return STATUS_OK;
}

static enum status encode_all(struct work *w, struct reader *reader, struct file_writer *out,
                              const struct progress *progress) {
    struct document d;
    for (int more = 1; more;) {
        TRY(reader_next(reader, &d, &more));
        if (more) TRY(tokenizer_encode_take(w, &d));
        if (more && w->bytes < BATCH_BYTES && w->n_items < BATCH_DOCUMENTS) continue;
        TRY(flush_batch(w, out));
        int64_t done, total;
        reader_progress(reader, &done, &total);
        progress_step(progress, "encode", "bytes", done, total);
        if (progress_stop_requested(progress)) return fail(STATUS_INTERRUPTED, "stopped: nothing was written");
    }
    reader_note_left_out(reader, progress);
    if (w->ends > 0)
        progress_note(
            progress,
            "%lld tokens of the texts have the id that ends a document, %d: readers of the file take each for "
            "an end (--eod-id)",
            (long long)w->ends, w->output.end);
    if (w->documents == 0) return fail(STATUS_INVALID, "the corpus has no documents");
    return STATUS_OK;
}

static enum status open_work(struct work *w, const struct options *o) {
    TRY(drt_tokenizer_output(&w->output, o->tokenizer, o->out, o->eod_id));
    TRY(threads_create(&w->threads, (int)o->threads));
    TRY(memory_allocate_zero(&w->items, BATCH_DOCUMENTS));
    TRY(memory_allocate_zero(&w->scratch, (size_t)threads_count(w->threads)));
    for (int i = 0; i < threads_count(w->threads); i++)
        TRY(tokenizer_scratch_create(&w->scratch[i], w->output.tokenizer));
    return STATUS_OK;
}

static void close_work(struct work *w) {
    for (int i = 0; w->scratch && i < threads_count(w->threads); i++)
        tokenizer_scratch_free(w->scratch[i]);
    for (int i = 0; w->items && i < BATCH_DOCUMENTS; i++)
        memory_free(w->items[i].ids);
    memory_free(w->scratch);
    memory_free(w->items);
    memory_free(w->text);
    threads_free(w->threads);
    tokenizer_free(w->output.tokenizer);
}

static void print_report(const struct work *w, const char *out, long long skipped) {
    streams_printf(stdout, "%s: %lld documents, %lld tokens (%d bytes each, end of document %d), ", out,
                   (long long)w->documents, (long long)w->tokens, w->output.width, w->output.end);
    printf("%lld bytes of text, %.3f bytes a token; invalid UTF-8 replaced %lld times, %lld bad lines skipped\n",
           (long long)w->text_bytes, (double)w->text_bytes / (double)w->tokens, (long long)w->replaced, skipped);
}

static enum status encode_run(const void *options, const char *const *inputs, int n, const struct progress *p) {
    const struct options *o = options;
    struct work w = {0};
    struct reader *reader = NULL;
    struct file_writer *out = NULL;
    enum status s;
    TRY_GOTO(s, open_work(&w, o), out);
    TRY_GOTO(s, drt_tokenizer_corpus(&reader, &o->corpus, o->out, inputs, n, p), out);
    TRY_GOTO(s, file_create(&out, o->out), out);
    TRY_GOTO(s, encode_all(&w, reader, out, p), out);
    s = file_publish(out), out = NULL;
    if (s == STATUS_OK) print_report(&w, o->out, (long long)reader_position(reader).skipped);
out:
    file_discard(out);
    reader_close(reader);
    close_work(&w);
    return s;
}

int drt_tokenizer_encode(int argc, char **argv, const char **operands) {
    struct options o = {.corpus = {.format = "auto", .text_field = "text"}, .eod_id = -1};
    const struct arg_option options[] = {
        OPTION_TOKENIZER(o.tokenizer),
        OPTION_TOKEN_FILE(o.out),
        {"eod-id", ARG_INT, &o.eod_id, "N", "id after each document; -1: the tokenizer's <|endoftext|>", -1, INT32_MAX},
        OPTION_TEXT_FORMAT(o.corpus.format),
        OPTIONS_OF_TEXTS(o.corpus),
        OPTION_THREADS(o.threads),
    };
    const struct arg_program program = {
        .name = "drt-tokenizer encode",
        .synopsis = "CORPUS... --tokenizer FILE --out FILE.u16 [options]",
        .about = "Writes the ids of all documents, in order, as little-endian numbers of 16 or 32 bits.\n"
                 "CORPUS is a file, a folder, or - for standard input: jsonl (also .gz .zst .xz), parquet, arrow or\n"
                 "folders of text. The spelling of a special token is ordinary text. The file appears when complete.",
        .examples = "  drt-tokenizer encode train.jsonl.xz --tokenizer tokenizer.json --out train.u16\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = -1};
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.tokenizer || !o.out)
        return drt_tokenizer_usage("encode", o.tokenizer ? "--out is missing" : "--tokenizer is missing");
    return drt_tokenizer_run(encode_run, &o, operands, n);
}
