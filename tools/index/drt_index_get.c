/* drt_index_get.c -- drt-index get: the text of a chunk or of a document, with its source. */
#include "base/formats/json.h"
#include "base/formats/text.h"
#include "base/memory.h"
#include "indexer/build/indexer.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/streams.h"
#include <stdlib.h>
#include <string.h>

struct options {
    const char *store, *model;
    int64_t chunk, document, context;
    bool json;
};

struct get {
    const struct options *o;
    struct opened_store store;
    struct model_folder model;
    struct tokenizer_scratch *scratch;
    int32_t *ids; /* [chunk_tokens] */
};

/* Only the hash of the tokenizer must match, because the text depends only on the tokenizer. So a model with a newer
 * encoder can still read the store's texts. */
static enum status get_open(struct get *g) {
    struct store_fingerprint fingerprint;
    TRY(opened_store_open(&g->store, g->o->store));
    TRY(model_folder_open(&g->model, g->o->model));
    TRY(indexer_fingerprint(&fingerprint, &g->model.config, g->model.params, g->model.tokenizer));
    memcpy(fingerprint.encoder, g->store.info.fingerprint.encoder, sizeof fingerprint.encoder);
    fingerprint.dim = g->store.info.fingerprint.dim;
    fingerprint.chunk_tokens = g->store.info.fingerprint.chunk_tokens;
    TRY(store_check_fingerprint(g->o->store, &g->store.info.fingerprint, g->model.path, &fingerprint));
    TRY(tokenizer_scratch_create(&g->scratch, g->model.tokenizer));
    return memory_allocate(&g->ids, (size_t)g->store.info.fingerprint.chunk_tokens);
}

static enum status no_such(const struct get *g, const char *what, int64_t id, int64_t count) {
    return fail(STATUS_NOT_FOUND, "%s: has no %s %lld: ids are 0 to %lld", g->o->store, what, (long long)id,
                (long long)count - 1);
}

static enum status print_chunk(struct get *g, int64_t chunk, int64_t relative) {
    struct store_chunk c;
    struct store_document d;
    struct hit_view view = {.chunk = &c, .document = &d};
    TRY(store_view_chunk(g->store.view, &c, g->ids, chunk));
    TRY(store_view_document(g->store.view, &d, c.document));
    TRY(tokenizer_decode(g->model.tokenizer, g->scratch, g->ids, (size_t)c.n_tokens, false, &view.text, &view.bytes));
    if (g->o->json) {
        struct json_writer w;
        json_write_open(&w, stdout, 0);
        drt_index_hit_json(&w, &view, NULL);
        fputc('\n', stdout);
    } else {
        if (g->o->context > 0) printf("%s ", relative == 0 ? ">>" : "  ");
        drt_index_hit_text(&view);
    }
    return STATUS_OK;
}

static enum status get_chunk(struct get *g) {
    struct store_chunk c;
    struct store_document d;
    const int64_t chunk = g->o->chunk, context = g->o->context;
    if (chunk >= g->store.info.chunks) return no_such(g, "chunk", chunk, g->store.info.chunks);
    TRY(store_view_chunk(g->store.view, &c, g->ids, chunk));
    TRY(store_view_document(g->store.view, &d, c.document));
    int64_t begin = chunk - context, end = chunk + context + 1;
    if (begin < d.first_chunk) begin = d.first_chunk;
    if (end > d.first_chunk + d.chunks) end = d.first_chunk + d.chunks;
    for (int64_t i = begin; i < end; i++)
        TRY(print_chunk(g, i, i - chunk));
    return STATUS_OK;
}

/* The text is decoded as a stream, because a character may extend over two chunks, and a document may be large. */
static enum status write_document(struct get *g, const struct store_document *d, FILE *out) {
    struct tokenizer_stream stream;
    const char *text;
    size_t bytes;
    tokenizer_stream_start(&stream, false);
    for (int64_t i = d->first_chunk; i < d->first_chunk + d->chunks; i++) {
        struct store_chunk c;
        TRY(store_view_chunk(g->store.view, &c, g->ids, i));
        for (int t = 0; t < c.n_tokens; t++) {
            TRY(tokenizer_stream_push(g->model.tokenizer, &stream, g->scratch, g->ids[t], &text, &bytes));
            if (fwrite(text, 1, bytes, out) != bytes) return fail_errno("standard output");
        }
    }
    TRY(tokenizer_stream_flush(&stream, g->scratch, &text, &bytes));
    return fwrite(text, 1, bytes, out) == bytes ? STATUS_OK : fail_errno("standard output");
}

