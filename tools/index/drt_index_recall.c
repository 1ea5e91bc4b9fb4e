/* drt_index_recall.c -- drt-index recall: measures the loss of the index against exact search, and its time. */
#include "tools/index/drt_index_recall.h"
#include "base/formats/json.h"
#include "session/corpus_search.h"
#include "session/device_choice.h"
#include "tools/shared/args.h"
#include "tools/shared/log.h"
#include "tools/shared/option_rows.h"
#include "tools/shared/report.h"
#include "tools/shared/streams.h"
#include <stdlib.h>
#include <string.h>

enum { SWEEP_MAX = 32 };

struct options {
    const char *store, *exclude, *nprobe, *device;
    int64_t k, queries, threads, seed;
    bool json;
    int64_t rule; /* the value of `exclude` */
    int sweep[SWEEP_MAX], n_sweep;
};

static void print_row(const struct recall *r, bool json, const struct searcher *searcher, int nprobe,
                      struct recall_times ms, struct recall_times exact_ms) {
    const struct searcher_description d = searcher_describe(searcher, (int)r->k, nprobe);
    const struct recall_figures f = recall_compare(r);
    if (!json) {
        printf("%10.4f %18.4f %12.6f %12.3f %12.3f  %s\n", f.recall, f.mass, f.gap, ms.mean, exact_ms.mean, d.text);
        return;
    }
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "index"), json_write_string(&w, d.device_bytes > 0 ? d.kind : r->store.info.index);
    json_write_key(&w, "nprobe"), json_write_int(&w, nprobe);
    json_write_key(&w, "searched_by"), json_write_string(&w, d.text);
    json_write_key(&w, "searcher"), searcher_describe_json(&w, &d);
    json_write_key(&w, "k"), json_write_int(&w, r->k);
    json_write_key(&w, "queries"), json_write_int(&w, r->n);
    json_write_key(&w, "recall"), json_write_double(&w, f.recall);
    json_write_key(&w, "softmax_mass_recall"), json_write_double(&w, f.mass);
    json_write_key(&w, "score_gap"), json_write_double(&w, f.gap);
    json_write_key(&w, "ms"), json_write_double(&w, ms.mean);
    json_write_key(&w, "p50_ms"), json_write_double(&w, ms.p50);
    json_write_key(&w, "p99_ms"), json_write_double(&w, ms.p99);
    json_write_key(&w, "exact_ms"), json_write_double(&w, exact_ms.mean);
    json_write_key(&w, "exact_p50_ms"), json_write_double(&w, exact_ms.p50);
    json_write_key(&w, "exact_p99_ms"), json_write_double(&w, exact_ms.p99);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

/* Prints a line of figures for each number of lists. */
static enum status index_recall_sweep(struct recall *r, const struct options *o, struct searcher *searcher,
                                      struct recall_times exact_ms) {
    if (!o->json)
        printf("recall@%-3lld %18s %12s %12s %12s  %s\n", (long long)o->k, "softmax-mass", "score gap", "ms/query",
               "exact ms", "searched by");
    const struct searcher_description usual = searcher_describe(searcher, (int)o->k, 0);
    int rows = o->n_sweep;
    if (usual.lists == 0 && rows > 1) {
        rows = 1;
        log_line(LOG_WARNING, "message", "drt-index recall", "%s: %s, so --nprobe changes nothing: one row", o->store,
                 usual.exact ? "searches scan all landmarks" : "the index has no lists");
    }
    for (int i = 0; i < rows; i++) {
        struct recall_times ms;
        TRY(recall_search(r, r->found, searcher, o->sweep[i], &ms));
        print_row(r, o->json, searcher, o->sweep[i], ms, exact_ms);
    }
    return STATUS_OK;
}

/* Searches all landmarks on the fastest device. The other searches are compared with these hits. */
static enum status search_exact(struct recall *r, struct recall_times *ms) {
    struct searcher *searcher;
    TRY(corpus_search_open(&searcher,
                           &(struct searcher_config){.device = r->device, .view = r->store.view, .exact = true},
                           report_stderr));
    enum status status = recall_search(r, r->exact, searcher, 0, ms);
    searcher_close(searcher);
    return status;
}

