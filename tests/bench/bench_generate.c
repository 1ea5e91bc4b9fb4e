/* bench_generate.c -- time per token of decoding, by stage, against a lower bound: reading each weight once a token.
 *
 *   bench_generate MODEL [TOKENS [PROMPT[,PROMPT...] [STORE]]] [--json FILE]
 *
 * PROMPT: ids prefilled before; the rows come once for each. STORE: adds the modes "corpus" and "both". CSV, a row for
 * each mode: mode, tokens, ms per token (mean, median, best) and its parts, the bound, best over bound. On a busy
 * machine only the best is meaningful. Ids are random: the time does not depend on them, except that few retrieved
 * chunks are found in the cache.
 *
 *   bench_generate MODEL --ratio STORE [CHUNKS [THREADS [f32]]] [--json FILE]
 *
 * The cost of corpus retrieval, for a machine with other work on it: two texts are decoded id by id in turns, a chunk
 * of the one without retrieval, a chunk of the other with it, so that both run under the same load. Each chunk's time
 * includes its end: query, search, reading and encoding. The ids are a document of the store, which is excluded from
 * the search. CSV: medians of ms a token over the chunks, their ratio, and the quartiles of the ratios of pairs; a row
 * by wall-clock time, and one by processor time, which other programs disturb less (one thread: waiting does not
 * count). f32: every weight is read as float32; else as bf16 if that is exact (model/weights.h), as in drt-generate.
 *
 *   bench_generate MODEL --batch [CHUNKS [THREADS [PROMPT]]] [--json FILE]
 *
 * Several texts together against the same texts one by one: in each round each text of one set takes an id by
 * decoder_forward, and those of the other set by decoder_batch_forward, in turns. CSV: a row for each number of texts,
 * with medians and bests of a round's ms, ends of chunks included in the mean, and their ratios. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "decoder/batch/decoder_batch.h"
#include "indexer/retrieve/retriever.h"
#include "tests/bench/result.h"
#include "tests/test.h"
#include <time.h>

struct model {
    struct device *dev;
    struct model_config config;
    struct params *params;
    struct weights weights;
    struct encoder *encoder;
    struct decoder *decoder;
};

static void load(struct model *m, const char *folder, int threads, bool narrow) {
    char path[FILE_PATH_MAX];
    struct safetensors *file;
    CHECK_OK(device_open(&m->dev, "cpu", threads));
    CHECK_OK(model_config_load(&m->config, folder));
    CHECK_OK(file_join(path, folder, "model.safetensors"));
    CHECK_OK(safetensors_open(&file, path));
    CHECK_OK(params_load(&m->params, &m->config, file));
    safetensors_close(file);
    CHECK_OK(weights_open(&m->weights, m->dev, m->params, m->dev->shares_memory ? DTYPE_F32 : DTYPE_BF16));
    if (narrow && m->dev->shares_memory) CHECK_OK(weights_narrow(&m->weights, m->dev, decoder_reads));
    CHECK_OK(decoder_create(&m->decoder, m->dev, &m->config, &m->weights, 0));
    if (!m->config.base_lm) CHECK_OK(encoder_create(&m->encoder, m->dev, &m->config, &m->weights, 256));
}

struct stream {
    const float *data;
    float *sums;
};

static void sum_range(void *context, int64_t begin, int64_t end, int worker) {
    typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
    const struct stream *s = context;
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = begin;
    for (; i + 64 <= end; i += 64) {
        a += *(const lanes *)(s->data + i);
        b += *(const lanes *)(s->data + i + 16);
        c += *(const lanes *)(s->data + i + 32);
        d += *(const lanes *)(s->data + i + 48);
    }
    a += b + c + d;
    for (int j = 0; j < 16; j++)
        s->sums[worker * 16] += a[j];
}

/* Seconds to read all decoder weights once with all threads: the best of some passes. */
static double bound_seconds(const struct model *m, double *megabytes) {
    float *sums = calloc((size_t)threads_count(m->dev->threads) * 16, sizeof *sums);
    double best = 1e9;
    for (int pass = 0; pass < 10; pass++) {
        double start = clock_seconds(), bytes = 0;
        for (int i = 0; i < params_count(m->params); i++) {
            const struct param *p = params_at(m->params, i);
            if (!decoder_reads(p->name) || p->rows == 1) continue;
            struct stream s = {p->data, sums};
            int64_t n = p->rows * p->cols;
            threads_for(m->dev->threads, n, n / threads_count(m->dev->threads) + 1, sum_range, &s);
            bytes += (double)n * sizeof(float);
        }
        double seconds = clock_seconds() - start;
        best = seconds < best ? seconds : best;
        *megabytes = bytes / 1e6;
    }
    volatile float sink = sums[0];
    (void)sink;
    free(sums);
    return best;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_mode(const struct model *m, const char *mode, struct retriever *r, int64_t prompt, int64_t tokens,
                     double bound) {
    struct decoder_state *s;
    CHECK_OK(decoder_state_create(&s, m->decoder, r));
    struct rng rng = rng_make(1, 0);
    int64_t n = prompt > tokens ? prompt : tokens;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    float *logits = malloc((size_t)m->config.vocab_size * sizeof *logits);
    double *took = malloc((size_t)tokens * sizeof *took);
    CHECK(ids && logits && took);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)m->config.vocab_size - 8);
    struct decoder_output out = {.logits = logits};
    double start = clock_seconds();
    CHECK_OK(decoder_forward(s, &out, ids, prompt));
    double prefill = clock_seconds() - start;
    decoder_state_times(s, true);
    start = clock_seconds();
    for (int64_t i = 0; i < tokens; i++) {
        double before = clock_seconds();
        CHECK_OK(decoder_forward(s, &out, ids + i, 1));
        took[i] = (clock_seconds() - before) * 1e3;
    }
    double each = 1e3 / (double)tokens, total = (clock_seconds() - start) * each;
    struct decoder_times t = decoder_state_times(s, true);
    qsort(took, (size_t)tokens, sizeof *took, compare);
    printf("%s,%lld,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.2f,%.1f\n", mode, (long long)tokens, total,
           took[tokens / 2], took[0], t.layers * each, t.fuse * each, t.head * each, t.query * each, t.retrieve * each,
           bound * 1e3, took[0] / (bound * 1e3), (double)prompt / prefill);
    result_value("ms", total, "token, mean with chunk ends, %s, after %lld tokens", mode, (long long)prompt);
    result_figure(&(struct figure){.unit = "ms",
                                   .values = took,
                                   .count = tokens,
                                   .peer = "weights read once",
                                   .ratio = bound * 1e3 / took[tokens / 2]},
                  "token, %s, after %lld tokens", mode, (long long)prompt);
    decoder_state_free(s);
    free(ids), free(logits), free(took);
}