static enum status document_json(struct get *g, const struct store_document *d) {
    char *text = NULL, hex[33];
    size_t bytes = 0;
    struct json_writer w;
    const struct json_number numbers[] = {
        {"first_chunk", d->first_chunk}, {"chunks", d->chunks}, {"tokens", d->tokens}, {"bytes", (int64_t)d->bytes}};
    FILE *memory = text_stream_open(&text, &bytes);
    if (!memory) return fail(STATUS_NO_MEMORY, "no memory for a document");
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "document"), json_write_int(&w, d->id);
    drt_index_document_json(&w, d);
    drt_index_numbers(&w, numbers, ARRAY_LEN(numbers));
    json_write_key(&w, "hash"), json_write_string(&w, drt_index_hex(hex, d->hash));
    enum status status = write_document(g, d, memory);
    if (fclose(memory) != 0 && status == STATUS_OK) status = fail(STATUS_NO_MEMORY, "no memory for a document");
    if (status == STATUS_OK) {
        json_write_key(&w, "text"), json_write_bytes(&w, text, bytes);
        json_write_object_end(&w);
        fputc('\n', stdout);
    }
    free(text);
    return status;
}

static enum status get_document(struct get *g) {
    struct store_document d;
    if (g->o->document >= g->store.info.documents)
        return no_such(g, "document", g->o->document, g->store.info.documents);
    TRY(store_view_document(g->store.view, &d, g->o->document));
    if (g->o->json) return document_json(g, &d);
    /* The source is printed on standard error, so that standard output has only the text. */
    streams_printf(stderr, "%s%s%s%s", d.source, d.key[0] ? "  [" : "", d.key, d.key[0] ? "]" : "");
    if (d.line) fprintf(stderr, "  line %llu", (unsigned long long)d.line);
    fprintf(stderr, "  byte %llu, document %lld: %lld tokens in chunks %lld to %lld\n", (unsigned long long)d.offset,
            (long long)d.id, (long long)d.tokens, (long long)d.first_chunk, (long long)(d.first_chunk + d.chunks - 1));
    TRY(write_document(g, &d, stdout));
    fputc('\n', stdout);
    return STATUS_OK;
}

static enum status get_run(const struct options *o) {
    struct get g = {.o = o};
    enum status status = get_open(&g);
    if (status == STATUS_OK) status = o->chunk >= 0 ? get_chunk(&g) : get_document(&g);
    memory_free(g.ids);
    tokenizer_scratch_free(g.scratch);
    model_folder_close(&g.model);
    opened_store_close(&g.store);
    return status;
}

int drt_index_get(int argc, char **argv, const char **operands) {
    struct options o = {.chunk = -1, .document = -1};
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"model", ARG_PATH, &o.model, "DIR", "a model folder with the store's tokenizer (default: the bundled drt-28m)",
         0, 0},
        {"chunk", ARG_INT, &o.chunk, "ID", "the chunk with this id", 0, 1e18},
        {"document", ARG_INT, &o.document, "ID", "the document with this id, whole", 0, 1e18},
        {"context", ARG_INT, &o.context, "N", "with --chunk: also N chunks before and after it in its document", 0,
         1e9},
        OPTION_JSON(o.json, "one JSON object a line: a chunk, or the document"),
    };
    const struct arg_program program = {
        .name = "drt-index get",
        .synopsis = "[--store] STORE --chunk ID|--document ID [options]",
        .about = "Prints the text of a chunk or of a document, with its source, key, line and byte offset. Search and "
                 "generation print the ids. The text is decoded from the stored tokens, so it differs from the source "
                 "where the tokenizer does not keep every byte. A document's text goes to standard output; its "
                 "position goes to standard error.",
        .examples = "  drt-index get --store store --chunk 1234 --context 2\n"
                    "  drt-index get --store store --document 17 --json\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("get", "--store STORE is missing");
    if ((o.chunk >= 0) + (o.document >= 0) != 1) return drt_index_usage("get", "give --chunk ID or --document ID");
    if (o.context > 0 && o.chunk < 0) return drt_index_usage("get", "--context needs --chunk ID");
    return drt_index_exit(get_run(&o));
}
