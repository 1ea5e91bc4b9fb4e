/* drt_index_recall.c -- drt-index recall: what the index loses against exact search, and what it costs. */
#include "base/json.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/threads.h"
#include "tools/args.h"
#include "tools/drt_index.h"
#include "tools/progress_line.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_MAX = 32 };

struct options {
    const char *store, *exclude, *nprobe;
    int64_t k, queries, threads, seed;
    bool json;
    int64_t window; /* -1: the whole document; -2: nothing */
    int sweep[SWEEP_MAX], n_sweep;
};
struct recall {
    const struct options *o;
    struct opened_store store;
    struct threads *threads;
    int64_t n;                       /* queries */
    float *queries;                  /* [n, dim] */
    struct store_range *exclude;     /* [n] */
    struct store_hit *exact, *found; /* [n, k] */
};
struct figures {
    double recall, gap, mass, ms;
};

static enum status pick_queries(struct recall *r) {
    struct rng rng = rng_make((uint64_t)r->o->seed, 0);
    for (int64_t i = 0; i < r->n; i++) {
        struct store_chunk c;
        struct store_document d;
        int32_t ids[256];
        int64_t chunk = (int64_t)rng_below(&rng, (uint64_t)r->store.info.chunks);
        if (r->store.info.fingerprint.chunk_tokens > (int)ARRAY_LEN(ids))
            return fail(STATUS_UNSUPPORTED, "chunks of more than 256 tokens");
        TRY(store_view_chunk(r->store.view, &c, ids, chunk));
        TRY(store_view_document(r->store.view, &d, c.document));
        TRY(store_view_landmark(r->store.view, r->queries + i * r->store.info.fingerprint.dim, chunk));
        int64_t begin = d.first_chunk, end = d.first_chunk + d.chunks;
        if (r->o->window >= 0) {
            if (chunk - r->o->window > begin) begin = chunk - r->o->window;
            if (chunk + r->o->window + 1 < end) end = chunk + r->o->window + 1;
        }
        r->exclude[i] = r->o->window == -2 ? (struct store_range){0} : (struct store_range){.begin = begin, .end = end};
    }
    return STATUS_OK;
}

/* One query a call, as generation does it; ms is the mean of a call. */
static enum status search_all(struct recall *r, struct store_hit *hits, bool exact, int nprobe, double *ms) {
    double start = progress_now();
    for (int64_t i = 0; i < r->n; i++) {
        const struct store_search how = {
            .k = (int)r->o->k, .exact = exact, .nprobe = nprobe, .exclude = r->exclude + i, .threads = r->threads};
        TRY(store_view_search(r->store.view, hits + i * r->o->k, r->queries + i * r->store.info.fingerprint.dim, 1,
                              &how));
    }
    *ms = (progress_now() - start) * 1000 / (double)r->n;
    return STATUS_OK;
}

/* Of one query: exact hits found again, their share of the softmax over the exact scores, and the mean score lost at
 * each rank. */
static void compare(struct figures *f, const struct store_hit *exact, const struct store_hit *found, int64_t k) {
    double total = 0, kept = 0, gap = 0;
    int64_t wanted = 0, hit = 0, both = 0;
    for (int64_t i = 0; i < k && exact[i].chunk >= 0; i++) {
        double weight = exp((double)exact[i].score - (double)exact[0].score);
        bool again = false;
        for (int64_t j = 0; j < k; j++)
            again |= found[j].chunk == exact[i].chunk;
        total += weight;
        kept += again ? weight : 0;
        hit += again;
        wanted++;
        if (found[i].chunk < 0) continue;
        gap += (double)exact[i].score - (double)found[i].score;
        both++;
    }
    f->recall += wanted > 0 ? (double)hit / (double)wanted : 1;
    f->mass += total > 0 ? kept / total : 1;
    f->gap += both > 0 ? gap / (double)both : 0;
}

static struct figures compare_all(const struct recall *r, double ms) {
    struct figures f = {.ms = ms};
    for (int64_t i = 0; i < r->n; i++)
        compare(&f, r->exact + i * r->o->k, r->found + i * r->o->k, r->o->k);
    f.recall /= (double)r->n;
    f.mass /= (double)r->n;
    f.gap /= (double)r->n;
    return f;
}

static void print_row(const struct recall *r, int nprobe, struct figures f, double exact_ms) {
    if (!r->o->json) {
        char name[24] = "default";
        if (nprobe > 0) snprintf(name, sizeof name, "%d", nprobe);
        printf("%-9s %10.4f %18.4f %12.6f %12.3f %12.3f\n", name, f.recall, f.mass, f.gap, f.ms, exact_ms);
        return;
    }
    struct json_writer w;
    json_write_open(&w, stdout, 0);
    json_write_object(&w);
    json_write_key(&w, "nprobe"), json_write_int(&w, nprobe);
    json_write_key(&w, "k"), json_write_int(&w, r->o->k);
    json_write_key(&w, "queries"), json_write_int(&w, r->n);
    json_write_key(&w, "recall"), json_write_double(&w, f.recall);
    json_write_key(&w, "softmax_mass_recall"), json_write_double(&w, f.mass);
    json_write_key(&w, "score_gap"), json_write_double(&w, f.gap);
    json_write_key(&w, "ms"), json_write_double(&w, f.ms);
    json_write_key(&w, "exact_ms"), json_write_double(&w, exact_ms);
    json_write_object_end(&w);
    fputc('\n', stdout);
}

