/* bench_device_corpus.c -- decoding with corpus retrieval over a corpus in memory of a device, beside the Base LM.
 *
 *   bench_device_corpus [--device cpu|cuda] [--chunks N] [--dim D] [--lists N] [--nprobe N] [--tokens N] [--store DIR]
 *                       [--queries N] [--json FILE] [search] [encode] [decode]
 *
 * The corpus: N chunks (20 million) whose landmarks are computed on the device (corpus_rows.h) and are in no file. A
 * store of N chunks of random ids is written to DIR (default: a folder in /dev/shm); its landmarks of 8 numbers are not
 * read. All other parts are those of the programs.
 *
 * search: time to make gpu-ivf; then milliseconds a call by number of queries (--queries: one number) and of lists,
 * with hits in this process's memory, and of gpu-flat; recall@8 of queries with the distribution of the rows.
 *
 * encode: microseconds for the chunks that one query found, from their ids to K and V.
 *
 * decode: a Base LM (12 layers, d D: 124M parameters at 768) and a DRT ([6, 6]), batch 1, logits in this process's
 * memory: microseconds a token with gpu-ivf and with gpu-flat, chunk ends (landmark, search, read, encode) included;
 * the cost of such an end, from the difference of mean and median; and the time that this process spends on its parts.
 *
 * CSV, a row a case. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "decoder/decoder.h"
#include "indexer/retrieve/retriever.h"
#include "tests/bench/corpus_rows.h"
#include "tests/bench/result.h"
#include "tests/test.h"

enum { CHUNK = 63, STORE_DIM = 8, DOCUMENT = 512, SHARD_DOCUMENTS = 2048, K = 8, VOCAB = 50265 };

struct options {
    const char *device, *store;
    int64_t chunks, dim, lists, nprobe, tokens, queries;
    bool search, encode, decode;
};

struct bench {
    struct options o;
    struct device *dev;
    enum dtype type;
    struct corpus_rows rows;
    struct flat_index *flat;
    struct list_index *lists;
    struct store *store;
    struct store_view *view;
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- the corpus ---- */

static enum status read_rows(void *context, struct device *dev, struct mat to, int64_t first) {
    return corpus_rows_fill(context, dev, to, first);
}

static struct landmark_source source(struct bench *b) {
    return (struct landmark_source){.rows = b->o.chunks, .dim = (int)b->o.dim, .read = read_rows, .context = &b->rows};
}

static void make_indexes(struct bench *b) {
    const struct list_index_config config = {
        .device = b->dev, .source = source(b), .lists = b->o.lists, .nprobe = (int)b->o.nprobe, .seed = 1};
    double start = clock_seconds();
    CHECK_OK(list_index_create(&b->lists, &config));
    struct list_index_info info = list_index_info(b->lists);
    printf("# gpu-ivf: %lld chunks, d %lld, %lld lists, %d visited, the largest %.1f times the mean, %.2f GiB; made in "
           "%.2f s\n",
           (long long)info.rows, (long long)b->o.dim, (long long)info.lists, info.nprobe,
           (double)info.largest * (double)info.lists / (double)info.rows, (double)list_index_bytes(&config) / (1 << 30),
           clock_seconds() - start);
    CHECK_OK(flat_index_create(&b->flat, &(struct flat_index_config){.device = b->dev, .source = source(b)}));
    fflush(stdout);
}

static void store_shard(struct store_writer *w, struct rng *rng, int64_t first, int64_t end, const float *rows) {
    static int32_t ids[DOCUMENT * CHUNK];
    CHECK_OK(store_shard_begin(w));
    for (int64_t at = first; at < end; at += DOCUMENT) {
        int64_t n = end - at < DOCUMENT ? end - at : DOCUMENT;
        struct store_new_document d = {.ids = ids, .n_ids = (size_t)(n * CHUNK), .source = "random", .key = ""};
        bool duplicate;
        uint64_t x = rng_u64(rng);
        for (int64_t i = 0; i < n * CHUNK; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            ids[i] = (int32_t)((x >> 33) * 50000 >> 31);
        }
        memcpy(d.hash, &at, sizeof at);
        CHECK_OK(store_shard_document(w, &d, &duplicate));
        CHECK(!duplicate);
        CHECK_OK(store_shard_landmarks(w, rows, n));
    }
    CHECK_OK(store_shard_seal(w, "", 0));
}

