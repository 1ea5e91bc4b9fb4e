/* drt_index_search.c -- drt-index search: the chunks that the model would retrieve for a text. */
#include "base/json.h"
#include "base/memory.h"
#include "indexer/indexer.h"
#include "tools/args.h"
#include "tools/drt_index.h"
#include <string.h>

struct options {
    const char *text, *store, *model;
    int64_t k, nprobe, threads, exclude_document;
    bool exact, json;
};

struct search {
    const struct options *o;
    struct model_folder model;
    struct opened_store store;
    struct device *device;
    struct tokenizer_scratch *scratch;
    float *query;
    struct store_hit *hits;
    int32_t *ids;
};

static void print_json(const struct search *s, int rank, const struct store_hit *hit, const struct store_chunk *c,
                       const struct store_document *d, const char *text, size_t bytes) {
    (void)s;
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "rank"), json_write_int(&w, rank);
    json_write_key(&w, "score"), json_write_double(&w, (double)hit->score);
    json_write_key(&w, "chunk"), json_write_int(&w, c->id);
    json_write_key(&w, "document"), json_write_int(&w, c->document);
    json_write_key(&w, "source"), json_write_string(&w, d->source);
    json_write_key(&w, "key"), json_write_string(&w, d->key);
    json_write_key(&w, "line"), json_write_int(&w, (int64_t)d->line);
    json_write_key(&w, "offset"), json_write_int(&w, (int64_t)d->offset);
    json_write_key(&w, "chunk_in_document"), json_write_int(&w, c->in_document);
    json_write_key(&w, "chunks_of_document"), json_write_int(&w, d->chunks);
    json_write_key(&w, "token_offset"), json_write_int(&w, c->token_offset);
    json_write_key(&w, "tokens"), json_write_int(&w, c->n_tokens);
    json_write_key(&w, "text"), json_write_bytes(&w, text, bytes);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

/* Line ends and control characters would break the layout (and could play with a terminal). */
static void print_on_one_line(const char *text, size_t bytes) {
    bool space = false;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char ch = (unsigned char)text[i];
        bool blank = ch <= ' ' || ch == 0x7f;
        if (!blank) fputc(ch, stdout);
        if (blank && !space) fputc(' ', stdout);
        space = blank;
    }
}

static void print_text(int rank, const struct store_hit *hit, const struct store_chunk *c,
                       const struct store_document *d, const char *text, size_t bytes) {
    printf("%d. score %.4f  %s", rank, (double)hit->score, d->source);
    if (d->key[0]) printf("  [%s]", d->key);
    if (d->line) printf("  line %llu", (unsigned long long)d->line);
    printf("  byte %llu\n   document %lld, chunk %lld of %lld (tokens %lld to %lld), chunk id %lld\n   ",
           (unsigned long long)d->offset, (long long)c->document, (long long)c->in_document + 1, (long long)d->chunks,
           (long long)c->token_offset, (long long)(c->token_offset + c->n_tokens - 1), (long long)c->id);
    print_on_one_line(text, bytes);
    printf("\n\n");
}

static enum status print_hit(struct search *s, int rank, const struct store_hit *hit) {
    struct store_chunk c;
    struct store_document d;
    const char *text;
    size_t bytes;
    TRY(store_view_chunk(s->store.view, &c, s->ids, hit->chunk));
    TRY(store_view_document(s->store.view, &d, c.document));
    TRY(tokenizer_decode(s->model.tokenizer, s->scratch, s->ids, (size_t)c.n_tokens, false, &text, &bytes));
    if (s->o->json)
        print_json(s, rank, hit, &c, &d, text, bytes);
    else
        print_text(rank, hit, &c, &d, text, bytes);
    return STATUS_OK;
}