static void run_retrieval(const struct model *m, const char *mode, bool own_past, struct store_view *corpus,
                          int64_t prompt, int64_t tokens, double bound) {
    struct chunk_retriever_config how = {.device = m->dev,
                                         .model = &m->config,
                                         .encoder = m->encoder,
                                         .own_past = own_past,
                                         .corpus = corpus,
                                         .exclude_document = -1};
    struct retriever *r;
    if (corpus) CHECK_OK(searcher_open(&how.searcher, &(struct searcher_config){.device = m->dev, .view = corpus}));
    CHECK_OK(chunk_retriever_create(&r, &how));
    run_mode(m, mode, r, prompt, tokens, bound);
    struct chunk_retriever_times t = chunk_retriever_times(r);
    printf("# %s: prompt included: search %.3f s, read %.3f s, encode %.3f s, %lld queries, %lld hits, %lld misses\n",
           mode, t.search, t.read, t.encode, (long long)t.queries, (long long)t.cache_hits, (long long)t.cache_misses);
    r->free(r);
    searcher_close(how.searcher);
}

/* ---- the cost of retrieval ------------------------------------------------------------------------------- */

enum { PROMPT_CHUNKS = 16, WARM_CHUNKS = 2 };

/* The first `n` ids of the first document that has so many; gives its number. */
static int64_t text_of_store(const struct model *m, struct store_view *view, int32_t *ids, int64_t n) {
    struct store_info info;
    store_view_info(view, &info);
    for (int64_t i = 0; i < info.documents; i++) {
        struct store_document d;
        CHECK_OK(store_view_document(view, &d, i));
        if (d.tokens < n) continue;
        for (int64_t at = 0; at < n; at += m->config.chunk) {
            struct store_chunk c;
            CHECK_OK(store_view_chunk(view, &c, ids + at, d.first_chunk + at / m->config.chunk));
        }
        return i;
    }
    fprintf(stderr, "bench_generate: no document of the store has %lld tokens: request fewer chunks\n", (long long)n);
    exit(1);
}

enum clock_kind { CLOCK_WALL, CLOCK_PROCESSOR, CLOCKS };