static void open_store(struct bench *b) {
    static const float rows[DOCUMENT * STORE_DIM];
    struct store_writer_config config = {.fingerprint = {.chunk_tokens = CHUNK, .dim = STORE_DIM, .vocab_size = VOCAB}};
    struct store_writer *w;
    struct rng rng = rng_make(1, 5);
    double start = clock_seconds();
    CHECK_OK(store_writer_open(&w, b->o.store, &config, true));
    for (int64_t at = 0; at < b->o.chunks; at += SHARD_DOCUMENTS * DOCUMENT) {
        int64_t left = b->o.chunks - at;
        store_shard(w, &rng, at, at + (left < SHARD_DOCUMENTS * DOCUMENT ? left : SHARD_DOCUMENTS * DOCUMENT), rows);
    }
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "exact"}));
    store_writer_close(w);
    CHECK_OK(store_open(&b->store, b->o.store));
    CHECK_OK(store_view_open(&b->view, b->store));
    printf("# store of %lld chunks written in %.1f s\n", (long long)b->o.chunks, clock_seconds() - start);
}

/* ---- search ---- */

/* Median of calls of n queries; nprobe 0: gpu-flat. */
static double search_time(struct bench *b, struct mat queries, int nprobe) {
    enum { CALLS = 15 };
    static struct store_hit hits[1024 * K];
    double took[CALLS];
    int calls = (nprobe ? 16 * nprobe : b->o.chunks / 1000) * queries.rows > 100000 ? 3 : CALLS;
    for (int i = -1; i < calls; i++) {
        double start = clock_seconds();
        if (nprobe)
            CHECK_OK(list_index_search(b->lists, hits, queries, K, nprobe, NULL));
        else
            CHECK_OK(flat_index_search(b->flat, hits, queries, K, NULL));
        if (i >= 0) took[i] = clock_seconds() - start;
    }
    qsort(took, (size_t)calls, sizeof *took, compare);
    struct figure f = {.unit = "ms", .values = took, .count = calls, .scale = 1e3};
    if (nprobe)
        result_figure(&f, "gpu-ivf, %lld queries, %d lists visited", (long long)queries.rows, nprobe);
    else
        result_figure(&f, "gpu-flat, %lld queries", (long long)queries.rows);
    return took[calls / 2];
}

static double recall(struct bench *b, struct mat queries, int nprobe) {
    static struct store_hit exact[1024 * K], found[1024 * K];
    int64_t again = 0;
    CHECK_OK(flat_index_search(b->flat, exact, queries, K, NULL));
    CHECK_OK(list_index_search(b->lists, found, queries, K, nprobe, NULL));
    for (int64_t i = 0; i < queries.rows * K; i++)
        for (int64_t j = i / K * K; j < i / K * K + K; j++)
            again += exact[i].chunk == found[j].chunk;
    return (double)again / (double)(queries.rows * K);
}

static void search(struct bench *b) {
    static const int64_t counts[] = {1, 4, 16, 32, 64, 256, 1024};
    static const int probes[] = {32, 128, 256, 512};
    struct mat queries = mat_dense(NULL, DTYPE_F32, 1024, b->o.dim);
    CHECK_OK(device_allocate(b->dev, &queries.data, (size_t)(queries.rows * queries.cols) * sizeof(float)));
    CHECK_OK(corpus_rows_fill(&b->rows, b->dev, queries, b->o.chunks)); /* rows that are not in the corpus */
    double bytes =
        (double)landmark_source_bytes(&(struct landmark_source){.rows = b->o.chunks, .dim = (int)b->o.dim}, b->dev);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        if (b->o.queries && b->o.queries != counts[i]) continue;
        double flat = search_time(b, mat_rows(queries, 0, counts[i]), 0);
        printf("search,gpu-flat,%lld queries,%.3f ms,%.2f TB/s\n", (long long)counts[i], flat * 1e3,
               bytes / flat * 1e-12);
        for (size_t p = 0; p < ARRAY_LEN(probes); p++) {
            double took = search_time(b, mat_rows(queries, 0, counts[i]), probes[p]);
            printf("search,gpu-ivf,%lld queries,%.3f ms,%d lists\n", (long long)counts[i], took * 1e3, probes[p]);
        }
        fflush(stdout);
    }
    for (size_t p = 0; p < ARRAY_LEN(probes); p++) {
        double found = recall(b, queries, probes[p]);
        printf("recall@8,%d lists,%.4f\n", probes[p], found);
        result_value("recall@8", found, "gpu-ivf, %d lists visited", probes[p]);
    }
    device_release(b->dev, queries.data);
}

