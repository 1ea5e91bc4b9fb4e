/* bench_hybrid.c -- the parts of a hybrid search of one query on a CPU: words, lists, merging.
 *
 *   bench_hybrid --make STORE TOKENS.u16 [dim (384)]
 *   bench_hybrid MODEL STORE TOKENS.u16 [threads (2)] [k (8)] [queries (200)] [--json FILE]
 *
 * The first form makes a store of a token file (drt-tokenizer encode, end of document 0), with a lexical index and an
 * index of lists. No model makes its landmarks, since that takes hours on a CPU: a landmark is the mean of one random
 * vector for each token. So it is for times, not for recall. drt-index build --model MODEL makes a store with the
 * landmarks of MODEL.
 *
 * The second form measures a running text: a query is the last 128 ids, and 16 ids later follows the next one, as a
 * token memory searches. Its vector is made of the states that MODEL, a Base LM, has computed for the text anyway: only
 * their mean is timed (session/memory_search.h). The lists get it if MODEL made the store's landmarks, or else a vector
 * as the store's rows are. Parts take turns on the same query, after all queries once, so that the pages
 * of the store are mapped. "merging" is the whole search without its parts: exact scores, merging, BM25 of the hits. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "indexer/landmarks/state_landmarks.h"
#include "indexer/search/clustering.h"
#include "indexer/search/searcher.h"
#include "session/memory_search.h"
#include "session/model_folder.h"
#include "tests/bench/result.h"
#include "tests/test.h"
#include <math.h>
#include <time.h>

enum { LENGTH = 128, EVERY = 16, TEXT = 20 * EVERY, CHUNK = 63, VOCAB = 1 << 16, SHARD_CHUNKS = 1 << 14 };

struct tokens {
    int32_t *ids;
    int64_t n;
};

static struct tokens read_tokens(const char *path) {
    struct file_map map;
    struct tokens t;
    CHECK_OK(file_map(&map, path));
    t.n = (int64_t)map.size / 2;
    CHECK_OK(memory_allocate(&t.ids, (size_t)t.n));
    for (int64_t i = 0; i < t.n; i++)
        t.ids[i] = map.data[2 * i] | map.data[2 * i + 1] << 8;
    file_unmap(&map);
    return t;
}

/* One random row for each token: uniform numbers, whose mean is 0. */
static float *make_rows(int dim) {
    float *rows;
    struct rng r = rng_make(5, 1);
    CHECK_OK(memory_allocate(&rows, (size_t)VOCAB * (size_t)dim));
    for (int64_t i = 0; i < (int64_t)VOCAB * dim; i++)
        rows[i] = rng_uniform(&r) - 0.5f;
    return rows;
}

static void make_landmark(float *out, const float *rows, int dim, const int32_t *ids, int64_t n) {
    double square = 0;
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < dim; j++)
            out[j] += rows[(int64_t)ids[i] * dim + j];
    for (int j = 0; j < dim; j++)
        square += (double)out[j] * (double)out[j];
    for (int j = 0; j < dim; j++)
        out[j] = square > 0 ? (float)((double)out[j] / sqrt(square)) : 0;
}

/* ---- a store ---- */

static void make_document(struct store_writer *w, const float *rows, int dim, const int32_t *ids, int64_t n) {
    static int64_t number;
    float *row;
    struct store_new_document d = {.ids = ids, .n_ids = (size_t)n, .source = "bench", .key = "document"};
    bool duplicate;
    number++;
    memcpy(d.hash, &number, sizeof number);
    CHECK_OK(memory_allocate(&row, (size_t)dim));
    CHECK_OK(store_shard_document(w, &d, &duplicate));
    for (int64_t at = 0; at < n; at += CHUNK) {
        make_landmark(row, rows, dim, ids + at, n - at < CHUNK ? n - at : CHUNK);
        CHECK_OK(store_shard_landmarks(w, row, 1));
    }
    memory_free(row);
}

