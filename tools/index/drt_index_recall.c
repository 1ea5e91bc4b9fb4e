/* drt_index_recall.c -- drt-index recall: what the index loses against exact search, and what it costs. */
#include "tools/index/drt_index_recall.h"
#include "base/formats/json.h"
#include "tools/shared/args.h"
#include "tools/shared/device_choice.h"
#include "tools/shared/streams.h"
#include <stdlib.h>
#include <string.h>

enum { SWEEP_MAX = 32 };

struct options {
    const char *store, *exclude, *nprobe, *device;
    int64_t k, queries, threads, seed;
    bool json;
    int64_t rule; /* what `exclude` says */
    int sweep[SWEEP_MAX], n_sweep;
};

static void print_row(const struct recall *r, bool json, int nprobe, struct recall_figures f, double ms,
                      double exact_ms) {
    char way[DEVICE_INDEX_TEXT_MAX];
    const struct store_search how = {.k = (int)r->k, .nprobe = nprobe};
    const struct device_index none = {0};
    device_index_text(way, r->index.lists ? &r->index : &none, r->store.view, &how);
    if (!json) {
        printf("%10.4f %18.4f %12.6f %12.3f %12.3f  %s\n", f.recall, f.mass, f.gap, ms, exact_ms, way);
        return;
    }
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "index"), json_write_string(&w, r->index.lists ? "gpu-ivf" : r->store.info.index);
    json_write_key(&w, "nprobe"), json_write_int(&w, nprobe);
    json_write_key(&w, "searched_by"), json_write_string(&w, way);
    json_write_key(&w, "k"), json_write_int(&w, r->k);
    json_write_key(&w, "queries"), json_write_int(&w, r->n);
    json_write_key(&w, "recall"), json_write_double(&w, f.recall);
    json_write_key(&w, "softmax_mass_recall"), json_write_double(&w, f.mass);
    json_write_key(&w, "score_gap"), json_write_double(&w, f.gap);
    json_write_key(&w, "ms"), json_write_double(&w, ms);
    json_write_key(&w, "exact_ms"), json_write_double(&w, exact_ms);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

/* A line of figures for each number of lists: of gpu-ivf where it is there, of the store's index else. */
static enum status sweep(struct recall *r, const struct options *o, double exact_ms) {
    if (!o->json)
        printf("recall@%-3lld %18s %12s %12s %12s  %s\n", (long long)o->k, "softmax-mass", "score gap", "ms/query",
               "exact ms", "searched by");
    const struct store_search usual = {.k = (int)o->k};
    const struct store_search_way way = store_view_search_way(r->store.view, &usual);
    int rows = o->n_sweep;
    if (!r->index.lists && way.lists == 0 && rows > 1) {
        rows = 1;
        fprintf(stderr, "drt-index recall: %s: %s, so --nprobe changes nothing: one row\n", o->store,
                way.exact ? "searches scan all landmarks" : "the index has no lists");
    }
    for (int i = 0; i < rows; i++) {
        double ms;
        TRY(recall_search(r, r->found, false, o->sweep[i], &ms));
        print_row(r, o->json, o->sweep[i], recall_compare(r), ms, exact_ms);
    }
    return STATUS_OK;
}

static enum status run(struct recall *r, const struct options *o) {
    TRY(opened_store_open(&r->store, o->store));
    const struct device_choice where = {.device = o->device, .dtype = "f32"};
    enum dtype type;
    TRY(device_choose(&r->device, &type, &where, (int)o->threads));
    streams_printf(
        stderr,
        "drt-index recall: store %s (generation %llu, %lld chunks, index %s), k %lld, queries %lld, exclude %s, "
        "seed %lld, device %s, threads %d\n",
        o->store, (unsigned long long)r->store.info.generation,
        (long long)(r->store.info.chunks - r->store.info.dropped_chunks), r->store.info.index, (long long)o->k,
        (long long)o->queries, o->exclude, (long long)o->seed, r->device->name, threads_count(r->device->threads));
    TRY(device_index_open(&r->index, r->device, r->store.view, (struct device_index_choice){.exact = true}));
    TRY(recall_prepare(r, (uint64_t)o->seed, o->rule));
    double exact_ms;
    TRY(recall_search(r, r->exact, true, 0, &exact_ms));
    TRY(sweep(r, o, exact_ms));
    device_index_close(&r->index); /* room for the lists */
    if (r->device->shares_memory) return STATUS_OK;
    TRY(device_index_open(&r->index, r->device, r->store.view, (struct device_index_choice){.lists = true}));
    return r->index.lists ? sweep(r, o, exact_ms) : STATUS_OK;
}

/* "1,4,16" */
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
        {"store", ARG_PATH, &o.store, "STORE", "the store's folder", 0, 0},
        {"k", ARG_INT, &o.k, "N", "hits compared", 1, 10000},
        {"queries", ARG_INT, &o.queries, "N", "how many queries to measure", 1, 1e6},
        {"nprobe", ARG_STRING, &o.nprobe, "N,N,...",
         "IVF lists to visit, a line of figures for each; 0: the index's default", 0, 0},
        {"exclude", ARG_STRING, &o.exclude, "doc|window=N|none",
         "chunks of the query's own document that may not be found", 0, 0},
        {"seed", ARG_INT, &o.seed, "N", "seed of the random choice of queries", 0, 9e18},
        {"device", ARG_CHOICE, &o.device, "auto|cpu|cuda",
         "where exact search runs; on a GPU its own index of lists, gpu-ivf, is measured besides; auto: a GPU where "
         "there "
         "is one",
         0, 0},
        {"threads", ARG_INT, &o.threads, "N",
         "threads to use; 0: one for each processor of its affinity mask and CPU quota", 0, THREADS_MAX},
        {"json", ARG_FLAG, &o.json, NULL, "one JSON object a line", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-index recall",
        .synopsis = "--store STORE [options]",
        .about = "Compares the index with exact search. The queries are the landmarks of randomly chosen stored "
                 "chunks, without "
                 "their own document (see --exclude); a decoder's queries may be spread differently. Columns: the "
                 "share of the exact "
                 "k hits that the index finds; the share of their softmax weight that it keeps (what the model feels); "
                 "the mean score "
                 "lost at a rank; milliseconds a query, one query a call, and "
                 "what was searched.",
        .examples = "  drt-index recall --store store --k 8 --nprobe 1,4,16,64\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("recall", "--store STORE is missing");
    if (!exclude_parse(&o.rule, o.exclude)) return drt_index_usage("recall", "--exclude is doc, window=N or none");
    if (!parse_sweep(&o)) return drt_index_usage("recall", "--nprobe is up to 32 numbers with commas");
    struct recall r = {.k = o.k, .n = o.queries};
    enum status status = run(&r, &o);
    recall_free(&r);
    device_index_close(&r.index);
    device_close(r.device);
    opened_store_close(&r.store);
    return drt_index_exit(status);
}