/* ---- decoding ---- */

struct model {
    struct model_config config;
    struct params *params;
    struct weights weights;
    struct decoder *decoder;
    struct encoder *encoder;
};

static void make_params(const struct bench *b, struct model *m, bool base) {
    char text[700];
    snprintf(text, sizeof text,
             "{\"vocab_size\": %d, \"hidden_size\": %lld, \"intermediate_size\": %lld, \"num_attention_heads\": %lld, "
             "\"slide_window\": 512, \"rms_norm_eps\": 1e-5, \"decoder_layers\": [%s]%s}",
             VOCAB, (long long)b->o.dim, (long long)(b->o.dim == 768 ? 2048 : b->o.dim * 8 / 3 / 64 * 64),
             (long long)b->o.dim / 64, base ? "12" : "6, 6",
             base ? ""
                  : ", \"encoder_layers\": 2, \"enc_chunk_size\": 63, \"chunk_topk\": 8, \"chunk_id\": 50264, "
                    "\"mask_id\": 50263, "
                    "\"pad_id\": 50262, \"encoder_input\": \"tokens\"");
    *m = (struct model){0};
    CHECK_OK(model_config_parse(&m->config, "bench", text, strlen(text)));
    CHECK_OK(params_init(&m->params, &m->config, 1));
}

static void open_model(struct bench *b, struct model *m) {
    CHECK_OK(weights_open(&m->weights, b->dev, m->params, b->type));
    CHECK_OK(decoder_create(&m->decoder, b->dev, &m->config, &m->weights, 0));
    if (!m->config.base_lm) CHECK_OK(encoder_create(&m->encoder, b->dev, &m->config, &m->weights, 256));
}

static void drop_model(struct bench *b, struct model *m) {
    encoder_free(m->encoder);
    decoder_free(m->decoder);
    weights_release(&m->weights, b->dev);
    params_free(m->params);
}

static void encode(struct bench *b) {
    enum { CALLS = 31 };
    struct model m;
    struct encoder_output out = {0};
    struct rng rng = rng_make(1, 2);
    int32_t ids[K * CHUNK], slot[K];
    make_params(b, &m, false);
    open_model(b, &m);
    out.keys = out.values = mat_dense(NULL, b->type, (int64_t)K * (CHUNK + 1), b->o.dim);
    size_t bytes = (size_t)(out.keys.rows * out.keys.cols * dtype_bytes(b->type));
    CHECK_OK(device_allocate(b->dev, &out.keys.data, bytes));
    CHECK_OK(device_allocate(b->dev, &out.values.data, bytes));
    out.slot = slot;
    for (int i = 0; i < K * CHUNK; i++)
        ids[i] = (int32_t)rng_below(&rng, VOCAB - 8);
    for (int n = 1; n <= K; n *= 2) {
        double took[CALLS];
        for (int i = -3; i < CALLS; i++) { /* recorded in the second call */
            for (int j = 0; j < n; j++)
                slot[j] = (i + 3 + j) % K;
            double start = clock_seconds();
            encoder_encode(m.encoder, &out, ids, n);
            double issued = clock_seconds();
            CHECK_OK(device_sync(b->dev));
            if (i >= 0) took[i] = clock_seconds() - start;
            if (i == CALLS - 1) printf("encode,%d chunks,issued in %.1f us", n, (issued - start) * 1e6);
        }
        qsort(took, CALLS, sizeof *took, compare);
        printf(",%.1f us median,%.1f best\n", took[CALLS / 2] * 1e6, took[0] * 1e6);
        struct figure f = {.unit = "us", .values = took, .count = CALLS, .scale = 1e6};
        result_figure(&f, "encode %d retrieved chunks", n);
    }
    fflush(stdout);
    device_release(b->dev, out.keys.data);
    device_release(b->dev, out.values.data);
    drop_model(b, &m);
}