static void make_store(const char *dir, const char *path, int dim) {
    const struct tokens t = read_tokens(path);
    float *rows = make_rows(dim);
    struct store_writer *w;
    struct device *device;
    struct store_writer_config config = {.fingerprint = {.chunk_tokens = CHUNK, .dim = dim, .vocab_size = VOCAB},
                                         .landmarks = STORE_LANDMARKS_F16};
    CHECK_OK(device_open(&device, "cpu", 0));
    CHECK_OK(store_writer_open(&w, dir, &config, true));
    CHECK_OK(store_shard_begin(w));
    for (int64_t begin = 0, at = 0; at < t.n; at++) {
        if (t.ids[at] != 0 && at + 1 < t.n) continue;
        if (at > begin) make_document(w, rows, dim, t.ids + begin, at - begin);
        begin = at + 1;
        if (store_shard_chunks(w) < SHARD_CHUNKS && begin < t.n) continue;
        CHECK_OK(store_shard_seal(w, NULL, 0));
        if (begin < t.n) CHECK_OK(store_shard_begin(w));
    }
    CHECK_OK(store_writer_publish(w, &(struct store_publish){.index = "IVF4096_HNSW32,SQ8",
                                                             .lexical = STORE_LEXICAL_ON,
                                                             .max_ram = UINT64_C(4) << 30,
                                                             .threads = device->threads,
                                                             .clustering = clustering_on(device)}));
    store_writer_close(w);
    device_close(device);
    memory_free(rows);
    memory_free(t.ids);
}

/* ---- searches ---- */

enum part { WORDS, VECTOR, LISTS, WHOLE, PARTS };
struct bench {
    struct device *device;
    struct store_view *view;
    struct state_landmarks *states;
    struct searcher *searchers[PARTS]; /* of VECTOR: NULL */
    struct samples samples[PARTS], processor[PARTS], merging;
    struct store_info info;
    int layers;
    struct decoder *decoder;
    struct mat keys; /* [LENGTH, d]: states of the query's text */
    float *rows, *made, *state;
    const float *vector; /* of the lists: state, or made as the store's landmarks were */
    struct store_hit *hits;
    int k, depth;
};

/* Processor time of all threads: the cost of a part if other programs run, too. */
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void hybrid_part(struct bench *b, enum part part, const int32_t *ids, double *seconds, double *processor) {
    const struct lexical_query tokens = {ids, LENGTH};
    const struct searcher_query q = {.n = 1,
                                     .k = part == WHOLE ? b->k : b->depth,
                                     .vectors = b->vector,
                                     .tokens = &tokens,
                                     .bm25 = part != LISTS,
                                     .landmark_weight = STATE_LANDMARKS_COSINE * sqrtf((float)b->info.fingerprint.dim)};
    const struct state_text text = {b->keys, LENGTH - MEMORY_STATES, MEMORY_STATES, ids, LENGTH};
    const double begin = clock_seconds(), used = processor_seconds();
    if (part == VECTOR || part == WHOLE) state_landmarks_of_text(b->states, b->state, &text, STATE_QUERY_NO_SKETCH);
    if (part != VECTOR) CHECK_OK(searcher_search(b->searchers[part], b->hits, &q));
    *seconds = clock_seconds() - begin;
    *processor = processor_seconds() - used;
}

/* The states of the text, which are not timed: a model that generates has them. */
static void hybrid_text(struct bench *b, const int32_t *ids) {
    struct decoder_state *state;
    const struct decoder_output out = {.keys = b->keys, .key_layer = b->layers, .states = true};
    CHECK_OK(decoder_state_create(&state, b->decoder, NULL));
    CHECK_OK(decoder_forward(state, &out, ids, LENGTH));
    decoder_state_free(state);
}

static void hybrid_queries(struct bench *b, const struct tokens *t, int queries) {
    const int dim = b->info.fingerprint.dim;
    const int64_t texts = (queries + TEXT / EVERY - 1) / (TEXT / EVERY);
    for (int q = -queries; q < queries; q++) {
        const int64_t n = q < 0 ? q + queries : q, step = TEXT / EVERY;
        const int32_t *ids = t->ids + (t->n - LENGTH - TEXT) / texts * (n / step) + n % step * EVERY;
        double took[PARTS], used[PARTS];
        make_landmark(b->made, b->rows, dim, ids + LENGTH - CHUNK, CHUNK);
        hybrid_text(b, ids);
        for (int part = 0; part < PARTS; part++)
            hybrid_part(b, (enum part)part, ids, &took[part], &used[part]);
        if (q < 0) continue;
        for (int part = 0; part < PARTS; part++) {
            samples_add(&b->samples[part], took[part]);
            samples_add(&b->processor[part], used[part]);
        }
        samples_add(&b->merging, took[WHOLE] - took[WORDS] - took[VECTOR] - took[LISTS]);
    }
}

static void hybrid_report(const char *name, const struct samples *s, const struct samples *processor,
                          const char *text) {
    result_figure(&(struct figure){.unit = "ms", .values = s->at, .count = s->count, .scale = 1e3}, "%s", name);
    printf("%s,p10 %.2f ms,p50 %.2f ms,p90 %.2f ms", name, 1e3 * samples_quantile(s->at, s->count, 0.1),
           1e3 * samples_quantile(s->at, s->count, 0.5), 1e3 * samples_quantile(s->at, s->count, 0.9));
    if (processor) printf(",processor p50 %.2f ms", 1e3 * samples_quantile(processor->at, processor->count, 0.5));
    printf("%s%s\n", *text ? "," : "", text);
}

