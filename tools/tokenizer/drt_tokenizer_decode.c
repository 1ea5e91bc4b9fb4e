/* drt_tokenizer_decode.c -- drt-tokenizer decode and count: the text and the counts of a token file. */
#include "base/formats/json.h"
#include "data/readers/reader.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/tokenizer/drt_tokenizer.h"

struct options {
    const char *tokenizer;
    int64_t eod_id, documents;
    bool print, json;
};

struct counts {
    int64_t documents, tokens, bytes, longest;
};

static enum status tokenizer_decode_visit(const struct options *o, const struct tokenizer *t,
                                          struct tokenizer_scratch *scratch, const struct document *d,
                                          struct counts *counts) {
    const char *text;
    size_t bytes;
    for (size_t i = 0; i < d->n_ids; i++)
        if (d->ids[i] >= (uint32_t)tokenizer_vocab_size(t))
            return fail(STATUS_MISMATCH, "%s: document at byte %llu: token %zu is id %u, but %s has ids up to %d",
                        d->source, (unsigned long long)d->offset, i, d->ids[i], o->tokenizer,
                        tokenizer_vocab_size(t) - 1);
    TRY(tokenizer_decode(t, scratch, (const int32_t *)d->ids, d->n_ids, false, &text, &bytes));
    if (o->print) {
        if (counts->documents) fputs("\n", stdout);
        fwrite(text, 1, bytes, stdout);
        fputs("\n", stdout);
    }
    counts->documents++;
    counts->tokens += (int64_t)d->n_ids;
    counts->bytes += (int64_t)bytes;
    if ((int64_t)d->n_ids > counts->longest) counts->longest = (int64_t)d->n_ids;
    return STATUS_OK;
}

static enum status tokenizer_decode_walk(const struct options *o, const struct tokenizer *t, const char *const *inputs,
                                         int n, struct counts *counts) {
    int32_t end;
    struct reader *reader = NULL;
    struct tokenizer_scratch *scratch = NULL;
    TRY(drt_tokenizer_end(&end, t, o->tokenizer, o->eod_id));
    struct reader_config config = {.inputs = inputs, .n_inputs = n, .eod_id = end};
    for (int i = 0, width; i < n; i++)
        TRY(drt_tokenizer_width(&width, inputs[i]));
    enum status s;
    TRY_GOTO(s, tokenizer_scratch_create(&scratch, t), out);
    TRY_GOTO(s, reader_open(&reader, &config), out);
    for (int more = 1; more && (o->documents == 0 || counts->documents < o->documents);) {
        struct document d;
        TRY_GOTO(s, reader_next(reader, &d, &more), out);
        if (more) TRY_GOTO(s, tokenizer_decode_visit(o, t, scratch, &d, counts), out);
    }
out:
    reader_close(reader);
    tokenizer_scratch_free(scratch);
    return s;
}

static void print_counts(const struct counts *c, bool json) {
    if (!json) {
        printf("%lld documents, %lld tokens without ends of documents, %lld bytes of text, %.3f bytes a token, longest "
               "document %lld tokens\n",
               (long long)c->documents, (long long)c->tokens, (long long)c->bytes,
               c->tokens ? (double)c->bytes / (double)c->tokens : 0.0, (long long)c->longest);
        return;
    }
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "documents"), json_write_int(&w, c->documents);
    json_write_key(&w, "tokens"), json_write_int(&w, c->tokens);
    json_write_key(&w, "bytes"), json_write_int(&w, c->bytes);
    json_write_key(&w, "longest"), json_write_int(&w, c->longest);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

static int decode_or_count(bool print, int argc, char **argv, const char **operands) {
    struct options o = {.eod_id = -1, .print = print};
    const char *name = print ? "decode" : "count";
    const struct arg_option options[] = {
        OPTION_TOKENIZER(o.tokenizer),
        {"eod-id", ARG_INT, &o.eod_id, "N",
         "id after each document; -1: the tokenizer's <|endoftext|>, </s> or similar", -1, 2147483647.0},
        {"documents", ARG_INT, &o.documents, "N", "only the first N; 0: all", 0, 1e15},
        OPTION_JSON(o.json, "print one line of JSON"),
    };
    const struct arg_program program = {
        .name = print ? "drt-tokenizer decode" : "drt-tokenizer count",
        .synopsis = "FILE.u16|FILE.u32... --tokenizer FILE [options]",
        .about = print ? "Prints the text of a token file, with an empty line between documents."
                       : "Counts documents, tokens and bytes of text, and checks every id.",
        .options = options,
        .n_options = print ? ARRAY_LEN(options) - 1 : ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = -1};
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.tokenizer) return drt_tokenizer_usage(name, "--tokenizer is missing");
    struct tokenizer *t;
    struct counts counts = {0};
    enum status s = tokenizer_open(&t, o.tokenizer);
    if (s == STATUS_OK) {
        s = tokenizer_decode_walk(&o, t, operands, n, &counts);
        tokenizer_free(t);
    }
    if (s == STATUS_OK && !print) print_counts(&counts, o.json);
    return drt_tokenizer_exit(s);
}

int drt_tokenizer_decode(int argc, char **argv, const char **operands) {
    return decode_or_count(true, argc, argv, operands);
}
int drt_tokenizer_count(int argc, char **argv, const char **operands) {
    return decode_or_count(false, argc, argv, operands);
}