/* Seconds a token, chunk ends included. */
static double decode_run(struct bench *b, struct model *m, const char *what, struct retriever *r, double base,
                         int round) {
    enum { PROMPT = 1008 };
    struct decoder_state *s;
    struct rng rng = rng_make(1, 0);
    int64_t n = b->o.tokens;
    int32_t *ids = malloc((size_t)(PROMPT + n) * sizeof *ids);
    double *took = malloc((size_t)n * sizeof *took);
    float *logits;
    CHECK(ids && took);
    CHECK_OK(device_allocate_host(b->dev, &logits, (size_t)VOCAB));
    for (int64_t i = 0; i < PROMPT + n; i++)
        ids[i] = (int32_t)rng_below(&rng, VOCAB - 8);
    CHECK_OK(decoder_state_create(&s, m->decoder, r));
    struct decoder_output out = {.logits = logits};
    CHECK_OK(decoder_forward(s, &out, ids, PROMPT));
    struct chunk_retriever_times before = {0}, after = {0};
    if (r) before = chunk_retriever_times(r);
    double start = clock_seconds();
    for (int64_t i = 0; i < n; i++) {
        double at = clock_seconds();
        CHECK_OK(decoder_forward(s, &out, ids + PROMPT + i, 1));
        took[i] = clock_seconds() - at;
    }
    double mean = (clock_seconds() - start) / (double)n;
    if (r) after = chunk_retriever_times(r);
    qsort(took, (size_t)n, sizeof *took, compare);
    printf("decode,%s,%.1f us mean,%.1f median,%.1f best,%.1f worst", what, mean * 1e6, took[n / 2] * 1e6,
           took[0] * 1e6, took[n - 1] * 1e6);
    if (base > 0) printf(",%.3f times the Base LM", mean / base);
    double queries = (double)(after.queries - before.queries);
    if (queries > 0)
        printf(
            ",a chunk end beside its tokens: %.1f us,here: search %.1f us read %.1f encode %.1f hits %.1f misses %.1f",
            (mean - took[n / 2]) * (double)n / queries * 1e6, (after.search - before.search) / queries * 1e6,
            (after.read - before.read) / queries * 1e6, (after.encode - before.encode) / queries * 1e6,
            (double)(after.cache_hits - before.cache_hits) / queries,
            (double)(after.cache_misses - before.cache_misses) / queries);
    printf("\n");
    fflush(stdout);
    if (strcmp(what, "warm-up") != 0) {
        struct figure f = {.unit = "us",
                           .values = &mean,
                           .count = 1,
                           .scale = 1e6,
                           .peer = base > 0 ? "Base LM" : NULL,
                           .ratio = base > 0 ? base / mean : 0};
        result_figure(&f, "token, mean with chunk ends, %s, round %d", what, round + 1);
    }
    decoder_state_free(s);
    device_release_host(b->dev, logits);
    free(ids), free(took);
    return mean;
}

/* Steps that take ten seconds each, in parallel. */
struct preparation {
    struct bench *b;
    struct model *base, *drt;
};
static void prepare(void *context, int64_t begin, int64_t end, int worker) {
    const struct preparation *p = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        if (i == 0)
            open_store(p->b);
        else
            make_params(p->b, i == 1 ? p->base : p->drt, i == 1);
}