static void hybrid_run(char **argv, int threads, int k, int queries) {
    static const enum searcher_kind kinds[PARTS] = {
        [WORDS] = SEARCHER_LEXICAL, [LISTS] = SEARCHER_STORE, [WHOLE] = SEARCHER_HYBRID};
    static const char *const names[PARTS] = {"words", "query vector", "lists", "hybrid search"};
    const char *model = argv[1], *store = argv[2], *tokens = argv[3];
    struct bench b = {.k = k, .depth = 4 * k < 64 ? 64 : 4 * k};
    struct model_folder folder;
    struct weights weights;
    struct chunk_tower tower;
    struct store *s;
    uint8_t encoder[16];
    struct tokens t = read_tokens(tokens);
    CHECK_OK(device_open(&b.device, "cpu", threads));
    CHECK_OK(model_folder_open(&folder, model));
    CHECK(folder.config.base_lm);
    CHECK_OK(weights_open(&weights, b.device, folder.params, DTYPE_F32));
    CHECK_OK(chunk_tower_open(&tower, b.device, &folder.config, &weights));
    b.states = tower.states;
    b.decoder = tower.decoder;
    b.layers = model_config_layers(&folder.config);
    b.keys = mat_f32(NULL, LENGTH, folder.config.hidden);
    CHECK_OK(device_allocate(b.device, &b.keys.data, mat_bytes(b.keys)));
    CHECK_OK(store_open(&s, store));
    CHECK_OK(store_view_open(&b.view, s));
    store_view_info(b.view, &b.info);
    b.rows = make_rows(b.info.fingerprint.dim);
    CHECK_OK(memory_allocate(&b.made, (size_t)b.info.fingerprint.dim));
    CHECK_OK(memory_allocate(&b.state, (size_t)folder.config.hidden));
    params_landmark_fingerprint(folder.params, encoder);
    const bool own = memcmp(encoder, b.info.fingerprint.encoder, sizeof encoder) == 0;
    b.vector = own ? b.state : b.made;
    CHECK_OK(memory_allocate(&b.hits, (size_t)b.depth));
    for (int part = 0; part < PARTS; part++) {
        const struct searcher_config config = {.kind = kinds[part], .device = b.device, .view = b.view};
        if (part != VECTOR) CHECK_OK(searcher_open(&b.searchers[part], &config));
    }
    printf("store,%lld chunks,dim %d,%s,%d threads,k %d\n", (long long)b.info.chunks, b.info.fingerprint.dim,
           own ? "landmarks of the model" : "landmarks that stand in", threads, k);
    hybrid_queries(&b, &t, queries);
    for (int part = 0; part < PARTS; part++)
        hybrid_report(names[part], &b.samples[part], &b.processor[part],
                      part == VECTOR ? "" : searcher_describe(b.searchers[part], k, 0).text);
    hybrid_report("merging", &b.merging, NULL, "");
    for (int part = 0; part < PARTS; part++) {
        searcher_close(b.searchers[part]);
        samples_free(&b.samples[part]);
        samples_free(&b.processor[part]);
    }
    samples_free(&b.merging);
    device_release(b.device, b.keys.data);
    memory_free(b.rows);
    memory_free(b.made);
    memory_free(b.state);
    memory_free(b.hits);
    memory_free(t.ids);
    store_view_close(b.view);
    store_close(s);
    chunk_tower_close(&tower);
    weights_release(&weights, b.device);
    model_folder_close(&folder);
    device_close(b.device);
}

int main(int argc, char **argv) {
    result_begin("bench_hybrid", &argc, argv);
    if (argc > 3 && strcmp(argv[1], "--make") == 0) {
        make_store(argv[2], argv[3], argc > 4 ? atoi(argv[4]) : 384);
        return 0;
    }
    if (argc < 4) {
        fprintf(stderr, "usage: bench_hybrid MODEL STORE TOKENS.u16 [threads] [k] [queries] [--json FILE]\n"
                        "       bench_hybrid --make STORE TOKENS.u16 [dim]\n");
        return 2;
    }
    hybrid_run(argv, argc > 4 ? atoi(argv[4]) : 2, argc > 5 ? atoi(argv[5]) : 8, argc > 6 ? atoi(argv[6]) : 200);
    result_end();
    return 0;
}