struct timed_text {
    struct decoder_state *state;
    double *took[CLOCKS]; /* ms a token, of each chunk */
};

static double processor_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void decode_chunk(const struct timed_text *text, float *logits, const int32_t *ids, int64_t n, int64_t at) {
    struct decoder_output out = {.logits = logits};
    double wall = clock_seconds(), processor = processor_now();
    for (int64_t i = 0; i < n; i++)
        CHECK_OK(decoder_forward(text->state, &out, ids + i, 1));
    if (at < 0) return; /* warming up */
    text->took[CLOCK_WALL][at] = (clock_seconds() - wall) * 1e3 / (double)n;
    text->took[CLOCK_PROCESSOR][at] = (processor_now() - processor) * 1e3 / (double)n;
}

static double quantile(double *sorted, int64_t n, double q) {
    return sorted[(int64_t)(q * (double)(n - 1) + 0.5)];
}

static void print_ratio(const char *clock, double *plain, double *with, int64_t n) {
    double *pairs = malloc((size_t)n * sizeof *pairs);
    CHECK(pairs);
    for (int64_t i = 0; i < n; i++)
        pairs[i] = with[i] / plain[i];
    struct figure f = {.unit = "ms", .values = plain, .count = n};
    result_figure(&f, "token without retrieval, %s time", clock);
    f.values = with;
    f.peer = "without retrieval";
    f.ratio = samples_quantile(plain, n, 0.5) / samples_quantile(with, n, 0.5);
    result_figure(&f, "token with the corpus, %s time", clock);
    result_figure(&(struct figure){.unit = "times", .values = pairs, .count = n}, "with over without, pairs, %s time",
                  clock);
    qsort(plain, (size_t)n, sizeof *plain, compare);
    qsort(with, (size_t)n, sizeof *with, compare);
    qsort(pairs, (size_t)n, sizeof *pairs, compare);
    double a = quantile(plain, n, 0.5), b = quantile(with, n, 0.5);
    printf("%s,%lld,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", clock, (long long)n, a, b, b / a,
           quantile(pairs, n, 0.25), quantile(pairs, n, 0.5), quantile(pairs, n, 0.75), plain[0], with[0]);
    free(pairs);
}

static void run_ratio(const struct model *m, struct store_view *view, int64_t chunks) {
    int64_t chunk = m->config.chunk, prompt = PROMPT_CHUNKS * chunk, n = prompt + (WARM_CHUNKS + chunks) * chunk;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    float *logits = malloc((size_t)m->config.vocab_size * sizeof *logits);
    struct timed_text text[2] = {0};
    CHECK(ids && logits);
    struct chunk_retriever_config how = {
        .device = m->dev, .model = &m->config, .encoder = m->encoder, .corpus = view, .exclude_window = -1};
    CHECK_OK(searcher_open(&how.searcher, &(struct searcher_config){.device = m->dev, .view = view}));
    how.exclude_document = text_of_store(m, view, ids, n);
    struct retriever *r;
    struct decoder_output none = {0};
    CHECK_OK(chunk_retriever_create(&r, &how));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(decoder_state_create(&text[i].state, m->decoder, i ? r : NULL));
        CHECK_OK(decoder_forward(text[i].state, &none, ids, prompt));
        for (int c = 0; c < CLOCKS; c++)
            CHECK(text[i].took[c] = malloc((size_t)chunks * sizeof(double)));
    }
    struct chunk_retriever_times before = {0};
    for (int64_t c = 0; c < WARM_CHUNKS + chunks; c++) {
        if (c == WARM_CHUNKS) {
            before = chunk_retriever_times(r);
            for (int i = 0; i < 2; i++)
                decoder_state_times(text[i].state, true);
        }
        for (int turn = 0; turn < 2; turn++) {
            /* The order changes, so that neither always runs after the other. */
            decode_chunk(&text[(c + turn) % 2], logits, ids + prompt + c * chunk, chunk, c - WARM_CHUNKS);
        }
    }
    struct chunk_retriever_times t = chunk_retriever_times(r);
    struct decoder_times d = decoder_state_times(text[1].state, true),
                         none_d = decoder_state_times(text[0].state, true);
    double each = 1e3 / (double)(chunks * chunk);
    printf("clock,chunks,none_ms,corpus_ms,ratio,pairs_q1,pairs_median,pairs_q3,none_best,corpus_best\n");
    for (int c = 0; c < CLOCKS; c++)
        print_ratio(c == CLOCK_WALL ? "wall" : "processor", text[0].took[c], text[1].took[c], chunks);
    printf("# none, means of ms a token: layers %.3f, head %.3f\n", none_d.layers * each, none_d.head * each);
    printf(
        "# corpus, means of ms a token: layers %.3f, fuse %.3f, head %.3f, query %.4f, search %.3f, read %.4f, encode "
        "%.3f; %lld hits, %lld misses\n",
        d.layers * each, d.fuse * each, d.head * each, d.query * each, (t.search - before.search) * each,
        (t.read - before.read) * each, (t.encode - before.encode) * each, (long long)(t.cache_hits - before.cache_hits),
        (long long)(t.cache_misses - before.cache_misses));
    for (int i = 0; i < 2; i++) {
        decoder_state_free(text[i].state);
        for (int c = 0; c < CLOCKS; c++)
            free(text[i].took[c]);
    }
    r->free(r);
    searcher_close(how.searcher);
    free(ids), free(logits);
}