static void decode(struct bench *b) {
    struct model base, drt;
    struct preparation p = {b, &base, &drt};
    threads_for(b->dev->threads, 3, 1, prepare, &p);
    open_model(b, &base);
    open_model(b, &drt);
    decode_run(b, &base, "warm-up", NULL, 0, 0);
    for (int round = 0; round < 2; round++) {
        double alone = decode_run(b, &base, "base", NULL, 0, round);
        decode_run(b, &drt, "drt without retrieval", NULL, alone, round);
        for (int flat = 0; flat < 2; flat++) {
            struct retriever *r;
            struct searcher *searcher;
            CHECK_OK(searcher_open(&searcher, &(struct searcher_config){.kind = flat ? SEARCHER_FLAT : SEARCHER_LISTS,
                                                                        .device = b->dev,
                                                                        .view = b->view,
                                                                        .flat = b->flat,
                                                                        .lists = b->lists}));
            const struct chunk_retriever_config how = {.device = b->dev,
                                                       .model = &drt.config,
                                                       .encoder = drt.encoder,
                                                       .corpus = b->view,
                                                       .searcher = searcher,
                                                       .cache_chunks = 64,
                                                       .max_queries = 1,
                                                       .exclude_document = -1};
            CHECK_OK(chunk_retriever_create(&r, &how));
            decode_run(b, &drt, flat ? "drt corpus gpu-flat" : "drt corpus gpu-ivf", r, alone, round);
            r->free(r);
            searcher_close(searcher);
        }
    }
    drop_model(b, &base);
    drop_model(b, &drt);
    store_view_close(b->view);
    store_close(b->store);
}

static bool parse(struct options *o, int argc, char **argv) {
    *o = (struct options){.device = "cpu", .store = "/dev/shm/bench_device_corpus", .dim = 768, .tokens = 1008};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "search") == 0) {
            o->search = true;
        } else if (strcmp(argv[i], "encode") == 0) {
            o->encode = true;
        } else if (strcmp(argv[i], "decode") == 0) {
            o->decode = true;
        } else {
            const struct {
                const char *name;
                int64_t *to;
            } numbers[] = {{"--chunks", &o->chunks}, {"--dim", &o->dim},         {"--lists", &o->lists},
                           {"--nprobe", &o->nprobe}, {"--queries", &o->queries}, {"--tokens", &o->tokens}};
            if (i + 1 == argc) return false;
            bool known = false;
            if (strcmp(argv[i], "--device") == 0) o->device = argv[i + 1], known = true;
            if (strcmp(argv[i], "--store") == 0) o->store = argv[i + 1], known = true;
            for (size_t j = 0; j < ARRAY_LEN(numbers); j++)
                if (strcmp(argv[i], numbers[j].name) == 0)
                    *numbers[j].to = strtoll(argv[i + 1], NULL, 10), known = true;
            if (!known) return false;
            i++;
        }
    }
    return (o->search || o->encode || o->decode) && o->tokens > 0 && o->dim >= 64 && o->dim % 64 == 0;
}

int main(int argc, char **argv) {
    struct bench b = {0};
    result_begin("bench_device_corpus", &argc, argv);
    if (!parse(&b.o, argc, argv)) {
        fprintf(stderr,
                "usage: bench_device_corpus [--device cpu|cuda] [--chunks N] [--dim D] [--lists N] [--nprobe N] "
                "[--tokens N] [--store DIR] [--queries N] [--json FILE] [search] [encode] [decode]\n");
        return 2;
    }
    enum status status = device_open(&b.dev, b.o.device, 0);
    if (status == STATUS_UNSUPPORTED) test_skip(status_message());
    CHECK_OK(status);
    if (!b.dev->shares_memory) result_gpu(NULL);
    b.type = b.dev->shares_memory ? DTYPE_F32 : DTYPE_BF16;
    if (b.o.chunks <= 0) b.o.chunks = b.dev->shares_memory ? 20000 : 20000000;
    b.rows = (struct corpus_rows){.clusters = b.o.chunks / 100 + 1, .noise = 0.7f, .seed = 1};
    if (b.o.search || b.o.decode) make_indexes(&b);
    if (b.o.encode) encode(&b);
    if (b.o.decode) decode(&b);
    if (b.o.search) search(&b);
    CHECK_OK(device_sync(b.dev));
    flat_index_free(b.flat);
    list_index_free(b.lists);
    device_close(b.dev);
    result_end();
    return 0;
}