static enum status prepare(struct search *s) {
    const struct options *o = s->o;
    struct store_fingerprint fingerprint;
    void *memory;
    TRY(opened_store_open(&s->store, o->store));
    TRY(model_folder_open(&s->model, o->model));
    fprintf(stderr,
            "drt-index search: store %s (generation %llu, index %s), model %s, k %lld, %s, nprobe %lld, threads %lld\n",
            o->store, (unsigned long long)s->store.info.generation, s->store.info.index, s->model.path, (long long)o->k,
            o->exact ? "exact" : "by index", (long long)o->nprobe, (long long)o->threads);
    TRY(indexer_fingerprint(&fingerprint, &s->model.config, s->model.params, s->model.tokenizer));
    TRY(store_check_fingerprint(o->store, &s->store.info.fingerprint, s->model.path, &fingerprint));
    TRY(device_open(&s->device, "cpu", (int)o->threads));
    TRY(tokenizer_scratch_create(&s->scratch, s->model.tokenizer));
    TRY(memory_allocate(&memory, (size_t)s->model.config.hidden, sizeof(float)));
    s->query = memory;
    TRY(memory_allocate(&memory, (size_t)o->k, sizeof(struct store_hit)));
    s->hits = memory;
    TRY(memory_allocate(&memory, (size_t)s->model.config.chunk, sizeof(int32_t)));
    s->ids = memory;
    return STATUS_OK;
}

static enum status run(struct search *s) {
    const struct options *o = s->o;
    struct store_range exclude = {0};
    TRY(prepare(s));
    TRY(drt_index_query(s->query, s->device, &s->model, o->text, strlen(o->text)));
    if (o->exclude_document >= 0) {
        struct store_document d;
        TRY(store_view_document(s->store.view, &d, o->exclude_document));
        exclude = (struct store_range){.begin = d.first_chunk, .end = d.first_chunk + d.chunks};
    }
    const struct store_search how = {.k = (int)o->k,
                                     .exact = o->exact,
                                     .nprobe = (int)o->nprobe,
                                     .exclude = &exclude,
                                     .threads = s->device->threads};
    TRY(store_view_search(s->store.view, s->hits, s->query, 1, &how));
    for (int i = 0; i < (int)o->k && s->hits[i].chunk >= 0; i++)
        TRY(print_hit(s, i + 1, &s->hits[i]));
    return STATUS_OK;
}

int drt_index_search(int argc, char **argv, const char **operands) {
    struct options o = {.k = 8, .exclude_document = -1};
    const struct arg_option options[] = {
        {"store", ARG_STRING, &o.store, "STORE", "the store's folder", 0, 0},
        {"model", ARG_STRING, &o.model, "DIR",
         "the model folder that the store was built with (default: the bundled seed-25m)", 0, 0},
        {"k", ARG_INT, &o.k, "N", "hits to print", 1, 100000},
        {"exact", ARG_FLAG, &o.exact, NULL, "scan all landmarks instead of asking the index", 0, 0},
        {"nprobe", ARG_INT, &o.nprobe, "N", "IVF lists to visit; 0: the index's default", 0, 1e9},
        {"exclude-document", ARG_INT, &o.exclude_document, "ID", "never return this document's chunks; -1: none", -1,
         1e18},
        {"threads", ARG_INT, &o.threads, "N", "0: one for each processor", 0, 1024},
        {"json", ARG_FLAG, &o.json, NULL, "one JSON object a line", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-index search",
        .synopsis = "TEXT --store STORE [options]",
        .about = "Prints the chunks that the model would retrieve behind TEXT. The query is the one that generation "
                 "uses: TEXT runs\n"
                 "through the decoder, whose state at the landmark behind the last chunk (normed) is the query vector. "
                 "TEXT's last\n"
                 "whole chunks count, at most 8; a TEXT shorter than one chunk is repeated in front of itself until it "
                 "fills one.\n"
                 "Scores are query . landmark / sqrt(dimensions), computed exactly; they may be negative.",
        .examples = "  drt-index search \"The treaty was signed in\" --store store --k 3\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .min_operands = 1,
        .max_operands = 1,
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("search", "--store STORE is missing");
    o.text = operands[0];
    struct search s = {.o = &o};
    enum status status = run(&s);
    memory_free(s.ids);
    memory_free(s.hits);
    memory_free(s.query);
    tokenizer_scratch_free(s.scratch);
    device_close(s.device);
    model_folder_close(&s.model);
    opened_store_close(&s.store);
    return drt_index_exit(status);
}