/* ---- several texts together ---- */

enum { BATCH_SETS = 2 }; /* one by one, together */

struct batch_set {
    struct decoder_state *state[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    double *took, sum; /* [rounds] */
};

static void batch_round(struct batch_set *set, const int32_t *ids, int n, bool together, int64_t round) {
    int32_t next[DECODER_BATCH_MAX];
    struct decoder_state *states[DECODER_BATCH_MAX];
    float *logits[DECODER_BATCH_MAX];
    int in = 0;
    const double start = clock_seconds();
    for (int i = 0; i < n; i++)
        if (together && decoder_batch_takes(set->state[i]))
            states[in] = set->state[i], logits[in] = set->logits[i], next[in++] = ids[i];
        else
            CHECK_OK(decoder_forward(set->state[i], &(struct decoder_output){.logits = set->logits[i]}, ids + i, 1));
    if (in > 0) CHECK_OK(decoder_batch_forward(states, logits, next, in));
    set->took[round] = (clock_seconds() - start) * 1e3;
    set->sum += set->took[round];
}

static void run_batch(const struct model *m, int n, int64_t rounds, int64_t prompt) {
    struct batch_set sets[BATCH_SETS] = {0};
    struct rng rng = rng_make(1, (uint64_t)n);
    const int64_t vocab = m->config.vocab_size;
    int32_t *ids = malloc((size_t)(prompt + DECODER_BATCH_MAX) * sizeof *ids);
    CHECK(ids);
    for (int64_t i = 0; i < prompt + DECODER_BATCH_MAX; i++)
        ids[i] = (int32_t)rng_below(&rng, (uint64_t)vocab - 8);
    for (int set = 0; set < BATCH_SETS; set++) {
        CHECK(sets[set].took = malloc((size_t)rounds * sizeof(double)));
        for (int i = 0; i < n; i++) { /* at different positions, so that chunks do not end together */
            CHECK(sets[set].logits[i] = malloc((size_t)vocab * sizeof(float)));
            CHECK_OK(decoder_state_create(&sets[set].state[i], m->decoder, NULL));
            CHECK_OK(decoder_forward(sets[set].state[i], &(struct decoder_output){0}, ids, prompt + i * 2));
        }
    }
    for (int64_t round = 0; round < rounds; round++)
        for (int turn = 0; turn < BATCH_SETS; turn++) {
            const int set = (int)((round + turn) % BATCH_SETS);
            batch_round(&sets[set], ids, n, set == 1, round);
        }
    for (int i = 0; i < n; i++)
        CHECK(memcmp(sets[0].logits[i], sets[1].logits[i], (size_t)vocab * sizeof(float)) == 0);
    for (int set = 0; set < BATCH_SETS; set++)
        qsort(sets[set].took, (size_t)rounds, sizeof(double), compare);
    const double alone = sets[0].sum / (double)rounds, together = sets[1].sum / (double)rounds;
    printf("%d,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.2f,%.2f,%.0f,%.0f\n", n, alone, sets[0].took[rounds / 2],
           sets[0].took[0], together, sets[1].took[rounds / 2], sets[1].took[0], alone / together,
           sets[0].took[0] / sets[1].took[0], 1e3 * n / alone, 1e3 * n / together);
    result_value("times", alone / together, "%d texts one by one over together", n);
    for (int set = 0; set < BATCH_SETS; set++) {
        for (int i = 0; i < n; i++) {
            decoder_state_free(sets[set].state[i]);
            free(sets[set].logits[i]);
        }
        free(sets[set].took);
    }
    free(ids);
}

static void unload(struct model *m) {
    decoder_free(m->decoder);
    encoder_free(m->encoder);
    weights_release(&m->weights, m->dev);
    params_free(m->params);
    device_close(m->dev);
}

static int main_ratio(const char *model, const char *dir, int64_t chunks, int threads, bool narrow) {
    struct model m = {0};
    struct store *store;
    struct store_view *view;
    CHECK(chunks > 0);
    load(&m, model, threads, narrow);
    CHECK_OK(store_open(&store, dir));
    CHECK_OK(store_view_open(&view, store));
    run_ratio(&m, view, chunks);
    store_view_close(view);
    store_close(store);
    unload(&m);
    result_end();
    return 0;
}

static int main_batch(const char *model, int64_t chunks, int threads, int64_t prompt) {
    struct model m = {0};
    CHECK(chunks > 0 && prompt > 0);
    load(&m, model, threads, true);
    printf("texts,alone_ms_mean,alone_median,alone_best,batch_ms_mean,batch_median,batch_best,ratio_mean,ratio_best,"
           "alone_tokens_per_s,batch_tokens_per_s\n");
    for (int n = 1; n <= 32; n *= 2)
        run_batch(&m, n, chunks * (m.config.base_lm ? 64 : m.config.chunk), prompt);
    unload(&m);
    result_end();
    return 0;
}

/* All modes after prompts of each length of a list such as "504,8064". */
static void run_modes(const struct model *m, int64_t tokens, const char *prompts, struct store_view *view,
                      double bound) {
    printf("mode,tokens,ms_mean,ms_median,ms_best,layers,fuse,head,query,retrieve,bound_ms,best_over_bound,prefill_"
           "tokens_per_s\n");
    for (char *next = (char *)prompts; *next; next += *next == ',') {
        int64_t prompt = strtoll(next, &next, 10);
        CHECK(prompt > 0 && (*next == ',' || *next == '\0'));
        run_mode(m, "none", NULL, prompt, tokens, bound);
        if (!m->config.base_lm) run_retrieval(m, "self", true, NULL, prompt, tokens, bound);
        if (view) run_retrieval(m, "corpus", false, view, prompt, tokens, bound);
        if (view) run_retrieval(m, "both", true, view, prompt, tokens, bound);
    }
}

int main(int argc, char **argv) {
    result_begin("bench_generate", &argc, argv);
    if (argc >= 4 && argc <= 7 && strcmp(argv[2], "--ratio") == 0)
        return main_ratio(argv[1], argv[3], argc > 4 ? strtoll(argv[4], NULL, 10) : 40,
                          argc > 5 ? (int)strtol(argv[5], NULL, 10) : 0, argc < 7 || strcmp(argv[6], "f32") != 0);
    if (argc >= 3 && argc <= 6 && strcmp(argv[2], "--batch") == 0)
        return main_batch(argv[1], argc > 3 ? strtoll(argv[3], NULL, 10) : 2,
                          argc > 4 ? (int)strtol(argv[4], NULL, 10) : 0, argc > 5 ? strtoll(argv[5], NULL, 10) : 300);
    if (argc < 2 || argc > 5) {
        fprintf(
            stderr,
            "usage: bench_generate MODEL [TOKENS [PROMPT [STORE]]] or MODEL --ratio STORE [CHUNKS [THREADS [f32]]] or "
            "MODEL --batch [CHUNKS [THREADS [PROMPT]]]\n");
        return 2;
    }
    struct model m = {0};
    load(&m, argv[1], 0, true);
    int64_t tokens = argc > 2 ? strtoll(argv[2], NULL, 10) : 252;
    CHECK(tokens > 0);
    double megabytes, bound = bound_seconds(&m, &megabytes);
    struct store *store = NULL;
    struct store_view *view = NULL;
    printf("# %d threads, weights %.1f MB, read once in %.3f ms (%.1f GB/s), resident %.0f MB\n",
           threads_count(m.dev->threads), megabytes, bound * 1e3, megabytes / bound / 1e3,
           (double)memory_resident() / 1e6);
    if (argc > 4) {
        CHECK_OK(store_open(&store, argv[4]));
        CHECK_OK(store_view_open(&view, store));
    }
    run_modes(&m, tokens, argc > 3 ? argv[3] : "1008", view, bound);
    store_view_close(view);
    store_close(store);
    printf("# peak resident %.0f MB\n", (double)memory_resident_peak() / 1e6);
    unload(&m);
    result_end();
    return 0;
}
