/* drt_index_search.c -- drt-index search: the chunks that the model would retrieve after a text, or after a chunk of
 * the store. */
#include "base/memory.h"
#include "indexer/indexer.h"
#include "kernels/search/topk.h"
#include "tools/index/drt_index.h"
#include "tools/shared/args.h"
#include "tools/shared/device_choice.h"
#include "tools/shared/device_index.h"
#include "tools/shared/exclude.h"
#include "tools/shared/streams.h"
#include <string.h>

struct options {
    struct device_choice where;
    const char *text, *store, *model, *exclude; /* text NULL: the query is from_chunk's own */
    int64_t k, nprobe, threads, from_document, from_chunk;
    int64_t rule; /* what `exclude` says */
    bool exact, json;
};

struct search {
    const struct options *o;
    struct model_folder model;
    struct opened_store store;
    struct device *device;
    struct weights weights; /* on the device */
    struct drt_index_model runner;
    struct device_index index; /* neither: the store searches */
    struct store_search how;
    char way[DEVICE_INDEX_TEXT_MAX]; /* what that does */
    struct tokenizer_scratch *scratch;
    float *query;
    struct store_hit *hits;
    int32_t *ids; /* [DRT_INDEX_QUERY_CHUNKS * chunk] */
};

static enum status print_hit(struct search *s, int rank, const struct store_hit *hit) {
    struct store_chunk c;
    struct store_document d;
    const char *text;
    size_t bytes;
    TRY(store_view_chunk(s->store.view, &c, s->ids, hit->chunk));
    TRY(store_view_document(s->store.view, &d, c.document));
    TRY(tokenizer_decode(s->model.tokenizer, s->scratch, s->ids, (size_t)c.n_tokens, false, &text, &bytes));
    if (s->o->json)
        drt_index_hit_json(rank, s->way, hit, &c, &d, text, bytes);
    else
        drt_index_hit_text(rank, hit, &c, &d, text, bytes);
    return STATUS_OK;
}

static enum status prepare(struct search *s) {
    const struct options *o = s->o;
    struct store_fingerprint fingerprint;
    TRY(opened_store_open(&s->store, o->store));
    TRY(model_folder_open(&s->model, o->model));
    TRY(indexer_fingerprint(&fingerprint, &s->model.config, s->model.params, s->model.tokenizer));
    TRY(store_check_fingerprint(o->store, &s->store.info.fingerprint, s->model.path, &fingerprint));
    enum dtype type;
    TRY(device_choose(&s->device, &type, &o->where, (int)o->threads));
    TRY(weights_open(&s->weights, s->device, s->model.params, type));
    s->runner = (struct drt_index_model){.device = s->device, .weights = &s->weights, .config = &s->model.config};
    const struct device_index_choice index = {.exact = o->exact || s->store.info.segments == 0,
                                              .nprobe = (int)o->nprobe};
    if (index.exact || index.nprobe) TRY(device_index_open(&s->index, s->device, s->store.view, index));
    s->how = (struct store_search){
        .k = (int)o->k, .exact = o->exact, .nprobe = (int)o->nprobe, .threads = s->device->threads};
    streams_printf(
        stderr,
        "drt-index search: store %s (generation %llu, index %s), model %s, k %lld, searched by %s, threads %d\n",
        o->store, (unsigned long long)s->store.info.generation, s->store.info.index, s->model.path, (long long)o->k,
        device_index_text(s->way, &s->index, s->store.view, &s->how), threads_count(s->device->threads));
    TRY(tokenizer_scratch_create(&s->scratch, s->model.tokenizer));
    TRY(memory_allocate(&s->query, (size_t)s->model.config.hidden));
    TRY(memory_allocate(&s->hits, (size_t)o->k));
    size_t ids = DRT_INDEX_QUERY_CHUNKS * (size_t)s->model.config.chunk;
    return memory_allocate(&s->ids, ids);
}

static enum status query_of_text(struct search *s) {
    const int32_t *ids;
    size_t n;
    TRY(tokenizer_encode(s->model.tokenizer, s->scratch, s->o->text, strlen(s->o->text), TOKENIZER_LITERAL, &ids, &n));
    if (n == 0) return fail(STATUS_INVALID, "the query text is empty");
    return drt_index_query(s->query, &s->runner, ids, (int64_t)n);
}

/* What its document says up to the end of the chunk. */
static enum status query_of_chunk(struct search *s, int64_t chunk) {
    struct store_chunk c;
    int64_t first = chunk - DRT_INDEX_QUERY_CHUNKS + 1, n = 0;
    TRY(store_view_chunk(s->store.view, &c, s->ids, chunk));
    if (first < chunk - c.in_document) first = chunk - c.in_document;
    for (int64_t i = first; i <= chunk; i++) {
        TRY(store_view_chunk(s->store.view, &c, s->ids + n, i));
        n += c.n_tokens;
    }
    return drt_index_query(s->query, &s->runner, s->ids, n);
}

static enum status find_excluded(struct search *s, struct store_range *out) {
    const struct options *o = s->o;
    struct store_chunk c = {.document = o->from_document};
    struct store_document d;
    *out = (struct store_range){0};
    if (o->rule == EXCLUDE_NOTHING) return STATUS_OK;
    if (o->from_chunk >= 0) TRY(store_view_chunk(s->store.view, &c, s->ids, o->from_chunk));
    TRY(store_view_document(s->store.view, &d, c.document));
    *out = exclude_range(o->rule, &d, c.in_document);
    return STATUS_OK;
}