static enum status allocate(struct recall *r) {
    void *memory;
    TRY(memory_allocate(&memory, (size_t)r->n * (size_t)r->store.info.fingerprint.dim, sizeof(float)));
    r->queries = memory;
    TRY(memory_allocate(&memory, (size_t)r->n, sizeof(struct store_range)));
    r->exclude = memory;
    TRY(memory_allocate(&memory, (size_t)(r->n * r->o->k), sizeof(struct store_hit)));
    r->exact = memory;
    TRY(memory_allocate(&memory, (size_t)(r->n * r->o->k), sizeof(struct store_hit)));
    r->found = memory;
    return STATUS_OK;
}

static enum status run(struct recall *r) {
    const struct options *o = r->o;
    TRY(opened_store_open(&r->store, o->store));
    TRY(threads_create(&r->threads, (int)o->threads));
    r->n = o->queries;
    fprintf(stderr,
            "drt-index recall: store %s (generation %llu, %lld chunks, index %s), k %lld, queries %lld, exclude %s, "
            "seed %lld, threads %d\n",
            o->store, (unsigned long long)r->store.info.generation, (long long)r->store.info.chunks,
            r->store.info.index, (long long)o->k, (long long)o->queries, o->exclude, (long long)o->seed,
            threads_count(r->threads));
    TRY(allocate(r));
    TRY(pick_queries(r));
    double exact_ms;
    TRY(search_all(r, r->exact, true, 0, &exact_ms));
    if (!o->json)
        printf("%-9s recall@%-3lld %18s %12s %12s %12s\n", "nprobe", (long long)o->k, "softmax-mass", "score gap",
               "ms/query", "exact ms");
    for (int i = 0; i < o->n_sweep; i++) {
        double ms;
        TRY(search_all(r, r->found, false, o->sweep[i], &ms));
        print_row(r, o->sweep[i], compare_all(r, ms), exact_ms);
    }
    return STATUS_OK;
}

/* "doc", "none" or "window=N"; "1,4,16" */
static bool parse_lists(struct options *o) {
    char *end;
    o->window = -1;
    if (strcmp(o->exclude, "none") == 0)
        o->window = -2;
    else if (strncmp(o->exclude, "window=", 7) == 0) {
        o->window = strtoll(o->exclude + 7, &end, 10);
        if (*end || end == o->exclude + 7 || o->window < 0) return false;
    } else if (strcmp(o->exclude, "doc") != 0)
        return false;
    for (const char *at = o->nprobe; o->n_sweep < SWEEP_MAX; at = end + 1) {
        long long value = strtoll(at, &end, 10);
        if (end == at || value < 0 || value > 1000000000 || (*end && *end != ',')) return false;
        o->sweep[o->n_sweep++] = (int)value;
        if (!*end) return true;
    }
    return false;
}

int drt_index_recall(int argc, char **argv, const char **operands) {
    struct options o = {.k = 8, .queries = 200, .exclude = "doc", .nprobe = "0", .seed = 1};
    const struct arg_option options[] = {
        {"store", ARG_STRING, &o.store, "STORE", "the store's folder", 0, 0},
        {"k", ARG_INT, &o.k, "N", "hits compared", 1, 10000},
        {"queries", ARG_INT, &o.queries, "N", "how many", 1, 1e6},
        {"nprobe", ARG_STRING, &o.nprobe, "N,N,...", "a line for each; 0: the index's default", 0, 0},
        {"exclude", ARG_STRING, &o.exclude, "doc|window=N|none",
         "chunks of the query's own document that may not be found", 0, 0},
        {"seed", ARG_INT, &o.seed, "N", "of the choice of queries", 0, 9e18},
        {"threads", ARG_INT, &o.threads, "N", "0: one for each processor", 0, 1024},
        {"json", ARG_FLAG, &o.json, NULL, "one JSON object a line", 0, 0},
    };
    const struct arg_program program = {
        .name = "drt-index recall",
        .synopsis = "--store STORE [options]",
        .about = "Compares the index with exact search. The queries are the landmarks of randomly chosen stored "
                 "chunks, without\n"
                 "their own document (see --exclude); a decoder's queries may be spread differently. Columns: the "
                 "share of the exact\n"
                 "k hits that the index finds; the share of their softmax weight that it keeps (what the model feels); "
                 "the mean score\n"
                 "lost at a rank; milliseconds a query, one query a call.",
        .examples = "  drt-index recall --store store --k 8 --nprobe 1,4,16,64\n",
        .options = options,
        .n_options = ARRAY_LEN(options),
    };
    int n, code = args_parse(&program, argc, argv, operands, &n);
    if (code >= 0) return code;
    if (!o.store) return drt_index_usage("recall", "--store STORE is missing");
    if (!parse_lists(&o))
        return drt_index_usage("recall",
                               "--exclude is doc, window=N or none; --nprobe is up to 32 numbers with commas");
    struct recall r = {.o = &o};
    enum status status = run(&r);
    memory_free(r.found);
    memory_free(r.exact);
    memory_free(r.exclude);
    memory_free(r.queries);
    threads_free(r.threads);
    opened_store_close(&r.store);
    return drt_index_exit(status);
}