/* Measures one kind. If it is not available, that is printed; the store's own kind was measured before. */
static enum status index_recall_measure(struct recall *r, const struct options *o, enum searcher_kind kind,
                                        struct recall_times exact_ms) {
    struct searcher *searcher;
    TRY(corpus_search_open(
        &searcher, &(struct searcher_config){.kind = kind, .device = r->device, .view = r->store.view}, report_stderr));
    enum status status = searcher_fallback(searcher) ? STATUS_OK : index_recall_sweep(r, o, searcher, exact_ms);
    searcher_close(searcher);
    return status;
}

static enum status recall_run(struct recall *r, const struct options *o) {
    TRY(opened_store_open(&r->store, o->store));
    const struct device_choice where = {.device = o->device, .dtype = "f32", .report = report_stderr};
    enum dtype type;
    TRY(device_choose(&r->device, &type, &where, (int)o->threads));
    log_line(
        LOG_INFO, "start", "drt-index recall",
        "store %s (generation %llu, %lld chunks, index %s), k %lld, queries %lld, exclude %s, seed %lld, device %s, "
        "threads %d",
        o->store, (unsigned long long)r->store.info.generation,
        (long long)(r->store.info.chunks - r->store.info.dropped_chunks), r->store.info.index, (long long)o->k,
        (long long)o->queries, o->exclude, (long long)o->seed, r->device->name, threads_count(r->device->threads));
    TRY(recall_prepare(r, (uint64_t)o->seed, o->rule));
    struct recall_times exact_ms;
    TRY(search_exact(r, &exact_ms));
    TRY(index_recall_measure(r, o, SEARCHER_STORE, exact_ms));
    return r->device->shares_memory ? STATUS_OK : index_recall_measure(r, o, SEARCHER_LISTS, exact_ms);
}

/* Parses "1,4,16". */
static bool parse_sweep(struct options *o) {
    char *end;
    for (const char *at = o->nprobe; o->n_sweep < SWEEP_MAX; at = end + 1) {
        long long value = strtoll(at, &end, 10);
        if (end == at || value < 0 || value > 1000000000 || (*end && *end != ',')) return false;
        o->sweep[o->n_sweep++] = (int)value;
        if (!*end) return true;
    }
    return false;
}

int drt_index_recall(int argc, char **argv, const char **operands) {
    struct options o = {.k = 8, .queries = 200, .exclude = "doc", .nprobe = "0", .device = "auto", .seed = 1};
    const struct arg_option options[] = {
        OPTION_STORE(o.store),
        {"k", ARG_INT, &o.k, "N", "hits of each query to compare", 1, 10000},
        {"queries", ARG_INT, &o.queries, "N", "number of queries", 1, 1e6},
        {"nprobe", ARG_STRING, &o.nprobe, "N,N,...",
         "numbers of IVF lists to scan, one line of results for each; 0: the index's default", 0, 0},
        {"exclude", ARG_STRING, &o.exclude, "doc|window=N|none",
         "chunks of the query's own document that must not be found: all of them, those at most N away, or none", 0, 0},
        {"seed", ARG_INT, &o.seed, "N", "seed of the random choice of queries", 0, 9e18},
        {"device", ARG_CHOICE, &o.device, "auto|cpu|cuda",
         "where exact search runs; on a GPU its IVF index, gpu-ivf, is measured after the store's; auto: a GPU if "
         "there is one",
         0, 0},
        OPTION_THREADS(o.threads),
        OPTION_JSON(o.json, "one JSON object a line"),
        OPTION_LOG_JSON,
    };
    const struct arg_program program = {
        .name = "drt-index recall",
        .synopsis = "[--store] STORE [options]",
        .about = "Compares the index with exact search. The queries are the landmarks of random chunks of the store, "
                 "which do not find their own document (see --exclude); the distribution of a decoder's queries may "
                 "differ. Columns: the share of the exact k hits that the index finds; the share of their softmax "
                 "weight, which decides how much the model loses; the mean loss of score at a rank; milliseconds per "
                 "query, one query per call; and the search method.",
        .examples = "  drt-index recall --store store --k 8 --nprobe 1,4,16,64\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
        .operand = "store",
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("recall", "--store STORE is missing");
    if (!exclude_parse(&o.rule, o.exclude)) return drt_index_usage("recall", "--exclude is doc, window=N or none");
    if (!parse_sweep(&o)) return drt_index_usage("recall", "--nprobe is up to 32 numbers with commas");
    struct recall r = {.k = o.k, .n = o.queries};
    enum status status = recall_run(&r, &o);
    recall_free(&r);
    device_close(r.device);
    opened_store_close(&r.store);
    return drt_index_exit(status);
}