static enum status search_run(struct search *s) {
    const struct options *o = s->o;
    struct store_range exclude;
    TRY(prepare(s));
    TRY(find_excluded(s, &exclude));
    TRY(o->text ? query_of_text(s) : query_of_chunk(s, o->from_chunk));
    s->how.exclude = &exclude;
    TRY(device_index_search_whole(&s->index, s->store.view, s->hits, s->query, &s->how, s->way));
    for (int i = 0; i < (int)o->k && s->hits[i].chunk >= 0; i++)
        TRY(print_hit(s, i + 1, &s->hits[i]));
    return STATUS_OK;
}

/* The exit code of what cannot be meant; -1: all is well. */
static int check(struct options *o) {
    bool own = o->from_document >= 0 || o->from_chunk >= 0;
    if (!o->store) return drt_index_usage("search", "--store STORE is missing");
    if (o->exact && o->nprobe) return drt_index_usage("search", "--exact scans every landmark: leave out --nprobe");
    if (!o->text && o->from_chunk < 0) return drt_index_usage("search", "TEXT or --from-chunk ID is missing");
    if (o->from_document >= 0 && o->from_chunk >= 0)
        return drt_index_usage("search", "--from-chunk already names the document: leave out --from-document");
    if (!exclude_parse(&o->rule, o->exclude ? o->exclude : own ? "doc" : "none"))
        return drt_index_usage("search", "--exclude is doc, window=N or none");
    if (o->rule == EXCLUDE_DOCUMENT && !own)
        return drt_index_usage("search", "--exclude doc: which one? give --from-document ID or --from-chunk ID");
    if (o->rule >= 0 && o->from_chunk < 0)
        return drt_index_usage("search",
                               "--exclude window=N needs --from-chunk ID, the chunk that the window is around");
    return -1;
}

int drt_index_search(int argc, char **argv, const char **operands) {
    struct options o = {.where = {.device = "cpu", .dtype = "auto"}, .k = 8, .from_document = -1, .from_chunk = -1};
    const struct arg_option options[] = {
        {"store", ARG_PATH, &o.store, "STORE", "the store's folder", 0, 0},
        {"model", ARG_PATH, &o.model, "DIR",
         "the model folder that the store was built with (default: the bundled drt-28m)", 0, 0},
        {"k", ARG_INT, &o.k, "N", "hits to print", 1, TOPK_PLACES_MAX},
        {"exact", ARG_FLAG, &o.exact, NULL, "scan all landmarks instead of asking the index", 0, 0},
        {"nprobe", ARG_INT, &o.nprobe, "N", "IVF lists to visit; 0: the index's default", 0, 1e9},
        {"from-document", ARG_INT, &o.from_document, "ID",
         "TEXT was taken from this document of the store (see --exclude)", 0, 1e18},
        {"from-chunk", ARG_INT, &o.from_chunk, "ID",
         "TEXT ends in this chunk of the store; without TEXT: the query is that chunk's own", 0, 1e18},
        {"exclude", ARG_STRING, &o.exclude, "doc|window=N|none",
         "chunks of the query's own document that must not be found: all of them, those at most N away from "
         "--from-chunk, or none (default: doc, if --from-document or --from-chunk names the document)",
         0, 0},
        {"device", ARG_CHOICE, &o.where.device, "auto|cpu|cuda",
         "where the query is computed and --exact or --nprobe search; a GPU copies all landmarks first", 0, 0},
        {"dtype", ARG_CHOICE, &o.where.dtype, "auto|f32|bf16", "a GPU computes in bf16 (auto) or float32", 0, 0},
        {"threads", ARG_INT, &o.threads, "N",
         "threads to use; 0: one for each processor that the affinity mask and CPU quota allow", 0, THREADS_MAX},
        {"json", ARG_FLAG, &o.json, NULL, "one JSON object a line", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-index search",
        .synopsis = "TEXT|--from-chunk ID --store STORE [options]",
        .about =
            "Prints the chunks that the model would retrieve after TEXT. The query is the one that generation uses: "
            "TEXT runs through the decoder, and the normalised state at the landmark after its last chunk is the "
            "query vector. Only the last 8 whole chunks of TEXT are used. A TEXT shorter than one chunk is repeated "
            "until it fills one; a passage of a few chunks gives much better results than a single question. Scores "
            "are query . landmark / sqrt(dimensions), computed exactly; they may be negative.",
        .examples = "  drt-index search \"The treaty was signed in\" --store store --k 3\n"
                    "  drt-index search --from-chunk 1234 --exclude window=4 --store store\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .max_operands = 1};
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    o.text = n > 0 ? operands[0] : NULL;
    code = check(&o);
    if (code >= 0) return code;
    struct search s = {.o = &o};
    enum status status = search_run(&s);
    memory_free(s.ids);
    memory_free(s.hits);
    memory_free(s.query);
    tokenizer_scratch_free(s.scratch);
    device_index_close(&s.index);
    if (s.device) weights_release(&s.weights, s.device);
    device_close(s.device);
    model_folder_close(&s.model);
    opened_store_close(&s.store);
    return drt_index_exit(status);
}
